"""The variants that the laboratory compares: what each changes in laboratory.yaml and in what the model is taught."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

PLUGINS = Path(__file__).with_name("ablations.py")


@dataclass(frozen=True)
class Variant:
    """`changes` are keys of laboratory.yaml with their values, `taught` fields of Curriculum; `meaning` is for people.

    `apart` are fields of the Curriculum of a second model, which half of the team starts from. `judge` says how it
    scores, if it does. A `competent` one claims to tell right from wrong, and is examined first.
    """

    meaning: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    taught: Mapping[str, Any] = field(default_factory=dict)
    apart: Mapping[str, Any] = field(default_factory=dict)
    frozen_judge: bool = False  # one agent more, which judges and is not trained
    judge: Literal["after a critique", "at sight"] | None = "after a critique"
    competent: bool = True


def _plugin(name: str, **options: Any) -> dict[str, Any]:
    return {"name": f"{PLUGINS}:{name}", **options}


BY_INTERACTION = {"name": "reinforce_pp", "normalize": "interaction"}

COPIES = {"rollout.copies_per_task": 4, "rollout.tasks_per_step": 32}

VARIANTS = {
    "verifier": Variant("the verifier rewards solutions, nothing else is trained", {"reward": {"name": "verifier"}}),
    "comas": Variant("CoMAS, its judge independent of the critic"),
    "comas_by_interaction": Variant(
        "CoMAS, advantages normalised within each interaction", {"experience": BY_INTERACTION}
    ),
    "comas_frozen_judge": Variant(
        "CoMAS, an agent more judges and is not trained",
        {"workflow": _plugin("CoMASWithJudge", rounds=1)},
        frozen_judge=True,
    ),
    "heterogeneous": Variant("CoMAS, half of the team of another model", apart={"width": 128, "seed": 1}),
    "larger": Variant("CoMAS, of a larger model", taught={"width": 128}),
    "comas_solver_only": Variant(
        "CoMAS, only its solutions are trained", {"reward": _plugin("PartialReward", trained=["solution"])}
    ),
    "repeats_critic": Variant(
        "CoMAS, its judge taught to repeat the critic", taught={"dependence": 1.0}, competent=False
    ),
    "no_evaluation": Variant(
        "solutions are scored at sight",
        {"workflow": {"name": "comas", "rounds": 1, "evaluations": 0}},
        judge="at sight",
    ),
    "no_scoring": Variant(
        "solutions live by verdicts, verdicts by agreement",
        {
            "workflow": {"name": "comas", "rounds": 1, "evaluations": 2, "scoring": False},
            "reward": {"name": "consensus"},
        },
        judge=None,
        competent=False,
    ),
    "ttrl": Variant(
        "the majority of four answers is the label",
        {"workflow": {"name": "vanilla"}, "reward": {"name": "ttrl"}, **COPIES},
        judge=None,
        competent=False,
    ),
    "maporl": Variant(
        "a debate, whose answers the verifier rewards",
        {"workflow": {"name": "debate", "aggregate": False}, "reward": {"name": "maporl"}},
        judge=None,
        competent=False,
    ),
    "srlm": Variant(
        "everybody scores own answers",
        {"workflow": {"name": "self_judge", "judgements": 1}, "reward": {"name": "self_judge"}},
        judge=None,
        competent=False,
    ),
}

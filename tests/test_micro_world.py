"""Learning that can be seen: the micro world in a shortened form, through the real loop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from marti_ext.rewards.verifier import VerifierReward
from marti_ext.types import Episode

ROOT = Path(__file__).parents[1]
STEPS = 10


@dataclass(frozen=True)
class VerifiedForAnn(VerifierReward):
    """What the verifier says for ann, and 1 for whatever bob says: nothing that he could learn from."""

    def assign(self, episodes: Sequence[Episode]) -> None:
        super().assign(episodes)
        for turn in (turn for episode in episodes for turn in episode.turns if turn.agent == "bob"):
            turn.reward = 1.0


@dataclass(frozen=True)
class Outcome:
    """One short run: where it is, and {(agent, steps): its accuracy}."""

    folder: Path
    accuracy: dict[tuple[str, int], Any]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    import torch

    folder, threads = tmp_path_factory.mktemp("micro_world"), torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples/micro_world"))
        from run import learn
        from teach import Teaching

        torch.set_num_threads(1)  # as run.py does
        overrides = [f"steps={STEPS}", f"reward.name={__file__}:VerifiedForAnn"]
        rows = learn(folder, Teaching(seed=0), overrides, Console(file=StringIO()))
        yield Outcome(folder, {(row.agent, row.step): row for row in rows})
        torch.set_num_threads(threads)


@pytest.mark.slow
def test_sampled_accuracy_on_held_out_questions_rises_under_the_verifier_reward(outcome: Outcome) -> None:
    before, after = outcome.accuracy["ann", 0], outcome.accuracy["ann", STEPS]
    assert 0.3 < before.sampled < 0.6
    assert before.standard_error < 0.015
    # Seen: 0.17, 0.17, 0.17, 0.11, 0.17 for seeds 0 to 4. The standard error of a difference is below 0.014.
    assert after.sampled - before.sampled > 0.06


@pytest.mark.slow
def test_rewards_that_are_all_alike_leave_a_policy_as_it_was_bit_for_bit(outcome: Outcome) -> None:
    from safetensors.torch import load_file

    taught = load_file(outcome.folder / "taught/model.safetensors")
    checkpoint = outcome.folder / f"training/checkpoints/step-{STEPS:05d}"
    bob, ann = (load_file(checkpoint / name / "model.safetensors") for name in ("bob", "ann"))
    assert taught.keys() == bob.keys()
    assert all(taught[name].equal(bob[name]) for name in taught)
    assert not any(taught[name].equal(ann[name]) for name in taught)
    # Every evaluation draws with the same seeds, so the same weights are right on the same questions.
    assert outcome.accuracy["bob", STEPS].sampled == outcome.accuracy["bob", 0].sampled


@pytest.mark.slow
def test_a_folder_with_another_run_is_refused(outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    from run import main

    assert main(["--out", str(outcome.folder), "--seed", "1"]) == 2
    assert "choose another --out" in capsys.readouterr().err
    assert (outcome.folder / "accuracy.png").stat().st_size > 10_000

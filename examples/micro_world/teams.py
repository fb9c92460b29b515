"""Who works together in a run of the laboratory, and on what models."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from variants import Variant

NAMES = ("ann", "bob", "cai", "dee", "eve", "fay", "gil", "hal")
JUDGE = "judge"


@dataclass(frozen=True)
class Team:
    """So many agents, each with a policy of its own or all `shared`."""

    size: int = 2
    shared: bool = False

    def label(self, variant: str) -> str:
        """What the runs of a variant by this team are called."""
        size = "" if self.size == Team.size else f"_l{self.size}"
        return f"{variant}{size}{'_shared' if self.shared else ''}"

    def changes(self, variant: Variant, models: Mapping[bool, Path]) -> dict[str, Any]:
        """Keys of laboratory.yaml; `models` has the model of the team and, under True, that of its other half."""
        names = NAMES[: self.size]
        agents: list[dict[str, Any]] = [{"name": name, "policy": names[0] if self.shared else name} for name in names]
        halves = {agent["policy"]: bool(variant.apart) and place % 2 == 1 for place, agent in enumerate(agents)}
        if variant.frozen_judge:
            agents.append({"name": JUDGE, "policy": JUDGE, "trainable": False})
            halves[JUDGE] = False
        policies = {
            name: {"model": str(models[half]), "device": "cpu", "max_batch_size": 512} for name, half in halves.items()
        }
        debaters = max(2, self.size)
        debate = {"workflow.debaters": debaters, "workflow.others": min(2, debaters - 1)}
        debates = variant.changes.get("workflow", {}).get("name") == "debate"
        return {"agents": agents, "policies": policies, **variant.changes, **(debate if debates else {})}

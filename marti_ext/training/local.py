"""Training in this process with plain torch.

Shapes: B = rows of a micro batch, K = the last K tokens of its rows.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from marti_ext.backends.hf import HFBackend
from marti_ext.backends.hf_model import load_weights
from marti_ext.seeds import derive_seed
from marti_ext.training.base import LOCAL_STATE, Metrics, NonFiniteError, PolicyTrainer
from marti_ext.training.dpo import PREFERENCES, pairs_of, weighted
from marti_ext.training.log_probs import by_length, collate, row_log_probs, tail, token_log_probs
from marti_ext.training.loss import clipped_policy_loss, kl_estimate
from marti_ext.training.options import TrainingOptions
from marti_ext.training.schedule import learning_rate_factor
from marti_ext.types import Floats, Sample


class LocalTrainer(PolicyTrainer):
    """REINFORCE++ with PPO's clip, or DPO, by AdamW on one device.

    The loss is the mean over all action tokens of an optimiser update (DPO's over its pairs), so no micro-batch split
    changes a gradient.
    Old log-probs are those of the sampling itself. With `keep_reference` the initial weights are kept frozen.
    """

    def __init__(self, backend: HFBackend, options: TrainingOptions, *, seed: int, keep_reference: bool) -> None:
        self.backend: HFBackend = backend
        self.policy = backend.policy
        self.options = options
        self.seed = seed
        self._parameters = self.policy.parameters()
        self._optimizer = torch.optim.AdamW(
            self._parameters, lr=options.learning_rate, betas=options.betas, weight_decay=options.weight_decay
        )
        self._schedule = LambdaLR(self._optimizer, lambda update: learning_rate_factor(options, update))
        needs_copy = (keep_reference or options.needs_reference) and self.policy.adapter is None
        self._reference = copy.deepcopy(self.policy.model).requires_grad_(False) if needs_copy else None
        if options.gradient_checkpointing:
            self.policy.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})

    def step(self, samples: Sequence[Sample], *, step: int) -> Metrics:
        # In an order of their own, so that what an update holds does not depend on the order in which rows came.
        rows = sorted(samples, key=lambda s: (s.group, s.token_ids.tobytes(), s.advantages.tobytes()))
        reference = self.reference_log_probs(rows) if rows and self.options.needs_reference else None
        units = pairs_of(rows) if self.options.loss == "dpo" else [[place] for place in range(len(rows))]
        log: defaultdict[str, list[float]] = defaultdict(list)
        for epoch in range(self.options.max_epochs if rows else 0):
            chance = np.random.default_rng(derive_seed(self.seed, self.policy.name, step, epoch))
            order = chance.permutation(len(units))
            batch = max(1, self.options.batch_size // len(units[0]))
            for drawn in np.array_split(order, -(-len(units) // batch)):
                places = [place for unit in drawn for place in units[unit]]
                batch_reference = [reference[p] for p in places] if reference is not None else None
                for name, value in self._update([rows[p] for p in places], batch_reference, step).items():
                    log[name].append(value)
        return self._metrics(rows, log)

    def reference_log_probs(self, samples: Sequence[Sample]) -> list[Floats]:
        return row_log_probs(self._activate_reference(), self.policy, samples, self.options.micro_batch_size)

    def save(self, folder: Path) -> None:
        self.policy.save(folder)
        state = {"optimizer": self._optimizer.state_dict(), "schedule": self._schedule.state_dict()}
        torch.save(state, folder / LOCAL_STATE)

    def load(self, folder: Path) -> None:
        load_weights(self.policy, folder)
        state = torch.load(folder / LOCAL_STATE, map_location=self.policy.device, weights_only=True)
        self._optimizer.load_state_dict(state["optimizer"])
        self._schedule.load_state_dict(state["schedule"])

    def _activate_reference(self) -> Callable[[], Any]:
        if self.policy.adapter is not None:
            return self.policy.active_base
        if self._reference is None:
            raise ValueError(f"policy {self.policy.name!r} kept no reference; build its trainer with keep_reference")
        reference = self._reference
        return lambda: self.policy.arithmetic(reference)

    def _update(self, rows: list[Sample], reference: list[Floats] | None, step: int) -> dict[str, float]:
        """One optimiser update; sums over its micro batches, divided by its action tokens."""
        tokens = sum(int(row.action_mask.sum()) for row in rows)
        sums: defaultdict[str, float] = defaultdict(float)
        deviation = 0.0
        processed = 0
        preferences: dict[str, float] = {}
        if self.options.loss == "dpo" and reference is not None:
            current = row_log_probs(self.policy.active, self.policy, rows, self.options.micro_batch_size)
            rows, preferences = weighted(rows, current, reference, self.options.dpo_beta)
            reference = None
        self._optimizer.zero_grad()
        with self.policy.active() as model:
            model.train(self.options.gradient_checkpointing)  # transformers checkpoints in training mode only
            for places in by_length(rows, self.options.micro_batch_size):
                micro = [rows[p] for p in places]
                micro_reference = [reference[p] for p in places] if reference is not None else None
                parts, size = self._losses(model, micro, micro_reference)
                loss = parts["loss"].sum() / tokens
                self._refuse_non_finite(parts["loss"].sum(-1), micro, step)
                torch.autograd.backward(loss)
                for name in ("loss", "kl", "clip_fraction", *(["reference_kl"] if reference is not None else [])):
                    sums[name] += float(parts[name].detach().sum())
                deviation = max(deviation, float(parts["deviation"].max()))
                processed += size
            model.eval()
        grad_norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, self.options.max_grad_norm))
        if not np.isfinite(grad_norm):
            raise NonFiniteError(f"step {step}, policy {self.policy.name!r}: the gradient norm is {grad_norm}")
        learning_rate = self._schedule.get_last_lr()[0]
        self._optimizer.step()
        self._schedule.step()
        if not all(bool(torch.isfinite(p).all()) for p in self._parameters):
            raise NonFiniteError(f"step {step}, policy {self.policy.name!r}: the update broke its weights")
        return {
            **{name: value / tokens for name, value in sums.items()},
            **preferences,
            "grad_norm": grad_norm,
            "learning_rate": float(learning_rate),
            "ratio_deviation": deviation,
            "processed_tokens": float(processed),
        }

    def _losses(self, model: Any, rows: list[Sample], reference: list[Floats] | None) -> tuple[dict[str, Tensor], int]:
        """(B, K) parts of the loss and what is told of them, 0 off the action mask; and the tokens processed."""
        device = self.policy.device
        batch = collate(rows, device)
        log_probs = token_log_probs(model, batch)
        old = tail([row.rollout_log_probs for row in rows], batch.kept, device)
        advantages = tail([row.advantages for row in rows], batch.kept, device)
        with torch.no_grad():
            ratio = (log_probs - old).exp()
        parts = {
            "loss": -advantages * log_probs
            if self.options.loss == "dpo"
            else clipped_policy_loss(log_probs, old, advantages, self.options.clip_eps),
            "kl": kl_estimate(old, log_probs.detach(), "k3"),  # how far this step's updates have moved the policy
            "clip_fraction": ((ratio - 1).abs() > self.options.clip_eps).float(),
            "deviation": (ratio - 1).abs(),
        }
        if reference is not None:
            ref = tail(reference, batch.kept, device)
            parts["reference_kl"] = kl_estimate(log_probs, ref, self.options.kl_loss_estimator)
            parts["loss"] = parts["loss"] + self.options.kl_loss_coef * parts["reference_kl"]
        # `where`, not a product: a stray infinity off the mask times 0 is not a number.
        masked = {name: torch.where(batch.action_mask, part, 0.0) for name, part in parts.items()}
        return masked, batch.input_ids.numel()

    def _refuse_non_finite(self, row_losses: Tensor, rows: list[Sample], step: int) -> None:
        for row, loss in zip(rows, row_losses.tolist(), strict=True):
            if not np.isfinite(loss):
                task, agent, interaction, round = row.group
                raise NonFiniteError(
                    f"step {step}, policy {self.policy.name!r}: the loss of task {task!r}, agent {agent!r}, "
                    f"{interaction} of round {round} is {loss}; the policy is as it was before this update"
                )

    def _metrics(self, rows: Sequence[Sample], log: dict[str, list[float]]) -> Metrics:
        updates = len(log["loss"])
        advantages = np.concatenate([row.advantages[row.action_mask] for row in rows]) if rows else np.zeros(0)
        mean = {name: float(np.mean(values)) for name, values in log.items() if values}
        return {
            "samples": len(rows),
            "updates": updates,
            "skipped": updates == 0,
            "action_tokens": len(advantages),
            "advantage_std": float(advantages.std()) if rows else None,
            "processed_tokens": int(sum(log["processed_tokens"])),
            "real_tokens": sum(len(row.token_ids) for row in rows) * (self.options.max_epochs if rows else 0),
            # Of the first update: afterwards the policy has moved, and a ratio is meant to differ from 1.
            "ratio_deviation": log["ratio_deviation"][0] if updates else None,
            "learning_rate": self._schedule.get_last_lr()[0] if not updates else log["learning_rate"][-1],
            **{name: mean.get(name) for name in ("loss", "kl", "reference_kl", "clip_fraction", "grad_norm")},
            **{name: mean[name] for name in PREFERENCES if name in mean},
        }

"""Training on a Ray cluster with OpenRLHF's own classes: one BasePPOTrainer per policy."""

import logging
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from openrlhf.trainer.ppo_trainer import BasePPOTrainer
from transformers import PreTrainedTokenizerBase

from marti_ext.backends.vllm import VLLMBackend
from marti_ext.cluster.flags import data_parallel_size
from marti_ext.cluster.rows import GivenAdvantages, experiences
from marti_ext.cluster.session import Session
from marti_ext.training.base import Metrics, NonFiniteError, PolicyTrainer
from marti_ext.types import Floats, Sample

TAG = "state"
# OpenRLHF tells of every step in lines of its own; a run has its metrics and its bar.
for handler in logging.getLogger("openrlhf").handlers:
    handler.setLevel(logging.WARNING)


class _PPOTrainer(BasePPOTrainer):  # type: ignore[misc]
    """OpenRLHF's step for one policy, with advantages that are given, and weights handed over when asked."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.experience_maker = GivenAdvantages(
            self.actor_model_group, None, None, self.reference_model_group, self.kl_ctl, self.strategy, self.tokenizer
        )

    def broadcast_to_vllm(self) -> None:
        """Nothing: see OpenRLHFTrainer.publish."""

    def hand_over(self) -> None:
        """Send the actors' weights to the engines."""
        super().broadcast_to_vllm()


class OpenRLHFTrainer(PolicyTrainer):
    """One policy's DeepSpeed actors and vLLM engines.

    Rows are filled up to whole optimiser updates by rows without an action token, so that all ranks work equally long
    and none is dropped; `fillers` counts them. A step without rows moves nothing.
    """

    def __init__(
        self,
        args: SimpleNamespace,
        strategy: Any,
        actors: Any,
        reference: Any,
        backend: VLLMBackend,
        tokenizer: PreTrainedTokenizerBase,
        session: Session,
    ) -> None:
        self.backend: VLLMBackend = backend
        self.args = args
        self.label = f"policy {args.marti_ext.policy!r}"
        self.actors = actors
        self._reference = reference
        self._tokenizer = tokenizer
        self._session = session
        loss_reference = reference if args.algo.kl.use_loss else None
        self._trainer = _PPOTrainer(strategy, actors, None, None, loss_reference, backend.engines, tokenizer)

    def step(self, samples: Sequence[Sample], *, step: int) -> Metrics:
        if not samples:
            return self._metrics(samples, {}, 0)
        rows, fillers = self._rows(samples)
        self._on_actors("set_step", step)
        try:
            status, _ = self._trainer.train_step(rows, step)
        except Exception as error:
            raise self._session.failed(f"{self.label}: training")(error) from error
        for name in ("policy_loss", "actor_grad_norm"):
            if not np.isfinite(status[name]):
                raise NonFiniteError(f"step {step}, {self.label}: {name} is {status[name]}")
        if any(self._on_actors("non_finite_weights")):
            raise NonFiniteError(f"step {step}, {self.label}: an update broke its weights")
        return self._metrics(samples, status, fillers)

    def publish(self) -> None:
        try:
            self._trainer.hand_over()
        except Exception as error:
            raise self._session.failed(f"{self.label}: handing weights to its engines")(error) from error

    def reference_log_probs(self, samples: Sequence[Sample]) -> list[Floats]:
        if self._reference is None:
            raise ValueError(f"{self.label} kept no reference model")
        rows, _ = self._rows(samples)
        references = self._reference.async_run_method_batch(
            method_name="forward",
            sequences=[row.sequences for row in rows],
            action_mask=[row.action_mask for row in rows],
            attention_mask=[row.attention_mask for row in rows],
        )
        shared = self.args.ds.ring_attn_size * self.args.ds.tensor_parallel_size
        chunks = self._session.wait(f"{self.label}: its reference", references[::shared])
        found = {}
        for row, log_probs in zip(rows, (one for chunk in chunks for one in chunk), strict=True):
            found[row.sequences[0].numpy().tobytes()] = np.append(
                np.zeros(1, np.float32), log_probs[0].float().numpy()
            )
        return [found[sample.token_ids.tobytes()] * sample.action_mask for sample in samples]

    def save(self, folder: Path) -> None:
        target = folder.resolve()
        self._on_actors("set_checkpoint_path", str(target))
        self._on_actors("save_checkpoint", TAG)
        for file in (target / f"{TAG}_hf").iterdir():
            file.replace(target / file.name)
        (target / f"{TAG}_hf").rmdir()

    def load(self, folder: Path) -> None:
        self._on_actors("load_checkpoint", str(folder.resolve()))
        self.publish()

    def _rows(self, samples: Sequence[Sample]) -> tuple[list[Any], int]:
        return experiences(
            samples,
            batch_size=self.args.train.batch_size,
            ranks=data_parallel_size(self.args),
            end_token=int(self._tokenizer.pad_token_id),
        )

    def _on_actors(self, method: str, *arguments: Any) -> list[Any]:
        return self._session.wait(f"{self.label}: {method}", self.actors.async_run_method(method, *arguments))

    def _metrics(self, samples: Sequence[Sample], status: dict[str, Any], fillers: int) -> Metrics:
        advantages = np.concatenate([row.advantages[row.action_mask] for row in samples]) if samples else np.zeros(0)
        epochs = self.args.train.max_epochs if samples else 0
        length = sum(len(row.token_ids) for row in samples) * epochs
        return {
            "samples": len(samples),
            "fillers": fillers,
            "updates": (len(samples) + fillers) // self.args.train.batch_size * epochs,
            "skipped": not samples,
            "action_tokens": len(advantages),
            "advantage_std": float(advantages.std()) if samples else None,
            "processed_tokens": length,
            "real_tokens": length,
            "ratio_deviation": self._trainer.experience_maker.ratio_deviation if samples else None,
            "learning_rate": status.get("actor_lr"),
            "loss": status.get("policy_loss"),
            "kl": status.get("ppo_kl"),
            "reference_kl": status.get("kl") if self.args.algo.kl.use_loss else None,
            "clip_fraction": status.get("ppo_clip_ratio"),
            "grad_norm": status.get("actor_grad_norm"),
            "is_filtered": status.get("is_filter_ratio"),
        }

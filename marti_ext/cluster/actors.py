"""OpenRLHF's Ray actors, with what a team of policies needs of them. Imported by the driver and every Ray worker."""

import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import ray
import torch

from patches.cpu import activate_training, has_accelerator

activate_training()  # before OpenRLHF's models are imported

from openrlhf.trainer.ray import vllm_engine  # noqa: E402
from openrlhf.trainer.ray.launcher import ReferenceModelActor  # noqa: E402
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer, PolicyModelActor  # noqa: E402

from marti_ext.seeds import derive_seed  # noqa: E402
from marti_ext.training.base import DEEPSPEED_STATE  # noqa: E402
from marti_ext.training.schedule import learning_rate_factor  # noqa: E402
from patches.remote_code import remote_code  # noqa: E402


def _wrapped(actor: Any) -> Any:
    """The class that upstream made a Ray actor of: that one can be extended."""
    return actor.__ray_metadata__.modified_class.__ray_actor_class__


# Asked whether the process lives, on a thread of its own while the other one trains.
_ALIVE = {"alive": 1}


class _PolicyTrainer(ActorPPOTrainer):  # type: ignore[misc]
    """OpenRLHF's updates of one rank."""

    def training_step(
        self, experience: Any, kl_ctl: float, step: int, loss_batch_info: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """OpenRLHF's, with a loss to report that is one per action token, like the local trainer's.

        OpenRLHF weighs a loss by its micro batch's tokens after it was divided by those of the whole update. A micro
        batch of fillers alone has no token to average over: its metrics are 0 / 0, and weigh nothing.
        """
        status: dict[str, Any] = super().training_step(experience, kl_ctl, step, loss_batch_info)
        metrics, tokens = status["metrics"], status["num_action_tokens"]
        if tokens == 0:
            averaged = [name for name, weight in status["weights"].items() if weight is not None]
            metrics.update(dict.fromkeys(averaged, 0.0))
            status["num_action_tokens"] = 1e-12  # a weight, by which OpenRLHF divides
        elif loss_batch_info is not None:
            metrics["policy_loss"] *= loss_batch_info["batch_num_tokens"] / loss_batch_info["dp_size"] / tokens
        return status


class PolicyProcess(_wrapped(PolicyModelActor)):  # type: ignore[misc]
    """One rank of a policy's DeepSpeed training.

    The learning rate follows marti_ext's schedule (transformers' cosine rises again after its end), the order of rows
    a seed of the step, and a checkpoint can be loaded at any time.
    """

    def init_model_from_pretrained(self, strategy: Any, *arguments: Any, **options: Any) -> None:
        """OpenRLHF's, trusting a model's code only where the config does."""
        own = strategy.args.marti_ext
        with remote_code(trusted=own.trust_remote_code):
            super().init_model_from_pretrained(strategy, *arguments, **options)
        self.trainer.__class__ = _PolicyTrainer  # it is built by a name that no argument changes
        self.actor_scheduler.lr_lambdas = [
            lambda update: learning_rate_factor(own.training, update) for _ in self.actor_scheduler.lr_lambdas
        ]
        self.actor_scheduler.last_epoch -= 1
        self.actor_scheduler.step()  # the first update's learning rate

    def fit(self, kl_ctl: float = 0) -> dict[str, Any]:
        """OpenRLHF's, in an order of rows that a run repeats."""
        step = self.strategy.args.marti_ext_step
        torch.manual_seed(derive_seed(self.strategy.seed, self.strategy.args.marti_ext.policy, step) % 2**63)
        status: dict[str, Any] = super().fit(kl_ctl)
        return status

    def set_step(self, step: int) -> None:
        """Name the step that `fit` trains."""
        self.strategy.args.marti_ext_step = step

    def set_checkpoint_path(self, path: str) -> None:
        """The folder below which OpenRLHF's save_checkpoint writes."""
        self.strategy.args.ckpt.path = path

    def load_checkpoint(self, folder: str) -> None:
        """Take back weights, optimiser and schedule that save_checkpoint wrote to `folder`/_actor."""
        found, _ = self.strategy.load_ckpt(self.actor.model, str(Path(folder) / DEEPSPEED_STATE))
        if found is None:
            raise FileNotFoundError(f"{folder} holds no DeepSpeed checkpoint")

    def non_finite_weights(self) -> bool:
        """Whether a weight of this rank is no number."""
        return not all(bool(torch.isfinite(p).all()) for p in self.actor.model.module.parameters())

    @ray.method(concurrency_group="alive")  # type: ignore[untyped-decorator]
    def pid(self) -> int:
        """Of this process; answers while it trains."""
        return os.getpid()


class ReferenceProcess(_wrapped(ReferenceModelActor)):  # type: ignore[misc]
    """One rank of a frozen initial policy."""

    def init_model_from_pretrained(self, strategy: Any, pretrain: str) -> None:
        """OpenRLHF's, trusting a model's code only where the config does."""
        with remote_code(trusted=strategy.args.marti_ext.trust_remote_code):
            super().init_model_from_pretrained(strategy, pretrain)

    @ray.method(concurrency_group="alive")  # type: ignore[untyped-decorator]
    def pid(self) -> int:
        """Of this process; answers while it computes."""
        return os.getpid()


class EngineProcess(_wrapped(vllm_engine.RolloutRayActor)):  # type: ignore[misc]
    """A vLLM engine."""

    async def __init__(self, *arguments: Any, **options: Any) -> None:  # type: ignore[misc]  # Ray awaits it
        if not has_accelerator():
            if "marti_ext_cpu" not in entry_points(group="vllm.general_plugins").names:
                raise RuntimeError("marti_ext's plug-in of vLLM is not registered here: install marti_ext anew")
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB; vLLM would take half of the memory
            os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
            options.pop("gpu_memory_utilization")
            options["enable_sleep_mode"] = False
            # For a seeded request whose prompt it computes in parts vLLM rewinds a generator; on a CPU that fails.
            options["enable_chunked_prefill"] = False
        await super().__init__(*arguments, **options)

    async def pid(self) -> int:
        """Of this process; raises what vLLM says where its own process has died."""
        await self.llm.check_health()
        return os.getpid()


# The classes keep names of their own: so Ray's workers find them by import, and the first line that they run is ours.
PolicyActor = ray.remote(num_gpus=1, concurrency_groups=_ALIVE)(PolicyProcess)
ReferenceActor = ray.remote(num_gpus=1, concurrency_groups=_ALIVE)(ReferenceProcess)
EngineActor = ray.remote(EngineProcess)


def engine_class(*, trust_remote_code: bool) -> Any:
    """EngineActor as `create_vllm_engines` starts it, which says trust_remote_code=True for every engine."""

    class Options:
        @staticmethod
        def options(**placement: Any) -> Any:
            class Remote:
                @staticmethod
                def remote(**arguments: Any) -> Any:
                    arguments["trust_remote_code"] = trust_remote_code
                    return EngineActor.options(**placement).remote(**arguments)

            return Remote

    return Options

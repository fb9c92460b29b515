"""Sampling from the vLLM engines of one policy, as OpenRLHF starts them under Ray."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from ray.exceptions import RayError
from transformers import PreTrainedTokenizerBase
from vllm import SamplingParams as VLLMSamplingParams

from marti_ext.backends.base import Request, TokenBackend
from marti_ext.backends.chat import ChatTemplate
from marti_ext.types import Completion


class VLLMBackend(TokenBackend):
    """Token ids in, token ids and log-probs out, from whichever engine has the fewest requests in flight.

    Log-probs are vLLM's processed ones: of softmax(logits / temperature), after a top-p cut where there is one. A
    prompt that leaves no room for a reply gives `context_overflow`. `failed` turns an error of an engine into the one
    to raise.
    """

    def __init__(
        self,
        engines: Sequence[Any],
        tokenizer: PreTrainedTokenizerBase,
        *,
        context_window: int,
        failed: Callable[[BaseException], BaseException],
        template_arguments: Mapping[str, Any] | None = None,
        sleeps: bool = False,
    ) -> None:
        self.engines = list(engines)
        self.tokenizer = tokenizer
        self.template = ChatTemplate(tokenizer, template_arguments)
        self.context_window: int = context_window
        self._failed = failed
        self._sleeps = sleeps
        self._in_flight = [0] * len(engines)

    async def start_rollout(self) -> None:
        """Wake engines that sleep while the policy trains."""
        if self._sleeps:
            await self._all("wake_up")

    async def end_rollout(self) -> None:
        if self._sleeps:
            await self._all("sleep")

    async def complete(self, request: Request) -> Completion:
        prompt = self.template.render(request.messages)
        if len(prompt) >= self.context_window:
            return Completion("", "context_overflow", np.asarray(prompt, np.int64))
        output = await self.generate(prompt, self._params(request, self.context_window - len(prompt)))
        [reply] = output.outputs
        if reply.finish_reason not in ("stop", "length"):
            raise RuntimeError(f"vLLM ended a request with {reply.finish_reason!r}")
        token_ids = np.asarray(reply.token_ids, np.int64)
        return Completion(
            text=str(self.tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)),
            finish_reason=reply.finish_reason,
            prompt_ids=np.asarray(prompt, np.int64),
            token_ids=token_ids,
            log_probs=np.asarray(
                [at[token].logprob for at, token in zip(reply.logprobs, reply.token_ids, strict=True)], np.float32
            ),
            temperature=request.sampling.temperature or 1.0,
        )

    async def generate(self, prompt: Sequence[int], params: VLLMSamplingParams) -> Any:
        """vLLM's RequestOutput for prompt ids (P,)."""
        place = min(range(len(self.engines)), key=self._in_flight.__getitem__)
        self._in_flight[place] += 1
        try:
            return await self.engines[place].generate.remote(list(prompt), params)
        except RayError as error:
            raise self._failed(error) from error
        finally:
            self._in_flight[place] -= 1

    def _params(self, request: Request, room: int) -> VLLMSamplingParams:
        sampling = request.sampling
        return VLLMSamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=min(sampling.max_tokens, room),
            seed=request.seed % 2**63,
            logprobs=0,  # of the sampled token alone
            detokenize=False,
        )

    async def _all(self, method: str) -> None:
        try:
            await asyncio.gather(*(getattr(engine, method).remote() for engine in self.engines))
        except RayError as error:
            raise self._failed(error) from error

"""Sampling in this process with transformers: CPU, one GPU or MPS.

Shapes: B = rows of a batch, P = prompt tokens (left-padded), A = reply tokens, V = vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jinja2 import TemplateError
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from marti_ext.backends.base import BatchBackend, Request, SamplingParams
from marti_ext.backends.chat import ChatTemplate
from marti_ext.backends.hf_model import PolicyModel
from marti_ext.errors import UserError
from marti_ext.types import Completion


class HFBackend(BatchBackend):
    """Samples from a PolicyModel; new weights are seen at once, since the trainer moves the same tensors.

    A prompt that leaves no room for a reply gives `context_overflow` and generates nothing; a reply that meets the
    window's end gives `length`. `context_window` (tokens) can only shorten the model's own.
    """

    def __init__(
        self,
        policy: PolicyModel,
        *,
        template_arguments: Mapping[str, Any] | None = None,
        context_window: int | None = None,
        max_batch_size: int = 64,
    ) -> None:
        self.policy = policy
        self.template = ChatTemplate(policy.tokenizer, template_arguments)
        windows = [window for window in (context_window, policy.context_window) if window is not None]
        if not windows:
            raise UserError(f"the model of policy {policy.name!r} does not tell its window: set context_window")
        self.context_window: int = min(windows)
        self.max_batch_size = max_batch_size

    def complete_batch(self, requests: Sequence[Request]) -> list[Completion | Exception]:
        """Replies in request order; rows of like length share a forward pass, so that little is padded."""
        prompts: dict[int, list[int]] = {}
        replies: dict[int, Completion | Exception] = {}
        for row, request in enumerate(requests):
            try:
                prompt = self.template.render(request.messages)
            except (ValueError, TypeError, TemplateError) as error:  # what a template or tokenizer cannot take
                replies[row] = error
                continue
            if len(prompt) < self.context_window:
                prompts[row] = prompt
            else:
                replies[row] = Completion("", "context_overflow", np.asarray(prompt, np.int64))
        fitting = list(prompts)
        fitting.sort(key=lambda row: len(prompts[row]))
        for start in range(0, len(fitting), self.max_batch_size):
            rows = fitting[start : start + self.max_batch_size]
            completions = self._generate([prompts[row] for row in rows], [requests[row] for row in rows])
            replies.update(zip(rows, completions, strict=True))
        return [replies[row] for row in range(len(requests))]

    def _generate(self, prompts: list[list[int]], requests: list[Request]) -> list[Completion]:
        limits = [
            min(r.sampling.max_tokens, self.context_window - len(p)) for r, p in zip(requests, prompts, strict=True)
        ]
        device = self.policy.device
        width = max(map(len, prompts))
        pad = self.policy.end_token_ids[0]  # masked out wherever it pads
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts], device=device)  # (B, P)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=device)  # (B, P)
        sampler = _Sampler([r.sampling for r in requests], [r.seed for r in requests], max(limits), device)
        config = GenerationConfig(
            max_new_tokens=max(limits),
            do_sample=False,  # the sampler leaves one token to choose from
            eos_token_id=self.policy.end_token_ids,
            pad_token_id=pad,
        )
        # Not inference mode: there autocast casts the weights anew at every token.
        with torch.no_grad(), self.policy.generation(config) as model:
            output = model.generate(
                input_ids=ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=LogitsProcessorList([sampler]),
                stopping_criteria=StoppingCriteriaList([_RowLimits(width, limits, device)]),
            )
        replies = output[:, width:].cpu().numpy()  # (B, A), padded after each end
        log_probs = torch.stack(sampler.log_probs, dim=1).cpu().numpy()  # (B, A)
        return [self._completion(*row) for row in zip(prompts, replies, log_probs, limits, requests, strict=True)]

    def _completion(
        self, prompt: list[int], reply: np.ndarray, log_probs: np.ndarray, limit: int, request: Request
    ) -> Completion:
        ends = np.flatnonzero(np.isin(reply[:limit], self.policy.end_token_ids))
        length = int(ends[0]) + 1 if len(ends) else limit
        token_ids = reply[:length].astype(np.int64)
        return Completion(
            text=str(
                self.policy.tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
            ),
            finish_reason="stop" if len(ends) else "length",
            prompt_ids=np.asarray(prompt, np.int64),
            token_ids=token_ids,
            log_probs=log_probs[:length].astype(np.float32),
            temperature=request.sampling.temperature or 1.0,
        )


class _Sampler(LogitsProcessor):
    """Draws each row's next token by inverting its distribution at the row's own uniform number.

    So a reply depends on its request's seed and not on the rows it shares a batch with.
    """

    def __init__(
        self, sampling: Sequence[SamplingParams], seeds: Sequence[int], steps: int, device: torch.device
    ) -> None:
        uniforms = np.stack([np.random.default_rng(seed).random(steps) for seed in seeds])  # (B, A)
        # Below 1 by more than a rounding, so that no draw lands behind the last possible token.
        self._uniforms = torch.tensor(uniforms, dtype=torch.float32, device=device).clamp_(max=1 - 2**-23)
        temperature = torch.tensor([s.temperature for s in sampling], device=device)[:, None]  # (B, 1)
        self._greedy = temperature == 0
        self._temperature = torch.where(self._greedy, 1.0, temperature)
        self._top_p = torch.tensor([s.top_p for s in sampling], device=device)[:, None]
        self._cut = any(s.top_p < 1 for s in sampling)
        self._any_greedy = any(s.temperature == 0 for s in sampling)
        self.log_probs: list[Tensor] = []  # one (B,) per step

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        log_probs = torch.log_softmax(scores.float() / self._temperature, dim=-1)  # (B, V)
        tokens = self._draw(log_probs.exp(), self._uniforms[:, len(self.log_probs), None])
        if self._any_greedy:
            tokens = torch.where(self._greedy, scores.argmax(-1, keepdim=True), tokens)
        self.log_probs.append(log_probs.gather(-1, tokens).squeeze(-1))
        return torch.full_like(scores, -torch.inf).scatter(-1, tokens, 0.0)

    def _draw(self, probs: Tensor, uniforms: Tensor) -> Tensor:
        """(B, V), (B, 1) -> (B, 1)"""
        if self._cut:
            ordered, order = probs.sort(stable=True, dim=-1, descending=True)
            before = ordered.cumsum(-1) - ordered  # the smallest set whose mass reaches top_p stays
            kept = (before < self._top_p) | (self._top_p >= 1)
            probs = torch.zeros_like(probs).scatter(-1, order, torch.where(kept, ordered, 0.0))
        cumulative = probs.cumsum(-1)
        if not torch.isfinite(cumulative[:, -1]).all():
            raise ValueError("the model's logits are no numbers: its weights have diverged")
        return torch.searchsorted(cumulative, uniforms * cumulative[:, -1:], right=True)


class _RowLimits(StoppingCriteria):
    """Ends each row at its own limit."""

    def __init__(self, width: int, limits: Sequence[int], device: torch.device) -> None:
        self._ends = torch.tensor(limits, device=device) + width

    def __call__(self, input_ids: Tensor, scores: Tensor, **kwargs: Any) -> Tensor:
        return input_ids.shape[1] >= self._ends

"""Sampling in this process: tiny models with random weights, built from configs."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from micro_world.character_model import build_model, build_tokenizer, save
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from marti_ext.agent import Agent
from marti_ext.backends.base import Request, SamplingParams
from marti_ext.backends.hf import HFBackend, _Sampler
from marti_ext.backends.hf_model import PolicyModel, load_policies
from marti_ext.backends.options import Lora, ModelOptions
from marti_ext.experience.reinforce_pp import ReinforcePP
from marti_ext.experience.samples import samples_from
from marti_ext.training.log_probs import collate, token_log_probs
from marti_ext.types import Completion, Episode, Message, Sample, Task, Turn

WINDOW = 96
END = 1  # the character tokenizer's end token
VOCABULARY = len(build_tokenizer())


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # tiny models: more threads only wait for each other
    yield
    torch.set_num_threads(before)


def tiny_llama(seed: int = 0) -> PreTrainedModel:
    return build_model(layers=2, width=32, heads=4, window=WINDOW, seed=seed)


def grouped(kind: Literal["llama", "qwen2"]) -> PreTrainedModel:
    """Four query heads on two key-value heads; Qwen2 has biases where Llama has none."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": WINDOW,
        "eos_token_id": END, "bos_token_id": None, "pad_token_id": 0,
    }  # fmt: skip
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    model = Qwen2ForCausalLM(Qwen2Config(**sizes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):  # they start at 0
                parameter.normal_()
    return model


def sharpened(model: PreTrainedModel, scale: float = 6.0) -> PreTrainedModel:
    """Random weights give an almost even distribution; larger outputs give one with likely and unlikely tokens."""
    with torch.no_grad():
        model.get_output_embeddings().weight.mul_(scale)
    return model


def backend_of(model: PreTrainedModel, **options: int) -> HFBackend:
    return HFBackend(PolicyModel("p", model, build_tokenizer()), **options)


def ask(text: str, seed: int = 0, *, max_tokens: int = 24, temperature: float = 1.0, top_p: float = 1.0) -> Request:
    return Request((Message("user", text),), SamplingParams(temperature, top_p, max_tokens), seed)


def mixed_requests(count: int, **sampling: float) -> list[Request]:
    """Prompts of 1 to 40 characters."""
    lengths = np.random.default_rng(3).integers(1, 41, count)
    return [ask("".join(chr(97 + (i + k) % 26) for k in range(n)), i, **sampling) for i, n in enumerate(lengths)]  # type: ignore[arg-type]


def ids(completion: Completion) -> list[int]:
    assert completion.token_ids is not None
    return [int(i) for i in completion.token_ids]


def sample_of(completion: Completion) -> Sample:
    turn = Turn("ann", "p", "solution", 0, (), completion, reward=1.0)
    [sample] = samples_from([Episode(Task("t", "q"), turns=[turn])])["p"]
    return sample


def next_probabilities(model: PreTrainedModel, text: str) -> np.ndarray:
    """(V,) of the first reply token, in float64."""
    prompt = torch.tensor([build_tokenizer()(text).input_ids])
    with torch.no_grad():
        return torch.softmax(model(prompt).logits[0, -1].double(), -1).numpy()


def ending_often(model: PreTrainedModel) -> PreTrainedModel:
    """A model that ends a reply at about every eighth token."""

    class MoreEnds(torch.nn.Module):
        def __init__(self, head: torch.nn.Module) -> None:
            super().__init__()
            self.head = head

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            logits = self.head(hidden)
            return logits + 2.6 * (torch.arange(logits.shape[-1]) == END)  # e^2.6 = 13 of about 110

    model.lm_head = MoreEnds(model.lm_head)
    return model


def test_each_reply_ends_at_its_own_end_token_or_its_own_limit() -> None:
    backend = backend_of(ending_often(tiny_llama()))
    requests = [ask("hello", seed, max_tokens=4 + seed % 9) for seed in range(64)]
    replies = backend.complete_batch(requests)
    for request, reply in zip(requests, replies, strict=True):
        tokens = ids(reply)
        limit = request.sampling.max_tokens
        assert END not in tokens[:-1]
        if reply.finish_reason == "stop":
            assert tokens[-1] == END
            assert len(tokens) <= limit
        else:
            assert reply.finish_reason == "length"
            assert len(tokens) == limit
            assert tokens[-1] != END
        assert reply.text == build_tokenizer().decode(tokens, skip_special_tokens=True)
        assert "<end>" not in reply.text
        assert reply.log_probs is not None
        assert len(reply.log_probs) == len(tokens)
    assert Counter(reply.finish_reason for reply in replies).keys() == {"stop", "length"}
    assert len({len(ids(reply)) for reply in replies}) > 5


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_reply_depends_on_its_request_and_not_on_its_batch(kind: Literal["llama", "qwen2"]) -> None:
    backend = backend_of(sharpened(grouped(kind), 3.0))
    requests = [
        replace(r, sampling=SamplingParams([0.0, 0.7, 1.0, 1.3][i % 4], [1.0, 0.8][i % 2], 8 + i))
        for i, r in enumerate(mixed_requests(20))
    ]
    together = [ids(reply) for reply in backend.complete_batch(requests)]
    alone = [ids(backend.complete_batch([request])[0]) for request in requests]
    order = np.random.default_rng(0).permutation(len(requests))
    shuffled = backend.complete_batch([requests[i] for i in order])
    small = backend_of(backend.policy.model, max_batch_size=3).complete_batch(requests)
    assert together == alone
    assert [together[i] for i in order] == [ids(reply) for reply in shuffled]
    assert together == [ids(reply) for reply in small]


def test_another_seed_gives_another_reply() -> None:
    backend = backend_of(tiny_llama())
    replies = {tuple(ids(reply)) for reply in backend.complete_batch([ask("hello", seed) for seed in range(16)])}
    assert len(replies) == 16


def test_a_request_is_answered_alone_as_in_a_batch() -> None:
    backend = backend_of(tiny_llama())
    reply = asyncio.run(backend.complete(ask("hello", 7)))
    assert ids(reply) == ids(backend.complete_batch([ask("hi", 1), ask("hello", 7)])[1])


def test_temperature_zero_takes_the_likeliest_token_each_time() -> None:
    model = tiny_llama()
    [reply] = backend_of(model).complete_batch([ask("hello", temperature=0.0, max_tokens=12)])
    context = build_tokenizer()("hello").input_ids
    for token in ids(reply):
        with torch.no_grad():
            assert token == int(model(torch.tensor([context])).logits[0, -1].argmax())
        context.append(token)
    greedy = backend_of(model).complete_batch([ask("hello", seed, temperature=0.0, max_tokens=12) for seed in (1, 2)])
    assert [ids(other) for other in greedy] == [ids(reply)] * 2


@pytest.mark.parametrize("top_p", [1.0, 0.7])
def test_tokens_come_as_often_as_the_model_says(top_p: float) -> None:
    # Each of V tokens comes Binomial(n, p) often. A count is off by more than 5 deviations with a chance below 6e-7
    # where n p is large; over all V = 98 tokens below 1e-4. The seeds are fixed, so the test always gives the same.
    model = sharpened(tiny_llama())
    probabilities = next_probabilities(model, "hello")
    order = np.argsort(-probabilities)
    before = np.cumsum(probabilities[order]) - probabilities[order]
    nucleus = set(order[before < top_p].tolist())
    exact = np.where(np.isin(np.arange(VOCABULARY), list(nucleus)), probabilities, 0.0)
    exact /= exact.sum()
    draws = 4096
    backend = backend_of(model, max_batch_size=1024)
    replies = backend.complete_batch([ask("hello", seed, max_tokens=1, top_p=top_p) for seed in range(draws)])
    counts = np.bincount([ids(reply)[0] for reply in replies], minlength=VOCABULARY)
    assert (counts[exact == 0] == 0).all()
    bound = 5 * np.sqrt(draws * exact * (1 - exact)) + 5  # + 5 for tokens that are expected less than once
    assert (np.abs(counts - draws * exact) <= bound).all()
    if top_p < 1:
        assert 1 < len(nucleus) < 60


def test_a_row_without_a_cut_is_not_cut_by_its_neighbours() -> None:
    # In float32 the sums over a large vocabulary pass 1 before its last tokens, which top_p = 1 keeps all the same.
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(1, 50_000, generator=generator)).sort(descending=True)[0]
    everything, half = SamplingParams(top_p=1.0), SamplingParams(top_p=0.5)
    start = torch.zeros(2, 1, dtype=torch.long)
    for step in range(1, 20):
        uniform = 1 - step * 2**-23
        alone = _Sampler([everything], [0], 1, torch.device("cpu"))
        beside = _Sampler([everything, half], [0, 0], 1, torch.device("cpu"))
        alone._uniforms[:] = beside._uniforms[:] = uniform
        assert alone(start[:1], logits).argmax() == beside(start, logits.repeat(2, 1))[0].argmax()


def test_a_prompt_that_fills_the_window_generates_nothing_and_is_no_sample() -> None:
    backend = backend_of(tiny_llama())
    calls: list[int] = []
    backend.policy.model.register_forward_pre_hook(lambda module, args: calls.append(1))
    replies = backend.complete_batch([ask("x" * WINDOW), ask("x" * (WINDOW + 30))])
    assert not calls
    for reply in replies:
        assert (reply.text, reply.finish_reason, reply.token_ids, reply.log_probs) == (
            "",
            "context_overflow",
            None,
            None,
        )
        turn = Turn("ann", "p", "solution", 0, (), reply, reward=1.0)
        assert ReinforcePP().make([Episode(Task("t", "q"), turns=[turn])], lambda policy, rows: []) == {}


def test_a_prompt_that_fills_the_window_leaves_the_others_their_replies() -> None:
    backend = backend_of(tiny_llama())
    short, long = ask("hello", 5), ask("x" * WINDOW)
    replies = backend.complete_batch([short, long, short])
    assert [reply.finish_reason == "context_overflow" for reply in replies] == [False, True, False]
    assert ids(replies[0]) == ids(replies[2]) == ids(backend.complete_batch([short])[0])


def test_a_reply_that_meets_the_windows_end_is_cut_there() -> None:
    backend = backend_of(tiny_llama())
    prompts = [WINDOW - 1, WINDOW - 5, 10]
    replies = backend.complete_batch([ask("x" * n, n, max_tokens=20) for n in prompts])
    assert [reply.finish_reason for reply in replies] == ["length"] * 3
    assert [len(ids(reply)) for reply in replies] == [1, 5, 20]


def test_a_window_of_ones_own_can_only_shorten_the_models() -> None:
    model = tiny_llama()
    assert backend_of(model, context_window=20).context_window == 20
    assert backend_of(model, context_window=10 * WINDOW).context_window == WINDOW
    [reply] = backend_of(model, context_window=20).complete_batch([ask("x" * 17)])
    assert (reply.finish_reason, len(ids(reply))) == ("length", 3)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_recorded_log_probs_are_those_of_a_plain_forward_pass(temperature: float) -> None:
    model = sharpened(tiny_llama(), 3.0)
    request = ask("hello there", 3, temperature=temperature, top_p=0.9)
    [_, reply] = backend_of(model).complete_batch([ask("x"), request])
    assert reply.prompt_ids is not None
    prompt = build_tokenizer()("hello there").input_ids
    assert [int(i) for i in reply.prompt_ids] == prompt
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids(reply)])).logits[0, len(prompt) - 1 : -1]
    scaled = torch.log_softmax(logits / (temperature or 1.0), -1)  # of the whole vocabulary, whatever top_p leaves
    expected = scaled.gather(-1, torch.tensor(ids(reply))[:, None])[:, 0].numpy()
    assert reply.temperature == (temperature or 1.0)
    assert reply.log_probs is not None
    assert np.abs(reply.log_probs - expected).max() < 1e-5


def test_a_models_own_generation_config_does_not_leak_in() -> None:
    model = tiny_llama()
    requests = [ask(text, seed, max_tokens=16) for seed, text in enumerate(["aaaaaaa", "hello", "b"])]
    plain = [ids(reply) for reply in backend_of(model).complete_batch(requests)]
    likely = Counter(token for tokens in plain for token in tokens).most_common(3)
    own = {
        "repetition_penalty": 1.8,
        "no_repeat_ngram_size": 1,
        "min_new_tokens": 12,
        "min_length": 30,
        "suppress_tokens": [token for token, _ in likely],
        "begin_suppress_tokens": [tokens[0] for tokens in plain],
        "bad_words_ids": [[token] for token, _ in likely],
        "sequence_bias": [[[likely[0][0]], -9.0]],
        "forced_bos_token_id": 5,
        "forced_eos_token_id": [END],
        "exponential_decay_length_penalty": [2, 3.0],
        "temperature": 0.1,
        "top_k": 1,
        "top_p": 0.1,
        "do_sample": True,
        "num_beams": 2,
        "num_return_sequences": 2,
        "return_dict_in_generate": True,
        "output_scores": True,
        "renormalize_logits": True,
        "max_length": 9,
        "stop_strings": ["e"],
    }
    for name, value in own.items():
        setattr(model.generation_config, name, value)
    assert [ids(reply) for reply in backend_of(model).complete_batch(requests)] == plain
    assert {name: getattr(model.generation_config, name) for name in own} == own  # still there to be saved


def test_every_declared_end_token_ends_a_reply() -> None:
    # A chat model's generation config often names the end of the turn besides the tokenizer's end of text.
    model = tiny_llama()
    letter = build_tokenizer().convert_tokens_to_ids("k")
    model.generation_config.eos_token_id = [letter]
    backend = backend_of(model)
    assert backend.policy.end_token_ids == [END, letter]
    replies = backend.complete_batch([ask("hello", seed, max_tokens=60) for seed in range(48)])
    stopped = [ids(reply) for reply in replies if reply.finish_reason == "stop"]
    assert {tokens[-1] for tokens in stopped} == {END, letter}
    assert all(not {END, letter} & set(tokens[:-1]) for tokens in map(ids, replies))


@pytest.mark.parametrize("temperature", [0.7, 1.0])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_the_trainers_log_probs_are_the_samplers(kind: Literal["llama", "qwen2"], temperature: float) -> None:
    backend = backend_of(sharpened(grouped(kind), 3.0), max_batch_size=7)
    samples = [sample_of(reply) for reply in backend.complete_batch(mixed_requests(24, temperature=temperature))]
    for size in (1, 5, 24):
        for start in range(0, len(samples), size):
            rows = samples[start : start + size]
            batch = collate(rows, torch.device("cpu"))
            with torch.no_grad():
                recomputed = token_log_probs(backend.policy.model, batch)
            for row, log_probs, mask in zip(rows, recomputed.numpy(), batch.action_mask.numpy(), strict=True):
                difference = log_probs[mask] - row.rollout_log_probs[row.action_mask]
                assert np.abs(np.exp(difference) - 1).max() < 1e-4


def test_bfloat16_arithmetic_runs_on_float32_weights() -> None:
    policy = PolicyModel("p", tiny_llama(), build_tokenizer(), precision="bf16")
    samples = [sample_of(reply) for reply in HFBackend(policy).complete_batch(mixed_requests(6))]
    batch = collate(samples, torch.device("cpu"))
    with torch.no_grad(), policy.active() as model:
        recomputed = token_log_probs(model, batch)
    assert recomputed.dtype == torch.float32
    assert {p.dtype for p in policy.parameters()} == {torch.float32}
    for row, log_probs, mask in zip(samples, recomputed.numpy(), batch.action_mask.numpy(), strict=True):
        # bfloat16 rounds to 3 digits: the ratio is near 1, not at 1.
        assert np.abs(log_probs[mask] - row.rollout_log_probs[row.action_mask]).max() < 0.1


def lora_policies(folder: Path, *names: str) -> dict[str, PolicyModel]:
    save(folder, tiny_llama())  # type: ignore[arg-type]
    options = ModelOptions(model=str(folder), lora=Lora(rank=4, alpha=8), device="cpu")
    return load_policies(dict.fromkeys(names, options), seed=0)


def test_two_adapters_on_one_base_reply_each_for_itself(tmp_path: Path) -> None:
    policies = lora_policies(tmp_path, "a", "b")
    assert policies["a"].model is policies["b"].model
    backends = {name: HFBackend(policy) for name, policy in policies.items()}
    requests = mixed_requests(6)

    def replies(name: str) -> list[list[int]]:
        return [ids(reply) for reply in backends[name].complete_batch(requests)]

    untouched = [ids(reply) for reply in backend_of(tiny_llama()).complete_batch(requests)]
    assert replies("a") == replies("b") == untouched  # an adapter starts as the identity
    base = {n: p.clone() for n, p in policies["a"].model.named_parameters() if "lora_" not in n}
    with torch.no_grad():
        for parameter in policies["a"].parameters():
            parameter.normal_()
    assert replies("a") != untouched
    assert replies("b") == untouched
    assert replies("a") != untouched  # and back again
    after = dict(policies["a"].model.named_parameters())
    assert all(torch.equal(after[name], weight) for name, weight in base.items())


def test_the_generation_config_of_a_shared_base_does_not_leak_in(tmp_path: Path) -> None:
    policy = lora_policies(tmp_path, "a", "b")["a"]
    requests = mixed_requests(4)
    plain = [ids(reply) for reply in HFBackend(policy).complete_batch(requests)]
    policy.model.get_base_model().generation_config.suppress_tokens = [tokens[0] for tokens in plain]
    assert [ids(reply) for reply in HFBackend(policy).complete_batch(requests)] == plain


def test_the_base_of_an_adapter_is_the_model_without_it(tmp_path: Path) -> None:
    policy = lora_policies(tmp_path, "a", "b")["b"]
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.normal_()
    prompt = torch.tensor([build_tokenizer()("hello").input_ids])
    with torch.no_grad():
        with policy.active_base() as model:
            without = model(prompt).logits
        with policy.active() as model:
            adapted = model(prompt).logits
        plain = tiny_llama()(prompt).logits
    assert torch.equal(without, plain)
    assert not torch.allclose(adapted, plain, atol=1e-2)


def test_log_probs_of_an_adapter_are_the_trainers(tmp_path: Path) -> None:
    policies = lora_policies(tmp_path, "a", "b")
    with torch.no_grad():
        for policy in policies.values():
            for parameter in policy.parameters():
                parameter.normal_(std=0.1)
    samples = [sample_of(reply) for reply in HFBackend(policies["a"]).complete_batch(mixed_requests(8))]
    batch = collate(samples, torch.device("cpu"))
    deviation = {}
    for name, policy in policies.items():
        with torch.no_grad(), policy.active() as model:
            log_probs = token_log_probs(model, batch).numpy()
        rows = zip(samples, log_probs, batch.action_mask.numpy(), strict=True)
        deviation[name] = max(
            np.abs(np.exp(new[mask] - row.rollout_log_probs[row.action_mask]) - 1).max() for row, new, mask in rows
        )
    assert deviation["a"] < 1e-4
    assert deviation["b"] > 1e-2  # the other adapter's weights would show


def test_an_agent_answers_in_the_words_of_its_backend() -> None:
    backend = backend_of(tiny_llama())
    agent = Agent("ann", backend, "p", sampling=SamplingParams(max_tokens=5))
    turn = asyncio.run(agent.turn("hello"))
    assert turn.completion.text == build_tokenizer().decode(ids(turn.completion), skip_special_tokens=True)
    assert len(ids(turn.completion)) <= 5

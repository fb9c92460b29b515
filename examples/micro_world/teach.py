"""Teaching by example: the character model learns additions from answers of which many are wrong.

So it knows how to add and yet often samples a wrong answer: that is what reinforcement learning then has to gain.
Shapes: B = rows of a batch, P = prompt tokens, T = tokens of the longest row.
"""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import transformers
from additions import noisy_answer, reply
from character_model import build_model, build_tokenizer, save
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from marti_ext.errors import UserError
from marti_ext.types import Task

OPTIONS_FILE = "teaching.json"
WARMUP = 50  # steps
IGNORED = -100  # no loss where a target has this id (transformers' convention)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast a model is taught."""

    steps: int = 600
    seed: int = 0
    batch_size: int = 64  # questions, drawn anew for every step
    learning_rate: float = 4e-3  # at its peak; falls to nearly 0


@dataclass(frozen=True, kw_only=True)
class Teaching(Schedule):
    """How the model is taught to add."""

    wrong_share: float = 0.5  # of the answers


def taught_model(folder: Path, options: Schedule, teach: Callable[[Path], None]) -> Path:
    """The folder of a model taught with these options; `teach` writes it only if it is not there yet.

    Raises UserError if the folder holds a model that was taught otherwise.
    """
    file = folder / OPTIONS_FILE
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        if before != asdict(options):
            raise UserError(
                f"{folder} holds a model taught with {before}, not {asdict(options)}: choose another --out"
            )
        return folder
    teach(folder)
    file.write_text(json.dumps(asdict(options)), encoding="utf-8")  # last: a half-written model is taught anew
    return folder


def teach(folder: Path, tasks: Sequence[Task], options: Teaching, report: Callable[[str], None]) -> None:
    """Minimise the cross-entropy (nats per token) of noisy replies, and save the model. One seed, one model."""
    rng = random.Random(options.seed)

    def draw() -> list[tuple[str, str]]:
        drawn = rng.choices(tasks, k=options.batch_size)
        return [(task.prompt, reply(noisy_answer(task, options.wrong_share, rng))) for task in drawn]

    # Wider spread than a large model's weights, and with more heads, it finds out sooner how to add.
    model = build_model(layers=2, width=96, heads=8, spread=0.05, seed=options.seed)
    fit(model, build_tokenizer(), draw, options, report)
    save(folder, model)


def fit(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    draw: Callable[[], Sequence[tuple[str, str]]],
    options: Schedule,
    report: Callable[[str], None],
) -> None:
    """Minimise the cross-entropy (nats per token) of the replies among the (prompt, reply) pairs that `draw` gives."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, betas=(0.9, 0.99), weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, 1.0) * max(1 - step / options.steps, 0.02)
    )
    for step in range(1, options.steps + 1):
        input_ids, labels = batch(tokenizer, *zip(*draw(), strict=True))
        loss = model(input_ids=input_ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            report(f"taught {step} of {options.steps} steps, loss {loss.item():.3f}")
    model.eval()
    transformers.logging.disable_progress_bar()  # of writing one small file


def batch(tokenizer: PreTrainedTokenizerFast, prompts: Sequence[str], replies: Sequence[str]) -> tuple[Tensor, Tensor]:
    """(input ids, labels), both (B, T) and padded on the right; labels are ignored on the prompts (P) and padding."""
    assert isinstance(tokenizer.eos_token_id, int)
    assert isinstance(tokenizer.pad_token_id, int)
    asked = [tokenizer(prompt).input_ids for prompt in prompts]
    said = [[*tokenizer(text).input_ids, tokenizer.eos_token_id] for text in replies]
    width = max(len(p) + len(r) for p, r in zip(asked, said, strict=True))
    input_ids = torch.full((len(prompts), width), tokenizer.pad_token_id)
    labels = torch.full((len(prompts), width), IGNORED)
    for row, (p, r) in enumerate(zip(asked, said, strict=True)):
        input_ids[row, : len(p) + len(r)] = torch.tensor(p + r)
        labels[row, len(p) : len(p) + len(r)] = torch.tensor(r)
    return input_ids, labels

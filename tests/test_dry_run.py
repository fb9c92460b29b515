"""What `marti-ext train --dry-run` says, against numbers worked out by hand."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM

from marti_ext.backends.hf_model import add_adapters, load_model
from marti_ext.backends.options import Lora
from marti_ext.build import build_plugins
from marti_ext.cli import main
from marti_ext.cluster.assignment import Place, assign, told
from marti_ext.cluster.budget import count_calls, policy_budgets
from marti_ext.cluster.flags import policy_arguments
from marti_ext.cluster.memory import GIB, activation_per_token, engine_memory, model_states, peaks, policy_memory
from marti_ext.cluster.one_device import held
from marti_ext.cluster.placement import NodeResources, plan_placement
from marti_ext.cluster.shapes import KNOWN, ModelShape, adapter_parameters, counted, model_shape
from marti_ext.config import Config
from marti_ext.config_file import check_config, load_config
from marti_ext.errors import UserError

ROOT = Path(__file__).parents[1]
L4 = ROOT / "configs/comas/qwen2.5-3b_l4.yaml"
CLUSTER_CONFIGS = [
    path for path in sorted((ROOT / "configs").glob("*/*.yaml")) if load_config(path).backend == "openrlhf"
]
COMAS_TEAMS = [
    "qwen2.5-3b_l1",
    "qwen2.5-3b_l2",
    "qwen2.5-3b_l4",
    "qwen2.5-3b_l8",
    "qwen2.5-7b_l4",
    "qwen2.5-3b_llama3.2-3b",
]
QWEN_3B = 3_085_938_688


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a dry run prints that goes well."""
    assert main(["train", *arguments, "--dry-run"]) == 0
    return capsys.readouterr().out


def cells(text: str, first: str) -> list[list[str]]:
    """The cells of the table rows that begin with `first`."""
    rows = [[cell.strip() for cell in line.strip("│ \n").split("│")] for line in text.splitlines()]
    return [row for row in rows if row[0].startswith(first) and len(row) > 1]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["train", str(L4), "--dry-run", *arguments]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.fixture(autouse=True)
def nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Every test runs in an empty folder, and leaves it as it was."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    yield
    assert not list(empty.iterdir())


@pytest.mark.parametrize("path", CLUSTER_CONFIGS, ids=lambda path: path.stem)
def test_every_cluster_config_fits_the_cluster_that_it_describes(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = shown(capsys, str(path))
    config = load_config(path)
    # Each of the paper's agents has two GPUs; the small one has an actor and an engine of each policy apart.
    assert f"{2 * len(config.policies)} GPUs of" in text
    assert "over" not in text.replace("hand-over", "")


def test_four_agents_of_3b_take_what_the_paper_says(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(L4))
    assert text.startswith("8 GPUs of 1 x 8 of 80 GiB")
    placed, states, step = (cells(text, "agent-3")[at] for at in range(3))
    assert placed == ["agent-3", "node 0: GPUs 6-7", "-", "2 x 1: node 0: GPUs 6-7"]
    # Two ranks, stage 3: 2 P / 2 = 3.09e9 B = 2.874 GiB of weights, as much of gradients; gathered 2e9 B = 1.863 GiB;
    # on the host (12 + 4) P / 2 = 24.69e9 B = 22.99 GiB. vLLM: 2 P = 5.748 GiB, 0.6 * 80 = 48 GiB; a cached token
    # takes 2 * 2 B * 36 layers * 2 heads * 128 = 36864 B: (48 - 5.748) GiB / 36864 = 1230678 tokens.
    memory = ["2.9", "2.9", "0.0", "1.9", "23.0", "-", "5.7", "48.0", "1,230,678"]
    assert states == ["agent-3", "3,085,938,688", "3", *memory]
    # Rollout 48 + 2 * 2.874 = 53.75; hand-over 5.748 + 2 * 2.874; training 2 * 2.874 + 1.863 = 7.61. Of the other
    # 72.39 GiB a token takes 10 * 151936 + 2 * 2048 * 36 + 17 * 2048 + 8 * 11008 = 1789696 B, in two rows: 21715.
    [peak] = cells(text, "node 0: GPUs 6-7")
    assert peak[2:] == ["53.7", "11.5", "7.6", "72.4", "21,715 of 32,768"]
    assert "node 0: 229.9 GiB" in text  # 8 * (22.99 + 5.748), the engines' weights while they sleep
    # 2 waves * 4 agents, each with a solution, an evaluation, a scoring = 24 calls, 6 of each agent; 64 * 4 episodes
    # make 1536, 24 updates of 64 rows, 744 in 31 steps; 1536 * 4096 and 1536 * 32768 tokens.
    assert "24 an episode: 8 solution, 8 evaluation, 8 scoring" in text
    assert step == ["agent-3", "1,536", "1,536", "24", "64", "6,291,456", "50,331,648", "744"]
    assert text.count("data/comas.jsonl is missing") == 1


def test_a_reference_model_has_its_place_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, str(L4), "training.kl_loss_coef=0.1", "openrlhf.ds.grad_accum_dtype=fp32")
    placed, states, _ = cells(text, "agent-0")
    assert placed[2] == "node 0: GPUs 0-1"
    # Split over its two ranks, too: 2 P / 2 = 2.874 GiB, and gradients of 4 P / 2 = 5.748 GiB.
    assert (states[4], states[8]) == ("5.7", "2.9")
    [peak] = cells(text, "node 0: GPUs 0-1")
    # Rollout 48 + 2.874 + 5.748 + 2.874; hand-over 5.748 for 48; training 2.874 + 5.748 + 1.863 + 2.874.
    assert peak[1:5] == ["agent-0: engine, actor, ref", "59.5", "17.2", "13.4"]


def test_nothing_heavy_is_imported() -> None:
    script = (
        "import sys; from marti_ext.cli import main; "
        f"assert main(['train', {str(L4)!r}, '--dry-run']) == 0; "
        "assert not {'ray', 'vllm', 'torch', 'transformers', 'deepspeed'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60, env={"PYTHONPATH": str(ROOT)})


@pytest.mark.parametrize("name", KNOWN)
def test_known_models_have_as_many_parameters_as_transformers_builds(name: str) -> None:
    values, parameters = dict(KNOWN[name][0]), KNOWN[name][1]
    assert counted(AutoConfig.for_model(values.pop("model_type"), **values)) == parameters


def test_a_folders_model_is_counted(tiny_model: Path) -> None:
    shape = model_shape(str(tiny_model))
    assert shape.parameters == sum(p.numel() for p in load_model(str(tiny_model)).parameters())
    assert (shape.layers, shape.width, shape.inner_width, shape.key_value_heads, shape.head_width) == (
        1,
        32,
        64,
        2,
        16,
    )


def test_a_model_that_is_nowhere_is_named() -> None:
    with pytest.raises(UserError, match=r"model 'no/such': no folder with a config\.json, and none from"):
        model_shape("no/such")


@pytest.mark.parametrize("text", ["[]", "3", '{"model_type": "llama", "num_attention_heads": 0}'])
def test_a_config_that_is_none_is_a_line_that_names_the_model(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=f"model '{tmp_path}'"):
        model_shape(str(tmp_path))


def test_adapters_are_counted_as_peft_makes_them(tiny_model: Path) -> None:
    for lora in (Lora(rank=4), Lora(rank=2, target_modules=["q_proj", "down_proj"])):
        adapted = add_adapters(load_model(str(tiny_model)), {"one": lora}, seed=0)
        trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
        assert adapter_parameters(str(tiny_model), lora) == trained


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_takes_what_its_paper_says(stage: int, gigabytes: float) -> None:
    # arXiv:1910.02054, figure 1: 7.5 billion parameters on 64 GPUs.
    states = model_states(7.5e9, ranks=64, stage=stage, adam_offload=False)
    assert states.all / 1e9 == pytest.approx(gigabytes, abs=0.05)
    assert states.host == 0
    assert states.gathered == (2e9 if stage == 3 else 0)


def test_an_offloaded_optimizer_is_on_the_host() -> None:
    # 12 * 1000 / 4 of optimizer and 4 * 1000 / 4 of gradients go; the bf16 gradients stay.
    states = model_states(1000, ranks=4, stage=2, adam_offload=True)
    assert (states.weights, states.gradients, states.optimizer, states.host) == (2000, 500, 0, 4000)


def test_tensor_parallel_engines_split_weights_and_heads() -> None:
    shape = model_shape("Qwen/Qwen2.5-3B-Instruct")
    one, four = (engine_memory(shape, ranks, 40 * GIB) for ranks in (1, 4))
    assert (one.weights, four.weights) == (2 * QWEN_3B, QWEN_3B / 2)
    # Two key-value heads over four ranks: each keeps one, 18432 B a token.
    assert four.cache_tokens == (40 * GIB - QWEN_3B // 2) // 18432


LINEAR = torch.nn.Linear.forward  # before other tests patch it for CPUs without bf16


def kept_per_token(layers: int, tokens: int = 256) -> float:
    """Bytes that torch keeps for the backward pass of a small bf16 Llama without its output layer, by token."""
    values = {"vocab_size": 64, "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4}
    built = AutoConfig.for_model("llama", num_hidden_layers=layers, **values)
    model: Any = AutoModelForCausalLM.from_config(built, dtype=torch.bfloat16, attn_implementation="sdpa")
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.model(torch.zeros(1, tokens, dtype=torch.long))
    return sum(t.untyped_storage().nbytes() for place, t in kept.items() if place not in own) / tokens


def test_a_layers_activations_are_nearly_what_torch_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Linear, "forward", LINEAR)
    shape = ModelShape(0, layers=1, width=256, inner_width=1024, key_value_heads=4, head_width=64, vocabulary=0)
    formula = activation_per_token(shape, checkpointing=False)
    assert formula == 17 * 256 + 8 * 1024
    # Its norms keep float32, too: 14 % more.
    assert kept_per_token(3) - kept_per_token(2) == pytest.approx(formula, rel=0.2)
    # One input of 2 * 256 B per layer, and one layer's whole.
    ten = replace(shape, layers=10)
    assert activation_per_token(ten, checkpointing=True) == 10 * 512 + formula


def config(colocate: str, **changes: Any) -> Config:
    own = [
        f"openrlhf.{group}.{key}={json.dumps(value)}"
        for group, flags in changes.items()
        for key, value in flags.items()
    ]
    return load_config(L4, [f"cluster.colocate={colocate}", *own])


def needs(one: Config) -> dict[str, float]:
    """{phase: GiB of the first group's GPUs}"""
    arguments = policy_arguments(one)
    placement = plan_placement(one, arguments, needs_reference=False)
    memory = {
        name: policy_memory(model_shape("Qwen2.5-3B-Instruct"), args, 80 * GIB) for name, args in arguments.items()
    }
    parts = [part for part in placement.parts if part.group == next(iter(placement.groups))]
    phases = peaks(parts, memory, one_trains=one.cluster.colocate == "all")
    return {phase: round(size / GIB, 2) for phase, size in phases.items()}


def test_phases_add_up_only_what_is_awake() -> None:
    # Per GPU, in GiB: bf16 weights 2.87, gradients 2.87, optimizer 17.24 (12 P / 2), gathered 1.86, vLLM 48 or 5.75.
    awake = config("per_policy", vllm={"enable_sleep": False})
    assert needs(awake) == {"rollout": 53.75, "hand-over": 53.75, "training": 48 + 7.61}
    # On the GPU, and asleep while engines sample: weights alone are left.
    on_gpu = {"adam_offload": False}
    assert needs(config("per_policy", ds=on_gpu)) == {"rollout": 50.87, "hand-over": 8.62, "training": 24.85}
    # Four policies in one place: four engines, and one after the other trains beside three that sleep.
    shared = needs(config("all", ds=on_gpu, vllm={"gpu_memory_utilization": 0.15}))
    by_hand = {"rollout": 4 * (12 + 2.874), "hand-over": 4 * (5.748 + 2.874), "training": 3 * 2.874 + 24.85}
    assert shared == pytest.approx(by_hand, abs=0.02)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # Stage 0: 16 P = 45.98 GiB, and no sleep helps.
        (
            "openrlhf.ds.zero_stage=0 openrlhf.ds.adam_offload=false cluster.gpu_memory=24",
            "policies.agent-0: training needs 46.0 GiB of a GPU (engine, actor), but cluster.gpu_memory is 24 GiB",
        ),
        # 0.08 * 80 - 5.748 = 0.652 GiB of cache.
        ("openrlhf.vllm.gpu_memory_utilization=0.08", "holds 18,990 tokens, but its context_window is 32,768"),
        ("cluster.gpus_per_node=4", "the run needs 8 GPUs (agent-0: 2, agent-1: 2, agent-2: 2, agent-3: 2), but the"),
        ("cluster.gpus_per_node=4", "the described cluster has 4 free"),
        # Three nodes of 3 have 9 GPUs, but a pair on one node only three times.
        ("cluster.nodes=3 cluster.gpus_per_node=3", "policies.agent-3: its actor needs 2 GPUs on one node"),
        ("cluster.nodes=3 cluster.gpus_per_node=3", "no node of the described cluster has more than 1"),
        ("cluster.gpus_per_node=0", "needs 2 GPUs on one node; the largest of the described cluster has 0"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in refusal(capsys, *arguments.split())


def test_engines_stay_on_one_node_and_groups_on_few() -> None:
    one = config("none", vllm={"num_engines": 2, "tensor_parallel_size": 3})
    placement = plan_placement(one, policy_arguments(one), needs_reference=False)
    places = assign(placement, [NodeResources(8, 64)] * 5)
    # The engines' six are first, each on a node of its own; the actors' pairs fill the nodes up.
    assert [told(places[f"agent-{n}.engine"]) for n in range(4)] == [f"node {n}: GPUs 0-5" for n in range(4)]
    assert [told(places[f"agent-{n}.actor"]) for n in range(4)] == [f"node {n}: GPUs 6-7" for n in range(4)]
    # On nodes of four, each engine of three has one of its own, and pairs find no room beside them.
    places = assign(placement, [NodeResources(4, 64)] * 10)
    assert places["agent-0.engine"] == [Place(node, gpu) for node in (0, 1) for gpu in range(3)]
    assert told(places["agent-0.engine"]) == "node 0: GPUs 0-2, node 1: GPUs 0-2"
    assert told(places["agent-1.actor"]) == "node 8: GPUs 2-3"
    assert told([Place(0, 0), Place(0, 2), Place(0, 3)]) == "node 0: GPUs 0, 2-3"


def test_a_fair_choice_of_speakers_has_its_fair_expectation() -> None:
    one = load_config(L4, ["workflow={name: comas}", "agents.0.trainable=false"])  # 8 rounds of one solver
    calls = count_calls(one, build_plugins(one)[0])
    assert calls.random
    assert set(calls.of.values()) == {2.0}  # 8 solutions, 8 evaluations, 8 scorings; 4 agents
    first, second, *_ = policy_budgets(one, calls)
    assert (first.calls, first.rows, first.updates) == (6 * 256, 0, 0)
    assert (second.rows, second.updates, second.generated_tokens) == (6 * 256, 24, 6 * 256 * 4096)


def test_a_workflow_that_fails_on_a_made_up_task_is_told(
    tiny_config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(tiny_config))
    text = shown(capsys, str(path), f"workflow={{name: {ROOT}/tests/plugins/failing.py:Failing}}")
    assert re.search(r"calls +not counted: the workflow fails on a made-up task: ValueError", text)


def test_a_local_run_gets_the_account_of_one_device(
    tiny_config: dict[str, Any], tiny_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(tiny_config))
    text = shown(capsys, str(path), "training.kl_loss_coef=0.1", "agents.1.trainable=false")
    # vanilla: each agent answers each of 6 tasks, in replies of 12 tokens; 6 rows make 2 updates of at most 4.
    assert cells(text, "a")[-1] == ["a", "6", "6", "2", "4", "72", "-", "4"]
    assert cells(text, "b")[-1] == ["b", "6", "0", "0", "4", "72", "-", "0"]
    one = check_config(tiny_config | {"agents": [{"name": "ada", "policy": "a"}, {"name": "bob", "policy": "b"}]})
    parameters = model_shape(str(tiny_model)).parameters
    plain = held(one, dict.fromkeys("ab", model_shape(str(tiny_model))), needs_reference=True)["a"]
    assert (plain.weights, plain.gradients, plain.optimizer, plain.reference) == (
        4 * parameters,
        4 * parameters,
        8 * parameters,
        4 * parameters,
    )
    lora = {"model": str(tiny_model), "lora": {"rank": 4}}
    shared = held(
        check_config(tiny_config | {"policies": {"a": lora, "b": lora}}),
        dict.fromkeys("ab", model_shape(str(tiny_model))),
        needs_reference=True,
    )
    own = adapter_parameters(str(tiny_model), Lora(rank=4))
    assert [one.weights for one in shared.values()] == [4 * (parameters + own), 4 * own]  # one base for both
    assert [(one.gradients, one.reference) for one in shared.values()] == [(4 * own, 0)] * 2


def test_the_papers_runs_differ_in_their_teams_alone() -> None:
    first, *others = (load_config(ROOT / f"configs/comas/{name}.yaml") for name in COMAS_TEAMS)
    own = {"run_dir", "agents", "policies", "cluster"}
    for other in others:
        assert other.model_dump(exclude=own) == first.model_dump(exclude=own)
        assert other.cluster.colocate == first.cluster.colocate
        for policy in other.policies.values():
            assert policy.model_dump(exclude={"model"}) == first.policies["agent-0"].model_dump(exclude={"model"})


SCRIPTS = sorted(set((ROOT / "examples/scripts").glob("*.sh")) - {ROOT / "examples/scripts/reproduce.sh"})


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_scripts_are_bash_and_name_configs_that_are_there(path: Path) -> None:
    subprocess.run(["bash", "-n", str(path)], check=True)
    named = re.findall(r"configs/[\w./-]+\.yaml", path.read_text())
    named += [f"configs/comas/{row}.yaml" for row in re.findall(r"^row (?:'.*?'|\S+) (\S+)", path.read_text(), re.M)]
    assert named
    assert all((ROOT / config).is_file() for config in named)

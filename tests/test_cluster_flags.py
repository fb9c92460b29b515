"""What a config becomes in OpenRLHF's arguments, and what is refused."""

from typing import Any

import pytest

from marti_ext.cluster.flags import CPU_DEFAULTS, policy_arguments
from marti_ext.cluster.placement import NodeResources, check, plan_placement
from marti_ext.config import Config
from marti_ext.config_file import check_config, merged
from marti_ext.errors import UserError


def config(**changes: Any) -> Config:
    values: dict[str, Any] = {
        "run_dir": "run",
        "backend": "openrlhf",
        "data": {"sources": [{"path": "tasks.jsonl"}]},
        "agents": [{"name": "ada", "policy": "a"}, {"name": "bob", "policy": "b"}],
        "policies": {"a": {"model": "one", "context_window": 512}, "b": {"model": "two", "context_window": 256}},
        "workflow": {"name": "comas"},
        "reward": {"name": "zero_sum"},
    }
    return check_config(merged(values, changes))


def test_flags_are_common_and_each_policy_says_what_differs() -> None:
    arguments = policy_arguments(
        config(
            openrlhf={"vllm": {"num_engines": 2}, "ds": {"zero_stage": 3}},
            policies={"b": {"openrlhf": {"actor": {"num_gpus_per_node": 2}}, "training": {"learning_rate": 3e-6}}},
        )
    )
    a, b = arguments["a"], arguments["b"]
    assert (a.vllm.num_engines, b.vllm.num_engines) == (2, 2)
    assert (a.ds.zero_stage, b.ds.zero_stage) == (3, 3)
    assert (a.actor.num_gpus_per_node, b.actor.num_gpus_per_node) == (1, 2)
    assert b.ref.num_gpus_per_node == 2  # as many as its actor
    assert (a.actor.adam.lr, b.actor.adam.lr) == (1e-6, 3e-6)
    assert (a.data.max_len, b.data.max_len) == (512, 256)
    assert a.algo.kl.init_coef == 0.0  # OpenRLHF's own default is 0.01
    assert a.vllm.enable_prefix_caching


def test_a_default_can_be_taken_away() -> None:
    arguments = policy_arguments(config(openrlhf={"vllm": {"enable_prefix_caching": False}}))
    assert not arguments["a"].vllm.enable_prefix_caching


def test_the_importance_sampling_correction_is_reached() -> None:
    flags = {"algo": {"advantage": {"is_correction_level": "token", "is_correction_threshold": [0.5, 2.0]}}}
    advantage = policy_arguments(config(openrlhf=flags))["a"].algo.advantage
    assert (advantage.is_correction_level, advantage.is_correction_threshold) == ("token", [0.5, 2.0])


def test_a_kl_loss_is_openrlhfs_with_our_numbers() -> None:
    kl = policy_arguments(config(training={"kl_loss_coef": 0.1, "kl_loss_estimator": "k3"}))["a"].algo.kl
    assert (kl.init_coef, kl.use_loss, kl.estimator) == (0.1, True, "k3")


def test_without_an_accelerator_gloo_and_sdpa_are_the_defaults() -> None:
    args = policy_arguments(config(), cpu=True)["a"]
    assert (args.vllm.sync_backend, args.ds.attn_implementation) == ("gloo", "sdpa")
    assert policy_arguments(config())["a"].vllm.sync_backend == "nccl"
    assert set(CPU_DEFAULTS) == {"ds", "vllm"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"openrlhf": {"vllm": {"nun_engines": 2}}}, "policies.a: unknown key openrlhf.vllm.nun_engines"),
        ({"openrlhf": {"actor": {"adam": {"lr": 1e-5}}}}, "say it under training.learning_rate"),
        ({"openrlhf": {"critic": {"max_norm": 1}}}, "REINFORCE++ has no critic"),
        ({"policies": {"b": {"openrlhf": {"ds": {"zero_stage": "x"}}}}}, "policies.b: openrlhf: argument --ds.zero"),
        ({"policies": {"b": {"lora": {}}}}, "policies.b.lora"),
        ({"policies": {"b": {"device": "cuda"}}}, "policies.b.device is for backend local"),
        ({"policies": {"b": {"precision": "fp32"}}}, "OpenRLHF trains in bf16"),
        ({"policies": {"b": {"context_window": None}}}, "policies.b.context_window is missing"),
        ({"openrlhf": {"vllm": {"num_engines": 0}}}, "num_engines is 0"),
        ({"training": {"batch_size": 6}, "openrlhf": {"actor": {"num_gpus_per_node": 4}}}, "training.batch_size 6"),
        ({"openrlhf": {"ds": {"packing_samples": True}, "data": {"max_images_per_prompt": 2}}}, "say it under data"),
    ],
)
def test_a_mistake_is_named_with_its_policy(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        policy_arguments(config(**changes))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_agents_that_share_a_policy_share_its_temperature() -> None:
    agents = [{"name": "ada", "policy": "a"}, {"name": "bob", "policy": "b"}]
    agents += [{"name": "cy", "policy": "b", "sampling": {"temperature": 0.5}}]  # type: ignore[dict-item]
    with pytest.raises(UserError, match=r"policies\.b: its trained agents sample at temperatures \[0\.5, 1\.0\]"):
        policy_arguments(config(agents=agents))


def placed(colocate: str, nodes: list[tuple[float, float]], **changes: Any) -> None:
    one = config(cluster={"colocate": colocate}, **changes)
    placement = plan_placement(one, policy_arguments(one), needs_reference=False)
    check(placement, [NodeResources(*node) for node in nodes], "the cluster")


def test_a_plan_that_fits_is_placed() -> None:
    placed("none", [(4, 4)])  # an actor and an engine of two policies
    placed("per_policy", [(2, 2)])
    placed("all", [(1, 1)])
    placed("none", [(2, 8), (2, 8)])


@pytest.mark.parametrize(
    ("colocate", "nodes", "words"),
    [
        ("none", [(3, 16)], "the run needs 4 GPUs (a: 1 for its engine, a: 1 for its actor"),
        ("none", [(3, 16)], "but the cluster has 3 free"),
        ("none", [(4, 2)], "the run needs 4 CPUs"),
        ("none", [(4, 0), (0, 4)], "4 places of one GPU and one CPU"),
        ("per_policy", [(1, 8)], "the run needs 2 GPUs (a: 1, b: 1), but the cluster has 1 free"),
        ("none", [], "the largest of the cluster has 0"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_with_both_numbers(
    colocate: str, nodes: list[tuple[float, float]], words: str
) -> None:
    with pytest.raises(UserError) as error:
        placed(colocate, nodes)
    assert words in str(error.value)


def test_parts_that_share_gpus_need_one_size() -> None:
    with pytest.raises(UserError, match="its actor needs 1 GPUs, but shares 2"):
        placed("per_policy", [(8, 8)], openrlhf={"vllm": {"num_engines": 2}})


def test_an_engine_wider_than_any_node_is_refused() -> None:
    with pytest.raises(UserError, match=r"policies\.a: its engine needs 4 GPUs on one node; the largest"):
        placed("none", [(3, 8)] * 4, openrlhf={"vllm": {"tensor_parallel_size": 4}})

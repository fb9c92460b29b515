"""The loop on tiny models: what a run leaves behind, that it can be repeated, stopped and resumed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rich.console import Console
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from marti_ext.config_file import check_config
from marti_ext.errors import UserError
from marti_ext.records import read_episodes, read_rows
from marti_ext.training.checkpoint import Checkpoints
from marti_ext.training.loop import train

QUIET = Console(file=StringIO())


def run(config: dict[str, Any], **changes: Any) -> Path:
    """The run folder after training."""
    train(check_config({**config, **changes}), QUIET)
    return Path({**config, **changes}["run_dir"])


def weights(run: Path, step: int, policy: str) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:05d}" / policy / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def record(run: Path) -> dict[str, bytes]:
    """Everything of a run that must be equal for equal runs, byte for byte."""
    files = [run / "metrics.jsonl", *run.glob("episodes-*.jsonl"), *run.glob("checkpoints/*/*/model.safetensors")]
    return {str(file.relative_to(run)): file.read_bytes() for file in files}


def test_a_run_leaves_config_episodes_metrics_timings_and_checkpoints_that_transformers_loads(
    tiny_config: dict[str, Any],
) -> None:
    folder = run(tiny_config)
    assert yaml.safe_load((folder / "config.yaml").read_text())["training"]["clip_eps"] == 0.2  # a default, resolved
    assert len(list(read_episodes(folder))) == 12  # 2 steps of 6 tasks
    rows = read_rows(folder / "metrics.jsonl")
    assert [(row["step"], row["policy"]) for row in rows] == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    assert [row["updates"] for row in rows] == [2] * 4  # 6 rows in batches of at most 4
    assert max(row["ratio_deviation"] for row in rows) < 1e-4
    assert len(read_rows(folder / "timings.jsonl")) == 2
    for policy in "ab":
        checkpoint = folder / "checkpoints" / "step-00002" / policy
        model = AutoModelForCausalLM.from_pretrained(checkpoint)
        ids = AutoTokenizer.from_pretrained(checkpoint)("12+3", return_tensors="pt").input_ids
        assert torch.isfinite(model(ids).logits).all()


def test_the_reward_rises_for_agents_that_can_earn_it(tiny_config: dict[str, Any]) -> None:
    training = {"learning_rate": 0.01, "batch_size": 16}
    rows = read_rows(run(tiny_config, steps=25, training=training, rollout={"tasks_per_step": 32}) / "metrics.jsonl")
    rewards = [row["reward"] for row in rows if row["policy"] == "a"]
    # 10 of 96 characters are digits: a random model earns about 0.1.
    assert sum(rewards[:3]) / 3 < 0.2
    assert sum(rewards[-3:]) / 3 > 0.5


def test_equal_configs_give_equal_runs_byte_for_byte(tiny_config: dict[str, Any], tmp_path: Path) -> None:
    one, other = (record(run(tiny_config, run_dir=str(tmp_path / name))) for name in ("one", "other"))
    assert one == other
    assert record(run(tiny_config, run_dir=str(tmp_path / "seed"), seed=1)) != one


def test_a_run_killed_with_signal_9_and_resumed_equals_one_never_stopped(
    tiny_config: dict[str, Any], tmp_path: Path
) -> None:
    reward = {**tiny_config["reward"], "seconds": 0.2}
    config = {**tiny_config, "steps": 6, "checkpoint": {"every": 2, "keep": 9}, "reward": reward}
    unbroken = record(run(config, run_dir=str(tmp_path / "unbroken")))
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**config, "run_dir": str(tmp_path / "killed")}))
    metrics = tmp_path / "killed" / "metrics.jsonl"
    for rows in (2, 6, 10):  # in steps 2, 4 and 6, each one step past a checkpoint or the start
        _kill_once_there_are(rows, metrics, [sys.executable, "-m", "marti_ext.cli", "train", str(file)])
    assert record(run(config, run_dir=str(tmp_path / "killed"))) == unbroken
    assert len(read_rows(tmp_path / "killed" / "timings.jsonl")) == 6


def _kill_once_there_are(rows: int, metrics: Path, command: list[str]) -> None:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not metrics.exists() or metrics.read_bytes().count(b"\n") < rows:
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_a_finished_run_is_not_trained_again_and_more_steps_go_on_from_it(
    tiny_config: dict[str, Any], tmp_path: Path
) -> None:
    folder = run(tiny_config)
    before = record(folder)
    assert record(run(tiny_config)) == before
    longer = record(run(tiny_config, steps=4))
    assert longer == record(run(tiny_config, steps=4, run_dir=str(tmp_path / "unbroken")))


def test_only_the_latest_checkpoints_are_kept(tiny_config: dict[str, Any]) -> None:
    folder = run(tiny_config, steps=5, checkpoint={"every": 2, "keep": 2})
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == ["step-00004", "step-00005"]


def test_of_older_checkpoints_the_weights_alone_are_kept_where_wanted(tiny_config: dict[str, Any]) -> None:
    limits = {"every": 1, "keep": 1, "keep_weights": 2}
    folder = run(tiny_config, steps=3, checkpoint=limits) / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["step-00003", "weights-00001", "weights-00002"]
    files = {path.relative_to(folder / "weights-00002").as_posix() for path in folder.glob("weights-00002/**/*")}
    assert {"a/model.safetensors", "b/config.json"} <= files
    assert not files & {"state.json", "rng.pt", "a/trainer.pt", "b/trainer.pt"}
    (folder / "weights-00002" / "state.json").touch()  # as a kill in the middle of it leaves
    shutil.copytree(folder / "weights-00001", folder / "weights-00001-mine")
    run(tiny_config, steps=4, checkpoint=limits)
    kept = ["step-00004", "weights-00001-mine", "weights-00002", "weights-00003"]
    assert sorted(path.name for path in folder.iterdir()) == kept
    assert not (folder / "weights-00002" / "state.json").exists()
    shutil.rmtree(folder / "step-00004")  # made again, its older ones, too
    run(tiny_config, steps=4, checkpoint=limits)
    assert sorted(path.name for path in folder.iterdir()) == [
        "step-00004",
        "weights-00001-mine",
        "weights-00002",
        "weights-00003",
    ]


def test_a_checkpoint_cut_short_by_a_kill_is_not_resumed_from(tiny_config: dict[str, Any]) -> None:
    folder = run(tiny_config)
    (folder / "checkpoints" / ".unfinished-step-00003" / "a").mkdir(parents=True)
    (folder / "checkpoints" / "step-00009" / "a").mkdir(parents=True)  # no state.json: not whole
    run(tiny_config, steps=3)
    assert (folder / "checkpoints" / "step-00003" / "state.json").is_file()
    assert not list((folder / "checkpoints").glob(".unfinished-*"))


def test_a_checkpoint_that_lacks_a_policy_is_refused_by_name(tiny_config: dict[str, Any]) -> None:
    folder = run(tiny_config)
    shutil.rmtree(folder / "checkpoints" / "step-00002" / "b")
    before = record(folder)
    with pytest.raises(UserError, match="step-00002 lacks policy 'b'"):
        run(tiny_config, steps=3)
    assert record(folder) == before


@pytest.mark.parametrize("file", ["a/trainer.pt", "b/model.safetensors", "rng.pt", "state.json", "a/config.json"])
def test_a_damaged_checkpoint_is_named_with_the_way_out(tiny_config: dict[str, Any], file: str) -> None:
    folder = run(tiny_config)
    damaged = folder / "checkpoints" / "step-00002" / file
    damaged.write_bytes(damaged.read_bytes()[:20])
    with pytest.raises(
        UserError, match=r"step-00002 cannot be read .*: remove this folder to go on from the one before"
    ):
        run(tiny_config, steps=3)
    shutil.rmtree(folder / "checkpoints" / "step-00002")
    run(tiny_config, steps=3)


def test_a_users_copy_of_a_checkpoint_is_neither_resumed_from_nor_removed(tiny_config: dict[str, Any]) -> None:
    folder = run(tiny_config, checkpoint={"every": 1, "keep": 1})
    checkpoints = folder / "checkpoints"
    shutil.copytree(checkpoints / "step-00002", checkpoints / "step-00002-best")
    run(tiny_config, checkpoint={"every": 1, "keep": 1}, steps=4)
    assert sorted(path.name for path in checkpoints.iterdir()) == ["step-00002-best", "step-00004"]


def test_the_latest_checkpoint_is_that_of_most_steps_not_the_last_by_name(tmp_path: Path) -> None:
    for steps in (99_999, 100_000):
        (tmp_path / f"step-{steps:05d}").mkdir()
        (tmp_path / f"step-{steps:05d}" / "state.json").write_text("{}")
    assert Checkpoints(tmp_path, 1).latest() == tmp_path / "step-100000"


def test_files_of_a_run_without_its_config_are_left_alone(tiny_config: dict[str, Any]) -> None:
    folder = run(tiny_config)
    (folder / "config.yaml").unlink()
    before = record(folder)
    with pytest.raises(UserError, match=r"holds .* but no config.yaml: choose another"):
        run(tiny_config)
    assert record(folder) == before


@pytest.mark.parametrize("reward", ["nan", "inf", "text"])
def test_a_reward_that_is_no_finite_number_is_named_and_the_episodes_are_kept(
    tiny_config: dict[str, Any], reward: str
) -> None:
    plugin = {"name": f"{Path(__file__).parent}/plugins/digits.py:OddReward", "gives": reward}
    with pytest.raises(UserError, match=r"OddReward gave ada's solution of task .* the reward"):
        run(tiny_config, reward=plugin)
    assert len(list(read_episodes(Path(tiny_config["run_dir"])))) == 6


def test_one_prompt_that_a_template_refuses_costs_one_episode(
    tiny_config: dict[str, Any], tiny_model: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    template = "{% if 'cinema' in messages[0]['content'] %}{{ raise_exception('no cinema') }}{% endif %}"
    (model / "chat_template.jinja").write_text(template + (model / "chat_template.jinja").read_text())
    policies = {name: {"model": str(model)} for name in "ab"}
    folder = run(
        tiny_config, policies=policies, rollout={"tasks_per_step": 60}, steps=1
    )  # all problems; one of a cinema
    [row, _] = read_rows(folder / "metrics.jsonl")
    assert (row["failed_episodes"], row["samples"]) == (1, 59)


def test_dropout_is_off_so_that_ratios_start_at_one_when_activations_are_recomputed(
    tiny_config: dict[str, Any], tiny_model: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    settings = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**settings, "attention_dropout": 0.3}))
    policies = {name: {"model": str(model)} for name in "ab"}
    training = {**tiny_config["training"], "gradient_checkpointing": True}
    folder = run(tiny_config, policies=policies, training=training, steps=1)
    assert max(row["ratio_deviation"] for row in read_rows(folder / "metrics.jsonl")) < 1e-4


def test_a_model_whose_file_lacks_weights_is_refused(
    tiny_config: dict[str, Any], tiny_model: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_model, tmp_path / "model")
    settings = json.loads((model / "config.json").read_text())
    settings = {**settings, "num_hidden_layers": 2, "layer_types": None}
    (model / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UserError, match=r"cannot load the model .* lacks the weight model\.layers\.1"):
        run(tiny_config, policies={name: {"model": str(model)} for name in "ab"})


def test_a_run_folder_of_another_config_is_refused_with_both_values(tiny_config: dict[str, Any]) -> None:
    run(tiny_config)
    with pytest.raises(UserError, match="seed = 0, not 5: choose another run_dir"):
        run(tiny_config, seed=5)
    with pytest.raises(UserError, match="holds a run already"):
        run(tiny_config, resume="never")


def test_a_policy_without_rewards_does_not_move(tiny_config: dict[str, Any], tiny_model: Path) -> None:
    folder = run(tiny_config, reward={**tiny_config["reward"], "agents": ["ada"]})
    untrained = load_file(tiny_model / "model.safetensors")
    assert same(weights(folder, 2, "b"), untrained)
    assert not same(weights(folder, 2, "a"), untrained)
    skipped = [row for row in read_rows(folder / "metrics.jsonl") if row["policy"] == "b"]
    assert [(row["skipped"], row["updates"], row["loss"]) for row in skipped] == [(True, 0, None)] * 2


def test_agents_of_one_policy_share_its_weights(tiny_config: dict[str, Any]) -> None:
    agents = [{"name": name, "policy": "a"} for name in ("ada", "bob")]
    folder = run(tiny_config, agents=agents, policies={"a": tiny_config["policies"]["a"]})
    rows = read_rows(folder / "metrics.jsonl")
    assert [(row["policy"], row["samples"]) for row in rows] == [("a", 12), ("a", 12)]


def test_adapters_on_one_base_train_apart_and_resume(tiny_config: dict[str, Any], tmp_path: Path) -> None:
    policies = {name: {**policy, "lora": {"rank": 4}} for name, policy in tiny_config["policies"].items()}
    folder = run(tiny_config, policies=policies)
    a, b = (load_file(folder / f"checkpoints/step-00002/{p}/adapter_model.safetensors") for p in "ab")
    assert a.keys() == b.keys()
    assert not same(a, b)
    AutoModelForCausalLM.from_pretrained(folder / "checkpoints/step-00002/a")
    run(tiny_config, policies=policies, steps=3)
    run(tiny_config, policies=policies, steps=3, run_dir=str(tmp_path / "unbroken"))
    files = [p / "checkpoints/step-00003/a/adapter_model.safetensors" for p in (folder, tmp_path / "unbroken")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_comas_runs_through_the_loop(tiny_config: dict[str, Any]) -> None:
    folder = run(tiny_config, workflow={"name": "comas", "rounds": 2}, reward={"name": "zero_sum"})
    for row in read_rows(folder / "metrics.jsonl"):
        # A random model gives no score: scorers get -1, nobody else anything; equal rewards move nothing.
        assert row["invalid_score_rate"] == 1.0
        assert row["advantage_std"] == 0.0
        assert row["grad_norm"] == 0.0


def test_comas_moves_the_weights_of_both_policies(tiny_config: dict[str, Any], tiny_model: Path) -> None:
    folder = run(tiny_config, workflow={"name": "comas", "rounds": 1})
    untrained = load_file(tiny_model / "model.safetensors")
    assert not any(same(weights(folder, 2, policy), untrained) for policy in "ab")


def test_kl_in_the_reward_and_as_a_loss_run_through_the_loop(tiny_config: dict[str, Any]) -> None:
    training = {**tiny_config["training"], "kl_loss_coef": 0.1}
    folder = run(tiny_config, experience={"name": "reinforce_pp", "kl_coef": 0.1}, training=training)
    rows = read_rows(folder / "metrics.jsonl")
    assert rows[0]["reference_kl"] is not None
    assert rows[-1]["reference_kl"] > 0


def test_a_run_whose_episodes_all_fail_stops_with_the_first_reason(tiny_config: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"all 6 episodes failed .*; the first: RuntimeError: boom"):
        run(tiny_config, workflow={"name": f"{Path(__file__).parent}/plugins/failing.py:Failing"})


def test_failed_episodes_are_counted_and_left_out(tiny_config: dict[str, Any]) -> None:
    workflow = {"name": f"{Path(__file__).parent}/plugins/failing.py:Failing", "every": 2}
    data = {**tiny_config["data"], "shuffle": False}  # word problems 1 to 6, of which 2, 4 and 6 fail
    folder = run(tiny_config, workflow=workflow, steps=1, data=data)
    [row, _] = read_rows(folder / "metrics.jsonl")
    assert (row["failed_episodes"], row["samples"]) == (3, 3)
    errors = [episode.error for episode in read_episodes(folder) if episode.status == "failed"]
    assert all("boom" in (error or "") for error in errors)


def test_a_config_that_failed_before_its_first_checkpoint_may_be_mended(tiny_config: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="episodes failed"):
        run(tiny_config, workflow={"name": f"{Path(__file__).parent}/plugins/failing.py:Failing"})
    folder = run(tiny_config)
    assert [row["step"] for row in read_rows(folder / "metrics.jsonl")] == [0, 0, 1, 1]


def test_two_runs_cannot_share_a_folder_at_the_same_time(tiny_config: dict[str, Any]) -> None:
    def intrude(steps_done: int, agents: Any) -> None:
        if steps_done == 1:
            with pytest.raises(UserError, match="in use by another process"):
                run(tiny_config)

    train(check_config(tiny_config), QUIET, intrude)


def test_every_step_leaves_a_line_with_the_rewards(tiny_config: dict[str, Any]) -> None:
    output = StringIO()
    train(check_config(tiny_config), Console(file=output, width=200))
    lines = [line for line in output.getvalue().splitlines() if line.startswith("step ")]
    assert len(lines) == 4
    assert "a: reward 0." in lines[0]
    assert "2 updates on 6 turns" in lines[0]


def test_metrics_can_be_read_by_any_json_reader(tiny_config: dict[str, Any]) -> None:
    lines = (run(tiny_config) / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line)["schema"] == 1 for line in lines)

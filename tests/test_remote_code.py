"""Code that comes with a model runs only where the config says so, wherever the model is loaded."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_models import tiny_llama

from marti_ext.backends.hf_model import load_policies
from marti_ext.backends.options import ModelOptions
from marti_ext.cluster.shapes import model_shape

CODE = """
from pathlib import Path
from transformers import LlamaForCausalLM
Path({marker!r}).touch()
class Own(LlamaForCausalLM):
    pass
"""


def carries_code(folder: Path) -> Path:
    """A Llama whose folder holds code of its own; it leaves a file beside the folder when it runs."""
    tiny_llama(folder)
    (folder / "own.py").write_text(CODE.format(marker=str(folder.with_name("ran"))))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModelForCausalLM": "own.Own"}}))
    return folder


def by_hf_backend(folder: Path, trusted: bool) -> None:
    load_policies({"p": ModelOptions(model=str(folder), trust_remote_code=trusted)}, seed=0)


def by_dry_run(folder: Path, trusted: bool) -> None:
    model_shape(str(folder), trust_remote_code=trusted)


def by_openrlhf(folder: Path, trusted: bool) -> None:
    from patches.cpu import activate_training

    activate_training()
    from openrlhf.models import Actor

    from patches.remote_code import remote_code

    with remote_code(trusted=trusted):
        Actor(str(folder), attn_implementation="eager")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))


@pytest.mark.parametrize("load", [by_hf_backend, by_openrlhf, by_dry_run])
def test_a_models_own_code_runs_only_where_it_is_trusted(load: Callable[[Path, bool], None], tmp_path: Path) -> None:
    if load is by_openrlhf and find_spec("openrlhf") is None:
        pytest.skip("openrlhf is not installed")
    folder = carries_code(tmp_path / "model")
    load(folder, False)
    assert not (tmp_path / "ran").exists()
    load(folder, True)
    assert (tmp_path / "ran").exists()


@pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed")
@pytest.mark.parametrize("trusted", [False, True])
def test_engines_are_told_what_the_config_says(trusted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from openrlhf.trainer.ray.vllm_engine import create_vllm_engines

    from marti_ext.cluster import actors

    told: list[dict[str, Any]] = []
    engine = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda **arguments: told.append(arguments)))
    monkeypatch.setattr(actors, "EngineActor", engine)
    monkeypatch.setattr(
        "openrlhf.trainer.ray.vllm_engine.RolloutRayActor", actors.engine_class(trust_remote_code=trusted)
    )
    place: Any = object()
    monkeypatch.setattr("openrlhf.trainer.ray.vllm_engine.PlacementGroupSchedulingStrategy", lambda **_: place)
    create_vllm_engines(1, 1, "model", 0, False, True, True, 64, shared_pg=place)
    assert [arguments["trust_remote_code"] for arguments in told] == [trusted]

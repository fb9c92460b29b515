"""The command line: bad input gets one line that names the thing and the fix, exit code 2, and nothing written."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from marti_ext.cli import main

ROOT = Path(__file__).parents[1]


@pytest.fixture
def config_file(tiny_config: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(tiny_config))
    return path


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line of a refused command."""
    assert main(arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("marti-ext: ")
    return lines[0].removeprefix("marti-ext: ")


OVERRIDES = [
    # what is wrong, override, what the line says
    ("an unknown key", "trainig.learning_rate=1", r"unknown key trainig: did you mean 'training'\?"),
    ("an unknown nested key", "training.learning_rat=1", r"training\.learning_rat: did you mean 'learning_rate'\?"),
    ("an unknown key of a policy", "policies.a.modle=x", r"unknown key policies\.a\.modle: did you mean 'model'\?"),
    ("an unknown key of an agent", "agents.0.nmae=x", r"unknown key agents\.0\.nmae: did you mean 'name'\?"),
    ("a wrong type", "steps=many", r"steps: .*integer.* \(got 'many'\)"),
    ("a number out of range", "training.clip_eps=0", r"training\.clip_eps: .*greater than 0 \(got 0\)"),
    ("an agent without policy", "agents.0.policy=zzz", r"agent 'ada' names policy 'zzz'"),
    ("a policy without agent", "policies.c.model=x", r"policy 'c' is used by no agent"),
    ("two agents of one name", "agents.1.name=ada", r"agent name 'ada' is used 2 times"),
    ("a name with a blank", "agents.0.name=ada l", r"agent name 'ada l': use 1 to 64 letters"),
    ("an unknown workflow", "workflow.name=coma", r"unknown workflow 'coma': did you mean 'comas'\?"),
    ("an unknown option of a reward", "reward.agnets=[]", r"unknown key reward\.agnets: did you mean 'agents'\?"),
    ("a wrong option of a reward", "reward.seconds=long", r"reward\.seconds: .*number.* \(got 'long'\)"),
    ("a plug-in file that is not there", "workflow.name=no/file.py:X", r"workflow file 'no/file\.py' does not exist"),
    ("a module that is not there", "workflow.name=no.module:X", r"workflow module 'no\.module' cannot be imported"),
    ("a class that is not there", "workflow.name=marti_ext.workflows.vanilla:Vanila", r"did you mean 'Vanilla'\?"),
    ("a class of another kind", "workflow.name=marti_ext.types:Task", r"is no Workflow; subclass"),
    ("a data file that is not there", "data.sources.0.path=no/such.jsonl", r"no/such\.jsonl"),
    ("a model that is not there", "policies.a.model=no/such/model", r"cannot load the model 'no/such/model'"),
    ("replies beyond the window", "sampling.max_tokens=4096", r"max_tokens is 4096, but the window .* 4096 tokens"),
    ("greedy training", "sampling.temperature=0", r"agent 'ada' cannot be trained at temperature 0"),
    ("a schedule without end", "training.schedule=cosine", r"cosine needs total_updates"),
    ("nobody to train", "agents.0.trainable=false agents.1.trainable=false", r"no agent is trainable"),
    ("no rounds", "workflow.name=comas workflow.rounds=0", r"rounds >= 1"),
    ("an unknown kind of task", "reward.name=verifier data.sources.0.label=answer data.sources.0.kind=art", r"'art'"),
    ("no label where one is needed", "reward.name=verifier data.sources.0.label=null", r"label"),
    ("no such column", "data.sources.0.prompt=questoin", r"no column 'questoin' \(nearest: 'question'\)"),
    ("an override without value", "steps", r"override 'steps': write key\.path=value"),
    ("a trainable agent without token ids", "policies.a={backend: scripted, replies: [x]}", r"reports no token ids"),
    ("a policy named like a path", "policies={../b: {model: x}}", r"policies\.\.\./b.*match pattern"),
    ("an endless learning rate", "training.learning_rate=.inf", r"training\.learning_rate: .*finite|less than"),
    ("moving averages of 1", "training.betas=[1,2]", r"training\.betas.*less than 1"),
    ("an endless temperature", "sampling.temperature=.nan", r"sampling\.temperature"),
    ("an endless option", "experience.name=reinforce_pp experience.kl_coef=.inf", r"experience\.kl_coef.*finite"),
    ("more tasks than there are", "rollout.tasks_per_step=61", r"tasks_per_step is 61, but there are 60 tasks"),
    ("a reserved template argument", "policies.a.template_arguments.tokenize=false", r"argument 'tokenize'"),
    ("a device that is not there", "policies.a.device=toaster", r"device 'toaster' is not to be had here"),
    ("modules that are not there", "policies.a.lora.target_modules=[nope]", r"policy 'a'.*nope"),
    ("a plug-in that breaks", f"workflow.name={ROOT}/tests/plugins/broken.py:X", r"RuntimeError: broken on purpose"),
    ("an abstract plug-in", "workflow.name=marti_ext.workflows.base:Workflow", r"abstract"),
    ("a policy that is no mapping", "policies.a=tiny", r"policies\.a: .*dictionary"),
    ("no run folder", "run_dir=", r"run_dir"),
    ("a negative KL coefficient", "experience.name=reinforce_pp experience.kl_coef=-1", r"kl_coef is -1"),
]


@pytest.mark.parametrize(("overrides", "says"), [row[1:] for row in OVERRIDES], ids=[row[0] for row in OVERRIDES])
def test_a_mistake_in_a_config_is_named_in_one_line(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], overrides: str, says: str
) -> None:
    words = re.split(r" (?=[a-z.0-9_]+=)", overrides)
    assert re.search(says, refusal(capsys, "train", str(config_file), *words))
    assert not (tmp_path / "run").exists()


def test_a_config_that_is_not_there_or_no_yaml_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cannot read the config" in refusal(capsys, "train", str(tmp_path / "none.yaml"))
    twice = "steps: 1\nsteps: 2"
    for text, says in (
        (twice, "'steps' stands twice"),
        ("a: [", "is not YAML"),
        ("- 1", "expected a mapping"),
        ("{}", "run_dir is missing"),
    ):
        (tmp_path / "bad.yaml").write_text(text)
        assert says in refusal(capsys, "train", str(tmp_path / "bad.yaml"))


def test_an_empty_data_set_is_named(config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    line = refusal(capsys, "train", str(config_file), f"data.sources.0.path={tmp_path}/empty.jsonl")
    assert "empty.jsonl" in line
    assert not (tmp_path / "run").exists()


def test_a_row_without_a_label_is_named_by_file_and_line(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"question": "1+1?", "answer": "2"}, {"question": "1+2?"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = f"data.sources=[{{path: {tmp_path}/rows.jsonl, prompt: question, label: answer}}]"
    line = refusal(capsys, "train", str(config_file), source, "reward={name: verifier}")
    assert "rows.jsonl" in line
    assert "line 2" in line


def test_a_run_folder_that_cannot_be_written_is_named(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    line = refusal(capsys, "train", str(config_file), f"run_dir={tmp_path}/file/run")
    assert re.search(r"cannot write to the run folder '.*file/run': Not a directory; choose another", line)


def test_an_endpoint_that_refuses_is_named(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = "policies={a: {backend: openai, model: m, base_url: 'http://127.0.0.1:9/v1'}}"
    agents = "agents=[{name: ada, policy: a, trainable: false}]"
    line = refusal(capsys, "rollout", str(config_file), policy, agents)
    assert "http://127.0.0.1:9/v1" in line
    assert not (tmp_path / "run").exists()


def test_train_writes_a_run_that_report_shows(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(config_file), "steps=1"]) == 0
    run = re.findall(r"marti-ext report (\S+)", capsys.readouterr().out)[0]
    assert main(["report", run, "--show", "1"]) == 0
    shown = capsys.readouterr().out
    assert "reward, solution" in shown
    assert len(list(Path(run).glob("plots/*.png"))) >= 5


def test_report_of_a_folder_without_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "metrics.jsonl" in refusal(capsys, "report", str(tmp_path))


def test_rollout_shows_episodes_and_trains_nothing(config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = "policies={a: {backend: scripted, replies: ['It is \\boxed{7}.']}}"
    agents = "agents=[{name: ada, policy: a, trainable: false}]"
    assert main(["rollout", str(config_file), "--show", "2", policy, agents]) == 0
    output = capsys.readouterr().out
    assert output.count("status: ok") == 2
    assert "It is \\boxed{7}." in output
    assert "6 ok" in output


def test_help_documents_every_key_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    assert "training.clip_eps = 0.2" in text
    assert "How far the ratio of new to old probability may go" in text
    assert "policies.*.lora.rank = 16" in text
    assert "comas.rounds = 8" in text


def test_importing_the_package_and_printing_help_load_no_heavy_module() -> None:
    code = (
        "import sys, contextlib, io, marti_ext, marti_ext.cli\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "    marti_ext.cli.main(['train', '--help'])\n"
        "print(sorted({'torch', 'transformers', 'ray', 'vllm', 'sympy', 'matplotlib'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"

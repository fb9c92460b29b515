"""Whole evaluations: with replies written beforehand, and over a real endpoint that is slow, dies or comes back."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from endpoint import Answer, Endpoint, refusal, reply, serve

from evaluation.benchmarks import BENCHMARKS
from evaluation.cli import main
from evaluation.load import FIXTURES
from evaluation.outcome import Outcome
from evaluation.run_file import EvaluationFolder
from evaluation.runner import grade_episode
from evaluation.summary import summaries
from marti_ext.records import read_rows
from marti_ext.types import Completion, Episode, Task, Turn
from marti_ext.verifiers.kinds import verifier_for

SETUPS = ["vanilla", "consistency", "vote", "autogen", "debate"]
CALLS = {"vanilla": 1, "consistency": 6, "vote": 5, "autogen": 5, "debate": 7}


def run(out: Path, *options: str) -> int:
    return main(["run", "--data-dir", str(FIXTURES), "--out", str(out), *options])


def outcomes(out: Path) -> list[Outcome]:
    return EvaluationFolder(out).outcomes()


@pytest.mark.parametrize("setup", SETUPS)
def test_a_model_that_knows_the_answers_is_right_everywhere_and_one_that_does_not_nowhere(
    setup: str, tmp_path: Path
) -> None:
    for model, value in (("gold", 1.0), ("wrong", 0.0)):
        assert run(tmp_path / model, "--model", model, "--benchmarks", ",".join(BENCHMARKS), "--setups", setup) == 0
        found = outcomes(tmp_path / model)
        assert len(found) == 5 * len(BENCHMARKS)
        assert [o for o in found if any(s.value != value or s.status != "ok" for s in o.scores.values())] == []
        assert {o.calls for o in found} == {CALLS[setup]}


def test_the_result_says_what_was_asked_and_shows_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k", "--seeds", "2", "--temperature", "0.5") == 0
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["identity"]["sampling"] == {"temperature": 0.5, "top_p": 1.0, "max_tokens": 2048}
    data = (FIXTURES / "gsm8k.jsonl").read_bytes()
    assert facts["benchmarks"]["gsm8k"]["sha256"] == hashlib.sha256(data).hexdigest()
    assert {o.seed for o in outcomes(tmp_path)} == {0, 1}
    assert "100.0" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "accuracy.png").stat().st_size > 1000
    capsys.readouterr()
    assert main(["show", str(tmp_path), "-n", "1"]) == 0
    shown = capsys.readouterr().out
    for part in ("user: A baker fills", "The answer is \\boxed{26}", "accuracy: 1 (ok)", "extracted: '26'"):
        assert part in shown


def test_a_second_run_asks_nothing_and_further_setups_are_added(tmp_path: Path) -> None:
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k") == 0
    before = (tmp_path / "gsm8k/vanilla/seed-0.jsonl").read_bytes()
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k,mmlu", "--setups", "vanilla,vote") == 0
    assert (tmp_path / "gsm8k/vanilla/seed-0.jsonl").read_bytes() == before
    assert len(outcomes(tmp_path)) == 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--benchmarks", "gsm8"], "unknown benchmark 'gsm8': did you mean 'gsm8k'?"),
        (["--benchmarks", "gsm8k", "--setups", "debat"], "unknown workflow 'debat': did you mean 'debate'?"),
        (["--benchmarks", "gsm8k,gsm8k"], "names one twice"),
        (["--benchmarks", "gsm8k", "--agents", "a=gold"], "give either --model M or --agents"),
        (["--benchmarks", "gsm8k", "--temperature", "-1"], "--temperature"),
        (["--benchmarks", "gsm8k", "--set", "nonsense"], "write key.path=value"),
        (["--benchmarks", "gsm8k", "--set", "device=cpu"], "has no settings"),
    ],
)
def test_wrong_options_give_one_line_that_names_the_fix(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "out", "--model", "gold", *options) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_missing_column_is_named_with_the_columns_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gsm8k.jsonl").write_text('{"question": "2+2?", "anwser": "#### 4"}\n')
    code = main(["run", "--data-dir", str(tmp_path), "--model", "gold", "--benchmarks", "gsm8k"])
    assert code == 2
    error = capsys.readouterr().err
    assert "gsm8k.jsonl, line 1: no column 'answer' (nearest: 'anwser'); the row has 'question', 'anwser'" in error


def test_a_folder_of_another_run_is_refused_and_left_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k") == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert run(tmp_path, "--model", "wrong", "--benchmarks", "gsm8k") == 2
    assert "holds an evaluation with agents = {'agent': 'gold'}, not {'agent': 'wrong'}" in capsys.readouterr().err
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k", "--sample", "3") == 2
    assert "gsm8k sample = None, not 3" in capsys.readouterr().err
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    other = tmp_path / "gsm8k/vanilla/seed-1.jsonl"
    other.write_bytes((tmp_path / "gsm8k/vanilla/seed-0.jsonl").read_bytes())
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k", "--seeds", "2") == 2
    assert "seed-1.jsonl holds a line of another run" in capsys.readouterr().err


def test_several_models_take_turns(tmp_path: Path) -> None:
    agents = ["--agents", "a=gold,b=wrong", "--benchmarks", "gsm8k", "--setups", "vote,vanilla"]
    assert run(tmp_path, *agents) == 0
    # Of five votes a has three.
    assert {o.score.value for o in outcomes(tmp_path) if o.setup == "vote"} == {1.0}
    assert {o.calls for o in outcomes(tmp_path) if o.setup == "vanilla"} == {2}


def answer_by_hash(body: dict[str, Any], seconds: float = 0.0) -> Answer:
    """The same reply to the same request: right for about half of the fixture's additions."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    made = reply(f"\\boxed{{{digest[0] % 50}}}", usage=usage)
    return Answer(body=made.body, seconds=seconds)


def endpoint_options(state: Endpoint) -> list[str]:
    setups = ["--benchmarks", "gsm8k,math500", "--setups", "vanilla,consistency", "--concurrency", "2"]
    return ["--model", "m", "--base-url", state.url, "--set", "max_retries=0", *setups]


def start(out: Path, options: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "evaluation", "run", "--data-dir", str(FIXTURES), "--out", str(out), *options]
    return subprocess.Popen(command, env={**os.environ, "OPENAI_API_KEY": "k"}, stdout=subprocess.DEVNULL)


def table_of(out: Path) -> list[str]:
    """summary.csv without the seconds."""
    return [line.rpartition(",")[0] for line in (out / "summary.csv").read_text().splitlines()]


def asked(state: Endpoint) -> list[str]:
    return [json.dumps(body, sort_keys=True) for path, body, _, _ in state.seen if path.endswith("completions")]


@pytest.mark.slow
def test_after_kill_9_no_finished_request_is_asked_again_and_the_table_is_the_same(tmp_path: Path) -> None:
    with serve(Endpoint(script=answer_by_hash)) as state:
        assert start(tmp_path / "unbroken", endpoint_options(state)).wait(60) == 0
        whole = asked(state)
    assert len(whole) == len(set(whole)) == 2 * 5 * (1 + 6)

    with serve(Endpoint(script=lambda body: answer_by_hash(body, seconds=0.05))) as state:
        process = start(tmp_path / "broken", endpoint_options(state))
        while len(asked(state)) < 25:
            time.sleep(0.01)
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(0.2)  # what was on its way has arrived
        first = asked(state)
        kept = sum(len(read_rows(p)) for p in (tmp_path / "broken").rglob("*.calls.jsonl"))
        kept += sum(len(r["episode"]["turns"]) for g in EvaluationFolder(tmp_path / "broken").groups()
                    for r in g.rows().values() if not g.journal_path.exists())  # fmt: skip
        assert kept >= len(first) - 10  # two tasks at once, each with five samples on their way
        assert start(tmp_path / "broken", endpoint_options(state)).wait(60) == 0
        again = set(first) & set(asked(state)[len(first) :])
    assert len(again) <= len(first) - kept
    assert table_of(tmp_path / "broken") == table_of(tmp_path / "unbroken")
    assert not list((tmp_path / "broken").rglob("*.calls.jsonl"))


@pytest.mark.slow
def test_failed_requests_are_counted_apart_and_asked_again_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    down = True

    def script(body: dict[str, Any]) -> Answer:
        bad = down and "baker" in body["messages"][0]["content"]
        return refusal(500, "no room") if bad else answer_by_hash(body)

    with serve(Endpoint(script=script)) as state:
        options = ["--model", "m", "--base-url", state.url, "--set", "max_retries=1", "--benchmarks", "gsm8k"]
        assert run(tmp_path, *options) == 0
        assert "1 tasks FAILED" in capsys.readouterr().out
        assert sorted(o.score.status for o in outcomes(tmp_path)) == ["failed", "ok", "ok", "ok", "ok"]
        down = False
        before = len(asked(state))
        assert run(tmp_path, *options) == 0
        assert len(asked(state)) == before + 1
        assert {o.score.status for o in outcomes(tmp_path)} == {"ok"}


@pytest.mark.slow
def test_an_endpoint_that_dies_half_way_stops_the_run_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with serve(Endpoint(script=answer_by_hash)) as state:
        options = ["--model", "m", "--base-url", state.url, "--set", "max_retries=0", "--benchmarks", "gsm8k"]
        assert run(tmp_path, *options) == 0
    # Nobody listens there any more.
    assert run(tmp_path, *options, "--seeds", "2") == 2
    assert "cannot be reached" in capsys.readouterr().err
    assert len(outcomes(tmp_path)) == 5

    refused = 0

    def dying(body: dict[str, Any]) -> Answer:
        nonlocal refused
        refused += 1
        return answer_by_hash(body) if refused <= 7 else refusal(503, "gone")

    with serve(Endpoint(script=dying)) as state:
        options[3] = state.url
        options += ["--seeds", "8", "--concurrency", "1"]
        out = tmp_path / "dying"
        assert run(out, *options) == 2
        error = capsys.readouterr().err
    assert "20 episodes in a row failed" in error
    assert "the same command goes on" in error
    assert sum(o.score.status == "ok" for o in outcomes(out)) == 7


def test_code_runs_only_behind_every_layer_if_that_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from marti_ext.verifiers import sandbox

    verifier_for("code")  # it keeps its own: only what the command asks about is another
    thin = sandbox.Sandbox(layers=frozenset({"limits"}))
    monkeypatch.setattr(sandbox, "SANDBOX", thin)
    try:
        options = ["--model", "gold", "--benchmarks", "humaneval"]
        assert run(tmp_path / "out", *options, "--require-sandbox") == 2
        assert "--require-sandbox: namespaces (missing: switched off), landlock" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
        assert run(tmp_path / "out", *options) == 0
        assert "seccomp missing: switched off" in capsys.readouterr().out
        assert "seccomp missing: switched off" in (tmp_path / "out/summary.md").read_text()
    finally:
        thin.close()


def test_a_set_up_of_the_same_name_but_another_kind_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = """
from dataclasses import dataclass
from marti_ext.workflows.vanilla import Vanilla

@dataclass(frozen=True)
class Mine(Vanilla):
    \"\"\"As vanilla.\"\"\"
"""
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(code)
    options = ["--model", "gold", "--benchmarks", "gsm8k", "--setups"]
    assert run(tmp_path / "out", *options, f"{tmp_path}/a.py:Mine") == 0
    assert {o.setup for o in outcomes(tmp_path / "out")} == {"Mine"}
    assert run(tmp_path / "out", *options, f"{tmp_path}/b.py:Mine") == 2
    assert "set-up Mine = " in capsys.readouterr().err
    # The paper's AutoGen forbids code; the same name with other options would mix two set-ups.
    assert run(tmp_path / "out", *options, "autogen") == 0
    assert run(tmp_path / "out", *options, "paper") == 2
    assert "forbid_code=False" in capsys.readouterr().err


def test_what_overran_its_deadline_is_asked_again_and_what_could_not_be_graded_is_graded_again(tmp_path: Path) -> None:
    options = ["--model", "gold", "--benchmarks", "gsm8k,humaneval"]
    assert run(tmp_path, *options, "--timeout", "1e-9") == 0
    assert {o.score.status for o in outcomes(tmp_path)} == {"timeout"}
    assert run(tmp_path, *options) == 0
    assert {o.score.value for o in outcomes(tmp_path)} == {1.0}
    group = EvaluationFolder(tmp_path).group("humaneval", "vanilla", 0)
    episode, outcome = next(group.episodes())
    failed = {measure: replace(score, value=0.0, status="failed") for measure, score in outcome.scores.items()}
    group.append(episode, replace(outcome, scores=failed))
    assert [o.score.status for o in group.outcomes()].count("failed") == 1
    assert run(tmp_path, "--model", "gold", "--benchmarks", "humaneval") == 0
    assert {o.score.value for o in group.outcomes()} == {1.0}


@pytest.mark.parametrize(
    ("text", "cut", "status", "value"),
    [
        ("\\boxed{26}", True, "ok", 1.0),
        ("It is 26 and", True, "truncated", 0.0),  # right only by chance
        ("It is 27 and", True, "truncated", 0.0),
        ("The answer is 26.", False, "ok", 1.0),
        ("I am not sure", True, "truncated", 0.0),
        ("I am not sure", False, "unparsed", 0.0),
    ],
)
def test_a_number_of_a_cut_reply_stands_in_for_no_answer(text: str, cut: bool, status: str, value: float) -> None:
    task = Task("t", "?", "26")
    turn = Turn("a", "a", "solution", 0, (), Completion(text, "length" if cut else "stop"), text=text)
    score = grade_episode(BENCHMARKS["gsm8k"], "vanilla", 0, Episode(task, turns=[turn], answer=text)).score
    assert (score.status, score.value) == (status, value)


def test_an_unfinished_run_says_what_is_missing(tmp_path: Path) -> None:
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k") == 0
    file = tmp_path / "gsm8k/vanilla/seed-0.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:3]))
    [summary] = summaries(EvaluationFolder(tmp_path))
    assert (summary.tasks, summary.missing) == (3, 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--benchmark", "gsm8"], "did you mean 'gsm8k'?"), (["--status", "rong"], "did you mean 'wrong'?"),
     (["--task", "none"], "no such episode")],
)  # fmt: skip
def test_show_names_what_is_not_there(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k") == 0
    assert main(["show", str(tmp_path), *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"scores": [{', b'"scores": [], "old": [{'),
        (b'"value": 1.0', b'"value": 7.0'),
        (b'"value": 1.0', b'"value": "x"'),
        (b'"status": "ok", "value"', b'"status": "zzz", "value"'),
        (b'"calls": 1', b'"call": 1'),
    ],
)
def test_a_line_that_is_no_result_is_named(
    before: bytes, after: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k") == 0
    file = tmp_path / "gsm8k/vanilla/seed-0.jsonl"
    assert before in file.read_bytes()
    file.write_bytes(file.read_bytes().replace(before, after, 1))
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k") == 2
    assert "seed-0.jsonl: the line of task" in capsys.readouterr().err


def test_results_without_their_run_file_are_nobodys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--model", "gold", "--benchmarks", "gsm8k") == 0
    (tmp_path / "run.json").unlink()
    assert run(tmp_path, "--model", "wrong", "--benchmarks", "gsm8k") == 2
    assert "but no run.json" in capsys.readouterr().err
    (tmp_path / "run.json").write_text('{"identity": {}, "benchmarks": {"gsm8k": 5}, "recorded": {"setups": {}}}')
    assert main(["table", "comas-table1", f"Untrained={tmp_path}"]) == 2
    assert "is not what an evaluation wrote" in capsys.readouterr().err


def test_a_reply_that_was_withheld_is_failed_and_a_run_of_failures_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with serve(Endpoint(answers=[reply("", "content_filter", usage={"prompt_tokens": -5})])) as state:
        options = ["--model", "m", "--base-url", state.url, "--benchmarks", "gsm8k"]
        assert run(tmp_path, *options) == 2
    assert "every task failed" in capsys.readouterr().err
    assert {o.score.status for o in outcomes(tmp_path)} == {"failed"}
    assert {o.prompt_tokens for o in outcomes(tmp_path)} == {None}

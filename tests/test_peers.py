"""Our graders beside those of lm-evaluation-harness: each disagreement on made-up replies has a known reason."""

import json
import sys
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path

import peer_replies
import pytest
from rich.console import Console

from evaluation.benchmarks import find_benchmark
from evaluation.cli import main
from evaluation.load import FIXTURES, load_benchmark
from evaluation.peers.lm_eval import Graded, compare, compare_run
from evaluation.peers.verdict import Agreement, Verdict, agreement_table, agreements
from evaluation.run_file import EvaluationFolder
from marti_ext.errors import UserError
from marti_ext.types import Score, Task


@pytest.fixture
def lm_eval() -> None:
    """Skips where the extra `peers` is not installed."""
    pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'marti_ext[peers]'")
    if not version("antlr4-python3-runtime").startswith("4.11"):
        pytest.skip("lm_eval's Minerva grader needs antlr4-python3-runtime 4.11: pip install 'marti_ext[peers]'")


ANY: frozenset[str] = frozenset()
LISTS = {"3, 2", r"\{2, 3\}", "2; 3"}
INTERVALS = {r"x \in (-\infty,4]", r"(-\infty, \frac{8}{2}]"}
SUMS = {"a^2 + 4\\cdot a + 4", "(a+2)^2"}

# Grader, who gives more (unread: it finds no answer, and we a right one), in which forms of replies, and why.
KNOWN: list[tuple[str, str, set[str] | frozenset[str], str]] = [
    ("gsm8k strict-match", "unread", ANY, "reads nothing but ####, which our prompt does not ask for"),
    ("gsm8k-cot-llama strict-match", "unread", ANY, "reads nothing but 'The final answer is', not asked for either"),
    ("gsm8k flexible-extract", "ours", {"zeros", "money-plain"}, "compares texts: 26.00 is not 26"),
    ("gsm8k flexible-extract", "ours", {"fraction"}, "takes the last number, here the 2 below the line"),
    ("gsm8k flexible-extract", "ours", {"remark"}, "takes the last number, here of a closing remark"),
    ("gsm8k flexible-extract", "theirs", {"wrong-remark"}, "takes the last number, which the reply rejects"),
    ("gsm8k flexible-extract", "theirs", {"cut", "cut-thought"}, "takes a number that is cut or only thought"),
    (
        "hendrycks_math500 exact_match",
        "ours",
        {r"\frac{10}{12}", "0.8333333333", r"2 \text{ and } 3", "4 + 4a + a^2", "a^{2} + 4 a + 2^2", "5^{1/2}"}
        | {r"\sqrt{1 + 4}", r"\frac{5}{\sqrt{5}}"}
        | LISTS
        | INTERVALS
        | SUMS,
        "compares texts after respelling, so it knows no algebra and no order of a list",
    ),
    ("minerva_math500 exact_match", "ours", {"0.8333333333"}, "wants decimals exact, we to ten digits"),
    ("minerva_math500 exact_match", "ours", LISTS, "reads of a list only its first number"),
    ("minerva_math500 exact_match", "theirs", {"wrong 2", "wrong 2,4", "wrong 2,3,5"}, "the same"),
    (
        "minerva_math500 exact_match",
        "ours",
        INTERVALS | {r"\left(-\infty, 4\right]"},
        "compares intervals as texts, for its parser knows none",
    ),
    (
        "minerva_math500 exact_match",
        "ours",
        SUMS | {"a^2+4a+4"},
        "takes the variable a before a blank for the article, and removes it from the label",
    ),
    ("minerva_math500 math_verify", "theirs", {"cut"}, "reads a box that the reply's end cuts off"),
    ("aime* exact_match", "ours", {"hash", "final", "bold", "last-number"}, "reads only boxes and dollars"),
    ("aime* exact_match", "ours", {"zeros", "text", "fraction", "padded"}, "compares texts"),
    ("default f1", "ours", ANY, "takes 'Mills, Otto' for one span"),
    ("default em", "ours", ANY, "the same"),
    ("*_cot_zeroshot strict-match", "ours", {"excluded", "revised"}, "takes the rest of the line for the letter"),
    ("gpqa_* strict-match", "unread", ANY, "reads nothing but 'The answer is'"),
    ("mmlu_* strict-match", "unread", ANY, "reads nothing but 'The answer is' and its like"),
    ("mmlu_cot_llama strict_match", "unread", ANY, "reads nothing but 'best answer is'"),
    ("*_cot_zeroshot flexible-extract", "unread", ANY, "reads a letter only in brackets or behind a colon"),
    ("*_cot_zeroshot flexible-extract", "ours", {"excluded", "first-excluded"}, "takes the last letter in brackets"),
    (
        "*_cot_zeroshot flexible-extract",
        "theirs",
        {"wrong-excluded"},
        "takes the last letter in brackets, which the reply rejects",
    ),
    (
        "*_cot_zeroshot flexible-extract",
        "theirs",
        {"in-words"},
        "takes an option that occurs for the answer; we guess no letter",
    ),
    (
        "*_cot_zeroshot flexible-extract",
        "ours",
        {"option-box"},
        "loses the signs of a formula, so that the option is not found",
    ),
]


def test_the_stored_replies_are_those_of_their_script() -> None:
    stored = [json.loads(line) for line in peer_replies.FILE.read_text().splitlines()]
    assert stored == list(peer_replies.replies()), "run python tests/peer_replies.py"


@pytest.mark.slow
@pytest.mark.usefixtures("lm_eval")
def test_every_disagreement_on_the_stored_replies_has_a_known_reason() -> None:
    replies, forms = stored_replies()
    used = set()
    for verdict in compare(replies):
        if not verdict.agree:
            form = forms[verdict.benchmark, verdict.task, verdict.reply]
            reasons = [known for known in KNOWN if fits(known, verdict, form)]
            assert len(reasons) == 1, (form, verdict, reasons)
            used.add(KNOWN.index(reasons[0]))
    assert [known for place, known in enumerate(KNOWN) if place not in used] == []


def stored_replies() -> tuple[list[Graded], dict[tuple[str, str, str], str]]:
    """The stored replies with our verdicts, and the form of each."""
    replies, forms = [], {}
    tasks: dict[str, dict[str, Task]] = {}
    for line in peer_replies.FILE.read_text().splitlines():
        row = json.loads(line)
        name, benchmark = row["benchmark"], find_benchmark(row["benchmark"])
        if name not in tasks:
            loaded = load_benchmark(benchmark, data_dir=FIXTURES, sample=None, sample_seed=0)
            tasks[name] = {task.id: task for task in loaded.tasks}
        task = tasks[name][row["id"]]
        replies.append(Graded(name, task, row["reply"], benchmark.verifier.grade(task, row["reply"])))
        forms[name, task.id, row["reply"]] = row["form"]
    return replies, forms


def fits(known: tuple[str, str, set[str] | frozenset[str], str], verdict: Verdict, form: str) -> bool:
    grader, who, known_forms, _ = known
    higher = "unread" if verdict.theirs is None else "ours" if verdict.ours.value > verdict.theirs else "theirs"
    return fnmatchcase(verdict.grader, grader) and who == higher and (not known_forms or form in known_forms)


@pytest.mark.usefixtures("lm_eval")
def test_a_run_is_compared_and_its_disagreements_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", "--data-dir", str(FIXTURES), "--out", str(tmp_path / "run"), "--model", "gold"]
    assert main([*run, "--benchmarks", "gsm8k,drop,humaneval"]) == 0
    assert main(["compare", "lm-eval", str(tmp_path / "run"), "--out", str(tmp_path / "apart.jsonl")]) == 0
    lines = [json.loads(line) for line in (tmp_path / "apart.jsonl").read_text().splitlines()]
    # The replies box their answers: no #### and no "final answer" in 5 of them; and one DROP answer has two spans.
    assert [line["grader"] for line in lines] == [
        *["gsm8k strict-match"] * 5,
        *["gsm8k-cot-llama strict-match"] * 5,
        "default f1",
        "default em",
    ]
    assert lines[0]["theirs"] is None
    assert lines[0]["reply_tail"] == "This is right.\n\nThe answer is \\boxed{26}."
    assert lines[-2]["read"] == "Mills, Otto"
    assert lines[-2]["ours"] == {"value": 1.0, "extracted": "Mills, Otto", "status": "ok"}
    assert lines[-2]["theirs"] == 0.33
    assert "12 disagreements" in capsys.readouterr().out


def test_a_missing_package_and_a_run_without_such_benchmarks_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.api.task", None)
    task = Task("1", "2 + 2?", "#### 4")
    with pytest.raises(UserError, match=r"pip install 'marti_ext\[peers\]'"):
        list(compare([Graded("gsm8k", task, "4", {"accuracy": Score(1.0, "4")})]))
    run = ["run", "--data-dir", str(FIXTURES), "--out", str(tmp_path), "--model", "gold", "--benchmarks", "humaneval"]
    assert main(run) == 0
    with pytest.raises(UserError, match="no graded replies to gsm8k, math500"):
        compare_run(EvaluationFolder(tmp_path), None, Console())


def test_agreements_count_values_and_answers_that_only_we_find() -> None:
    def verdict(ours: float, theirs: float | None) -> Verdict:
        return Verdict("drop", "1", "f1", Score(ours), theirs, "", "")

    # Agreeing: both right, both wrong, 0.667 rounded to 0.67, and no answer where we give 0.
    agreeing = [verdict(1, 1), verdict(0, 0), verdict(0.667, 0.67), verdict(0, None)]
    apart = [verdict(1, 0.5), verdict(1, 0), verdict(0, 0.2), verdict(1, None)]
    found = agreements([*agreeing, *apart])
    assert found == [Agreement("drop", "f1", 8, agree=4, ours_higher=2, theirs_higher=1, unread=1)]
    assert agreement_table(found).row_count == 1

r"""lm-evaluation-harness (lm_eval 0.4.13) as a second opinion: its own task files, filters and metrics.

Its prompts, stop words and models play no part: a stored reply goes in as it is. Where its task knows no such reply
(a bare answer, or a sentence of its few-shot examples), it gets the answer that we have read in that form, and only
the comparison is its own. Left out are HumanEval and MBPP, whose metric it downloads from the hub, and MMLU as
log-likelihoods, which grades no reply.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from evaluation.peers.verdict import Verdict, agreement_table, agreements
from evaluation.run_file import EvaluationFolder
from marti_ext.errors import UserError
from marti_ext.progress import say, show_table
from marti_ext.records import write_text_atomically
from marti_ext.types import Score, Task

REPLY = "{reply}"
ANSWER = "{answer}"
SENTENCE = "Final Answer: The final answer is ${answer}$. I hope it is correct."  # Minerva's few-shot examples


@dataclass(frozen=True, slots=True)
class Grader:
    """One number that lm_eval gives: a task file of its, one of the file's filters and one of its metrics."""

    file: str
    filter: str = "none"
    """The harness's name for doing without."""
    metric: str = "exact_match"
    measure: str = "accuracy"
    """Which of our measures is its counterpart."""
    form: str = REPLY
    """What it is given, made of `reply` or of the `answer` that we have read."""

    @property
    def name(self) -> str:
        """The task file, and its filter or else its metric."""
        file = Path(self.file).stem.strip("_").removesuffix("_template_yaml")
        return f"{file} {self.metric if self.filter == 'none' else self.filter}"


_GPQA = "gpqa/cot_zeroshot/gpqa_main_cot_zeroshot.yaml"
_MMLU = "mmlu/flan_cot_zeroshot/_mmlu_flan_cot_zeroshot_template_yaml"
GRADERS: dict[str, tuple[Grader, ...]] = {
    "gsm8k": (
        Grader("gsm8k/gsm8k.yaml", "strict-match"),
        Grader("gsm8k/gsm8k.yaml", "flexible-extract"),
        Grader("gsm8k/gsm8k-cot-llama.yaml", "strict-match"),
    ),
    "math500": (
        Grader("hendrycks_math/hendrycks_math500.yaml", form=ANSWER),
        Grader("minerva_math/minerva_math500.yaml", form=SENTENCE),
        Grader("minerva_math/minerva_math500.yaml", metric="math_verify"),
    ),
    "aime2022": (Grader("aime/aime.yaml"),),
    "aime2023": (Grader("aime/aime.yaml"),),
    "aime2024": (Grader("aime/aime24.yaml"),),
    "aime2025": (Grader("aime/aime25.yaml"),),
    "drop": (
        Grader("drop/default.yaml", metric="f1", measure="f1", form=ANSWER),
        Grader("drop/default.yaml", metric="em", measure="em", form=ANSWER),
    ),
    "gpqa": (Grader(_GPQA, "strict-match"), Grader(_GPQA, "flexible-extract")),
    "mmlu": (
        Grader(_MMLU, "strict-match"),
        Grader(_MMLU, "flexible-extract"),
        Grader("llama3/instruct/mmlu_cot/_mmlu_cot_llama_template_yaml", "strict_match"),
    ),
}


@dataclass(frozen=True, slots=True)
class Graded:
    """A stored reply with our verdict on it, by measure."""

    benchmark: str
    task: Task
    reply: str
    scores: Mapping[str, Score]


def compare_run(folder: EvaluationFolder, out: Path | None, console: Console) -> None:
    """Print how often lm_eval agrees with the verdicts of a run; `out` gets one JSON line for each disagreement.

    Raises UserError where the run has no benchmark that it grades, or where it is not installed.
    """
    replies = list(_replies(folder))
    if not replies:
        raise UserError(f"{folder.path} holds no graded replies to {', '.join(GRADERS)}")
    verdicts = list(track(compare(replies), "asking lm_eval", _count(replies), console=console, transient=True))
    apart = [verdict for verdict in verdicts if not verdict.agree]
    show_table(console, agreement_table(agreements(verdicts)))
    if out is not None:
        write_text_atomically(out, "".join(json.dumps(verdict.line()) + "\n" for verdict in apart))
        say(console, f"{len(apart)} disagreements: {out}")


def compare(replies: Sequence[Graded]) -> Iterator[Verdict]:
    """lm_eval's verdicts beside ours, by benchmark and grader; replies to other benchmarks give none.

    To be called in the main thread: its graders of mathematics set alarms. Raises UserError if it is not installed.
    """
    for benchmark, graders in GRADERS.items():
        chosen = [reply for reply in replies if reply.benchmark == benchmark]
        tasks = {reply.task.id: reply.task for reply in chosen}
        for file in dict.fromkeys(grader.file for grader in graders) if chosen else ():
            peer = Peer(benchmark, file, list(tasks.values()))
            for grader in (grader for grader in graders if grader.file == file):
                yield from _verdicts(peer, grader, chosen)


def _replies(folder: EvaluationFolder) -> Iterator[Graded]:
    folder.read()
    for group in folder.groups():
        if group.benchmark in GRADERS:
            for episode, outcome in group.episodes():
                if episode.status == "ok" and outcome.score.status != "no_label":
                    yield Graded(group.benchmark, episode.task, episode.answer, outcome.scores)


def _count(replies: Iterable[Graded]) -> int:
    return sum(len(GRADERS[reply.benchmark]) for reply in replies)


def _verdicts(peer: "Peer", grader: Grader, replies: Sequence[Graded]) -> Iterator[Verdict]:
    graded = peer.grade(grader, [(reply.task, _given(grader, reply)) for reply in replies])
    for reply, (theirs, read) in zip(replies, graded, strict=True):
        yield Verdict(
            reply.benchmark, reply.task.id, grader.name, reply.scores[grader.measure], theirs, read, reply.reply
        )


def _given(grader: Grader, reply: Graded) -> str:
    """The text for a grader, "" where it is made of an answer and we have read none."""
    if grader.form == REPLY:
        return reply.reply
    answer = " ".join(reply.scores[grader.measure].extracted.split()).rstrip(".").strip("$ ")
    return grader.form.format(answer=answer) if answer else ""


class Peer:
    """One of lm_eval's tasks, as it makes it out of its task file, over our tasks in place of a data set."""

    def __init__(self, benchmark: str, file: str, tasks: Sequence[Task]) -> None:
        import datasets  # type: ignore[import-untyped]

        logging.getLogger("lm_eval").setLevel(logging.ERROR)  # it warns of every setting that we leave out
        datasets.disable_progress_bars()
        harness, load = _import("lm_eval.api.task"), _import("lm_eval.tasks._yaml_loader")
        self._instance = _import("lm_eval.api.instance").Instance
        self._no_match: str = _import("lm_eval.filters.extraction").RegexFilter().fallback
        try:
            file_config = load.load_yaml(Path(harness.__file__).parents[1] / "tasks" / file)
        except (ImportError, AssertionError) as error:  # how one of its task files says which packages it lacks
            raise _missing(error) from error
        docs = datasets.Dataset.from_list([DOCS[benchmark](task) for task in tasks])
        ours = {
            **dict.fromkeys(("training_split", "validation_split", "fewshot_split", "fewshot_config")),
            "num_fewshot": 0,
            "test_split": "test",
            "custom_dataset": lambda **_: {"test": docs},
            "doc_to_text": "",
        }
        if benchmark == "gpqa":
            ours["process_docs"] = None  # it would shuffle the options
        self._task = harness.ConfigurableTask(config=file_config | ours)
        self._docs = {task.id: doc for task, doc in zip(tasks, self._task.task_docs, strict=True)}

    def grade(self, grader: Grader, texts: Sequence[tuple[Task, str]]) -> Iterator[tuple[float | None, str]]:
        """For each text the value in [0, 1] (None where the filter matches nothing), and what the filter makes of it.

        An empty text has no answer.
        """
        instances = [
            self._instance("generate_until", self._docs[task.id], ("", {}), 0, resps=[text]) for task, text in texts
        ]
        # All at once: one of its filters tabulates Unicode at every call.
        next(ensemble for ensemble in self._task._filters if ensemble.name == grader.filter).apply(instances)
        for instance, (_, text) in zip(instances, texts, strict=True):
            filtered = instance.filtered_resps[grader.filter]
            if not text or filtered == self._no_match:
                yield None, ""
            else:
                yield float(self._task.process_results(instance.doc, [filtered])[grader.metric]), str(filtered)


def _import(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise _missing(error) from error


def _missing(error: Exception) -> UserError:
    return UserError(f"lm_eval is not fully installed ({error}): pip install 'marti_ext[peers]'")


# Our tasks in the columns of the data sets that lm_eval's task files read.


def _drop_doc(task: Task) -> dict[str, Any]:
    no_date = {"day": "", "month": "", "year": ""}
    first, *others = [{"number": "", "date": no_date, "spans": spans} for spans in task.metadata["answers"]]
    further = {key: [other[key] for other in others] for key in ("number", "date", "spans")}
    return {"query_id": task.id, "passage": task.prompt, "question": "", "answer": first, "validated_answers": further}


def _choice(task: Task) -> dict[str, Any]:
    return {"question": task.prompt, "choices": list(task.metadata["choices"])}


DOCS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "gsm8k": lambda task: {"question": task.prompt, "answer": task.label},
    "math500": lambda task: {"problem": task.prompt, "solution": rf"\boxed{{{task.label}}}"},
    **dict.fromkeys(
        ("aime2022", "aime2023", "aime2024", "aime2025"), lambda task: {"Answer": task.label, "answer": task.label}
    ),
    "drop": _drop_doc,
    "gpqa": lambda task: {**_choice(task), "answer": f"({task.label})"},
    "mmlu": lambda task: {**_choice(task), "answer": ord(task.label) - ord("A")},
}

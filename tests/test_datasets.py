import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from marti_ext.datasets.load import DataConfig, DataSource, load_stream, load_tasks
from marti_ext.datasets.stream import Pool, TaskStream
from marti_ext.errors import UserError
from marti_ext.types import Task

REAL = Path(__file__).parents[2] / "shared" / "data"
real_data = pytest.mark.skipif(not REAL.is_dir(), reason=f"no benchmark files in {REAL}")


def write(file: Path, rows: Sequence[object]) -> str:
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return str(file)


def load(path: str, *, needs_label: bool = True, seed: int = 0, **fields: Any) -> list[Task]:
    return load_tasks(DataSource(path=path, **fields), needs_label=needs_label, seed=seed)


def refused(path: str, **fields: Any) -> str:
    with pytest.raises(UserError) as caught:
        load(path, **fields)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def tasks_named(prefix: str, count: int) -> list[Task]:
    return [Task(f"{prefix}{n}", "?") for n in range(count)]


# Rows become tasks


def test_columns_become_the_fields_of_a_task(tmp_path: Path) -> None:
    row = {"question": "2+2?", "answer": "4", "key": "q7", "level": 3, "source": "own"}
    path = write(tmp_path / "sums.jsonl", [row])
    fields: dict[str, Any] = {"prompt": "question", "label": "answer", "id": "key", "metadata": ["level"]}
    assert load(path, **fields, kind="qa", prompt_suffix=" Be brief.") == [
        Task("q7", "2+2? Be brief.", "4", "qa", {"level": 3})
    ]


def test_ids_are_the_file_and_the_row_by_default(tmp_path: Path) -> None:
    path = write(tmp_path / "sums.jsonl", [{"prompt": "a", "label": "1"}, {"prompt": "b", "label": "2"}])
    assert [task.id for task in load(path)] == ["sums-1", "sums-2"]


@pytest.mark.parametrize(
    ("label", "text"), [("4", "4"), (4, "4"), (-0.5, "-0.5"), (3.0, "3.0"), (10**30, "1" + "0" * 30)]
)
def test_numbers_as_labels_become_text(tmp_path: Path, label: object, text: str) -> None:
    assert load(write(tmp_path / "a.jsonl", [{"prompt": "?", "label": label}]))[0].label == text


@pytest.mark.parametrize("label", [True, ["4"], {"a": 4}])
def test_other_labels_are_refused(tmp_path: Path, label: object) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt": "?", "label": label}])
    assert f"{path}, line 1: the label in column 'label' must be text or a number, found {label!r}" in refused(path)
    assert "must be text or a number" in refused(path, needs_label=False)


def test_a_byte_order_mark_blank_lines_and_odd_line_breaks_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    text = '\ufeff{"prompt": "one\u2028line", "label": "é"}\r\n\r\n  \n{"prompt": "b", "label": "2"}\n'
    file.write_bytes(text.encode())
    assert [(t.prompt, t.label) for t in load(str(file))] == [("one\u2028line", "é"), ("b", "2")]


def test_json_may_be_a_list_or_one_object_a_line(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "label": "1"}, {"prompt": "b", "label": "2"}]
    listed = tmp_path / "listed.json"
    listed.write_text(json.dumps(rows, indent=2), encoding="utf-8-sig")
    lined = write(tmp_path / "lined.json", rows)
    assert [t.prompt for t in load(str(listed))] == [t.prompt for t in load(lined)] == ["a", "b"]
    listed.write_text('[{"prompt": "a"},\n {"prompt": }]')
    assert f"{listed}: broken JSON in its line 2" in refused(str(listed))


def test_labels_may_be_absent_where_none_is_needed(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.jsonl", [{"prompt": "a"}, {"prompt": "b", "label": None}, {"prompt": "c", "label": " "}]
    )
    assert [task.label for task in load(path, needs_label=False)] == ["", "", ""]
    assert [task.label for task in load(path, needs_label=False, label=None)] == ["", "", ""]
    assert "label: null, but labels are needed" in refused(path, label=None)


def test_a_limit_draws_rows_by_the_seed_and_keeps_their_order_and_ids(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt": str(n), "label": "1"} for n in range(1, 101)])
    drawn = load(path, limit=10, seed=1)
    numbers = [int(task.prompt) for task in drawn]
    assert len(set(numbers)) == 10
    assert numbers == sorted(numbers)
    assert [task.id for task in drawn] == [f"a-{number}" for number in numbers]
    assert load(path, limit=10, seed=1) == drawn
    assert load(path, limit=10, seed=2) != drawn
    assert len(load(path, limit=1000)) == 100


# What is wrong is named with its place


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ('{"prompt": "b", "label": }', "line 3: broken JSON (Expecting value, column 26)"),
        ("[1, 2]", "line 3: a row must be an object with named columns, found a list"),
        (
            '{"promt": "b", "label": "2"}',
            "line 3: no column 'prompt' (nearest: 'promt'); the row has 'promt', 'label'",
        ),
        ('{"prompt": null, "label": "2"}', "line 3: column 'prompt' is empty"),
        ('{"prompt": "  ", "label": "2"}', "line 3: the prompt in column 'prompt' is empty"),
        ('{"prompt": ["b"], "label": "2"}', "line 3: the prompt in column 'prompt' must be text, found ['b']"),
        ('{"prompt": "b"}', "line 3: no column 'label'; the row has 'prompt'"),
        ('{"prompt": "b", "label": null}', "line 3: column 'label' is empty"),
        ('{"prompt": "b", "label": ""}', "line 3: the label in column 'label' is empty ('')"),
        ('{"prompt": "b", "label": NaN}', "line 3: the label in column 'label' is empty (nan)"),
    ],
)
def test_a_bad_row_is_named_with_its_line(tmp_path: Path, second: str, words: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"prompt": "a", "label": "1"}\n\n' + second)
    assert f"{file}, {words}" in refused(str(file))


def test_bytes_that_are_no_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"prompt": "a", "label": "1"}\n{"prompt": "caf\xe9", "label": "1"}')
    assert f"{file}, line 2: no UTF-8" in refused(str(file))


def test_repeated_ids_are_named_with_both_lines(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "label": "1", "id": id_} for id_ in (7, 8, "7")]
    path = write(tmp_path / "a.jsonl", rows)
    assert refused(path, id="id").startswith(f"{path}, line 3: id '7' stands already in {path}, line 1")


def test_absent_columns_that_a_source_lists_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt": "a", "label": "1", "level": 2}])
    assert "no column 'levels' (nearest: 'level')" in refused(path, metadata=["levels"])
    assert "no column 'key'" in refused(path, id="key")


def test_missing_empty_and_unknown_files_are_refused(tmp_path: Path) -> None:
    assert "nowhere.jsonl does not exist" in refused(str(tmp_path / "nowhere.jsonl"))
    assert "does not exist" in refused("./nowhere")
    (tmp_path / "empty.jsonl").write_text("\n\n")
    assert "empty.jsonl holds no rows" in refused(str(tmp_path / "empty.jsonl"))
    (tmp_path / "table.csv").write_text("prompt,label\n")
    assert "of no known type: give a file ending in .jsonl, .json, .parquet" in refused(str(tmp_path / "table.csv"))
    path = write(tmp_path / "a.jsonl", [{"prompt": "a", "label": "1"}])
    assert "only hub data sets have subsets" in refused(path, subset="main")


def test_a_source_refuses_unknown_fields_and_impossible_numbers() -> None:
    for fields in ({"promt": "q"}, {"weight": 0.0}, {"weight": float("inf")}, {"limit": 0}, {"path": ""}):
        with pytest.raises(ValidationError):
            DataSource.model_validate({"path": "a.jsonl", **fields})
    with pytest.raises(ValidationError):
        DataConfig(sources=[])


def test_every_field_is_described() -> None:
    for model in (DataSource, DataConfig):
        assert all(field.description for field in model.model_fields.values())


# Folders, parquet and the hub


def test_of_a_folder_the_file_of_the_split_or_the_only_file_is_read(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [{"prompt": "a", "label": "1"}])
    (tmp_path / "README.md").write_text("about")
    assert [t.id for t in load(str(tmp_path), split="test")] == ["train-1"]
    write(tmp_path / "test.json", [{"prompt": "b", "label": "1"}])
    assert [t.id for t in load(str(tmp_path), split="test")] == ["test-1"]
    assert "no file named 'dev' but test.json, train.jsonl" in refused(str(tmp_path), split="dev")
    write(tmp_path / "test.jsonl", [{"prompt": "b", "label": "1"}])
    assert "several files named 'test' but test.json, test.jsonl" in refused(str(tmp_path), split="test")


def test_parquet_is_read_and_its_rows_are_named(tmp_path: Path) -> None:
    import pyarrow.parquet  # type: ignore[import-untyped]

    file = tmp_path / "sums.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"prompt": ["a", "b"], "label": [1, 2], "key": ["x", "x"]}), file)
    assert load(str(file)) == [Task("sums-1", "a", "1"), Task("sums-2", "b", "2")]
    assert f"{file}, row 2: id 'x' stands already in {file}, row 1" in refused(str(file), id="key")
    file.write_bytes(b"no parquet")
    assert "cannot be read as parquet" in refused(str(file))


def test_a_folder_laid_out_as_a_hub_data_set_is_loaded_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets  # type: ignore[import-untyped]

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    data = tmp_path / "sums" / "data"
    data.mkdir(parents=True)
    write(data / "train-0.jsonl", [{"question": "a", "answer": "1"}, {"question": "b", "answer": None}])
    write(data / "test-0.jsonl", [{"question": "c", "answer": "3"}])
    path = str(tmp_path / "sums")
    assert load(path, split="test", prompt="question", label="answer") == [Task("sums-1", "c", "3")]
    assert f"{path}, row 2: column 'answer' is empty" in refused(path, prompt="question", label="answer")
    assert f"data set {path}, split 'dev', cannot be loaded" in refused(path, split="dev")


def test_a_hub_out_of_reach_asks_for_a_local_path() -> None:
    script = (
        "from marti_ext.datasets.load import DataSource, load_tasks\n"
        "load_tasks(DataSource(path='nobody/nothing'), needs_label=True, seed=0)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=100)
    last = run.stderr.strip().splitlines()[-1]
    assert "UserError: nobody/nothing is no local file, and the hub cannot be reached" in last
    assert last.endswith("give a local path")


@real_data
def test_real_benchmark_files_load() -> None:
    gsm8k = load(str(REAL / "gsm8k_test.jsonl"), prompt="question", label="answer")
    assert len(gsm8k) == 1319
    assert gsm8k[0].id == "gsm8k_test-1"
    assert gsm8k[0].label.endswith("#### 18")
    math500 = load(str(REAL), split="math500", prompt="problem", label="answer", id="unique_id")
    assert len(math500) == 500
    assert (math500[0].id, math500[0].label) == ("0", r"\left( 3, \frac{\pi}{2} \right)")
    assert all(task.label for task in load(str(REAL / "aime_2024.jsonl"), prompt="problem", label="answer"))


# The stream


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 15), st.integers(0, 3), st.booleans())
def test_each_pass_gives_every_task_once(count: int, size: int, seed: int, shuffle: bool) -> None:
    tasks = tasks_named("t", count)
    stream = TaskStream([Pool("all", tasks)], seed=seed, shuffle=shuffle)
    steps = 3 * count
    given_ = [task.id for step in range(steps) for task in stream.batch(step, size)]
    for start in range(0, len(given_) - count + 1, count):
        assert sorted(given_[start : start + count]) == sorted(task.id for task in tasks)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=3),
    st.integers(1, 8),
    st.lists(st.integers(0, 12), min_size=1, max_size=6),
)
def test_a_batch_depends_on_the_step_and_not_on_what_was_asked_before(
    shape: list[tuple[int, float]], size: int, steps: list[int]
) -> None:
    pools = [Pool(f"p{i}", tasks_named(f"p{i}-", count), weight) for i, (count, weight) in enumerate(shape)]
    used = TaskStream(pools, seed=5)
    for step in steps:
        used.batch(step, size % 3 + 1)
        assert used.batch(step, size) == TaskStream(pools, seed=5).batch(step, size)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from([0.5, 1.0, 3.0])), min_size=1, max_size=3),
    st.integers(1, 20),
)
def test_pools_are_passed_over_and_no_task_stands_twice_in_a_batch(shape: list[tuple[int, float]], size: int) -> None:
    pools = [Pool(f"p{i}", tasks_named(f"p{i}-", count), weight) for i, (count, weight) in enumerate(shape)]
    stream = TaskStream(pools, seed=3)
    batches = [[task.id for task in stream.batch(step, size)] for step in range(20)]
    for batch in batches:
        whole, rest = divmod(size, len(stream))
        assert set(Counter(batch).values()) <= {whole, whole + 1}
        assert rest or set(Counter(batch).values()) == {whole}
    for pool in pools:
        ids = {task.id for task in pool.tasks}
        order = [id_ for batch in batches for id_ in batch if id_ in ids]
        for start in range(0, len(order) - len(ids) + 1, len(ids)):
            assert len(set(order[start : start + len(ids)])) == len(ids)


def test_the_order_is_drawn_anew_each_pass_and_by_the_seed() -> None:
    pools = [Pool("all", tasks_named("t", 50))]
    stream = TaskStream(pools, seed=1)
    assert stream.batch(0, 50) != stream.batch(1, 50)
    assert stream.batch(0, 50) != TaskStream(pools, seed=2).batch(0, 50)
    kept = TaskStream(pools, seed=1, shuffle=False)
    assert [kept.batch(0, 50), kept.batch(1, 50)] == [pools[0].tasks] * 2


def test_unequal_weights_mix_in_proportion() -> None:
    pools = [Pool("a", tasks_named("a", 300), 3.0), Pool("b", tasks_named("b", 50), 1.0)]
    stream = TaskStream(pools, seed=0)
    for step in range(20):
        names = Counter(task.id[0] for task in stream.batch(step, 16))
        assert names == {"a": 12, "b": 4}  # 3 : 1 of 16


def test_a_small_pool_with_a_great_weight_gives_all_it_has() -> None:
    pools = [Pool("a", tasks_named("a", 2), 9.0), Pool("b", tasks_named("b", 50), 1.0)]
    stream = TaskStream(pools, seed=0)
    assert Counter(task.id[0] for task in stream.batch(0, 10)) == {"a": 2, "b": 8}


def test_equal_weights_make_one_pool_of_all_sources(tmp_path: Path) -> None:
    for name, count in (("a", 6), ("b", 3)):
        write(tmp_path / f"{name}.jsonl", [{"prompt": "?", "label": "1"}] * count)
    config = DataConfig.model_validate({"sources": [{"path": str(tmp_path / f"{name}.jsonl")} for name in "ab"]})
    stream = load_stream(config, needs_label=True, seed=0)
    assert len(stream) == 9
    assert {task.id for step in range(3) for task in stream.batch(step, 3)} == {
        *(f"a-{n}" for n in range(1, 7)),
        *(f"b-{n}" for n in range(1, 4)),
    }
    assert stream.describe() == f"9 tasks: {tmp_path}/a.jsonl (6 tasks), {tmp_path}/b.jsonl (3 tasks)"
    weighed = TaskStream([Pool("a", tasks_named("a", 6), 3.0), Pool("b", tasks_named("b", 3))], seed=0)
    assert weighed.describe() == "9 tasks: a (6 tasks, share 75%), b (3 tasks, share 25%)"


def test_the_same_id_in_two_sources_is_refused() -> None:
    with pytest.raises(UserError, match="task id 't0' stands in a and in b"):
        TaskStream([Pool("a", tasks_named("t", 1)), Pool("b", tasks_named("t", 2))], seed=0)


def test_a_stream_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="no data source"):
        TaskStream([], seed=0)
    with pytest.raises(UserError, match="data source a: 0 tasks"):
        TaskStream([Pool("a", [])], seed=0)
    stream = TaskStream([Pool("a", tasks_named("a", 1))], seed=0)
    with pytest.raises(ValueError, match="step -1, size 1"):
        stream.batch(-1, 1)
    with pytest.raises(ValueError, match="step 0, size 0"):
        stream.batch(0, 0)

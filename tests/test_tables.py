"""The published tables as the papers print them, and ours beside."""

import csv
import io
from pathlib import Path

import matplotlib.image
import pytest

from evaluation.benchmarks import BENCHMARKS
from evaluation.metrics import Estimate
from evaluation.paper_tables import PaperTable, as_markdown, as_table_csv, draw_table, lines, load_table, table_names
from evaluation.table_command import _runs
from marti_ext.errors import UserError

COMAS = [f"comas-table{number}" for number in (1, 4, 5, 7, 8, 9)]
SIZES = {"gsm8k": 500, "math500": 500, "humaneval": 164, "mbpp": 500, "scibench": 499, "gpqa": 448, "mmlu": 500}
SETUPS = ("vanilla", "consistency", "autogen", "debate")


def cells(name: str) -> dict[tuple[str, str], list[float | None]]:
    """(set-up, method) -> the row's cells."""
    return {(row.setup, row.method): row.cells for row in load_table(name).rows}


def average(name: str, setup: str, method: str) -> str:
    """What the table's column of averages says of the published row."""
    _, rows = lines(load_table(name), {})
    row = next(r for r in rows if (r["setup"], r["method"], r["whose"]) == (setup, method, "published"))
    return row["average"]


def ours(mean: float) -> Estimate:
    return Estimate(mean, 0.02, mean - 0.04, mean + 0.04, None)


# The transcription


def test_every_table_loads_and_names_its_rows_once() -> None:
    assert set(table_names()) == {*COMAS, "evochamber-streams"}
    for name in table_names():
        table = load_table(name)
        assert len(cells(name)) == len(table.rows), name
        assert all(cell is None or 0 < cell < 100 for row in table.rows for cell in row.cells), name


def test_an_unknown_table_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="did you mean 'comas-table4'"):
        load_table("comas-tabel4")


def test_a_method_may_have_an_equals_sign_in_its_name() -> None:
    table = load_table("comas-table8")
    assert _runs(table, ["comas, L = 2=results/a=b"]) == [("CoMAS, l = 2", Path("results/a=b"))]
    with pytest.raises(UserError, match=r"the table has no method 'CoMAS, l = 3'"):
        _runs(table, ["CoMAS, l = 3=results/a"])
    for run in ("results/a", "CoMAS, l = 2="):
        with pytest.raises(UserError, match=r"write METHOD=RUN, such as CoMAS, l = 1=results/mine"):
            _runs(table, [run])


def test_a_row_of_the_wrong_length_is_refused() -> None:
    values = load_table("comas-table4").model_dump()
    values["rows"][0]["cells"].pop()
    with pytest.raises(ValueError, match="has 6 cells"):
        PaperTable.model_validate(values)


def test_the_sizes_are_those_of_our_benchmarks() -> None:
    assert {name: b.paper_size for name, b in BENCHMARKS.items() if b.paper_size is not None} == SIZES


@pytest.mark.parametrize("name", [name for name in COMAS if name != "comas-table4"])
def test_every_percentage_of_a_single_run_is_a_count_of_solved_tasks(name: str) -> None:
    """A wrong digit would mostly give no count: they lie 0.2 to 0.6 apart, and two decimals are printed."""
    table = load_table(name)
    for row in table.rows:
        for benchmark, cell in zip(table.columns, row.cells, strict=True):
            size = SIZES[benchmark]
            assert cell is not None
            assert abs(100 * round(cell * size / 100) / size - cell) <= 0.005 + 1e-9, (
                row.setup,
                row.method,
                benchmark,
            )


def test_every_mean_of_five_seeds_is_a_count_over_five_runs() -> None:
    table = load_table("comas-table4")
    for row in table.rows:
        assert len(row.std) == len(table.columns)
        for benchmark, cell in zip(table.columns, row.cells, strict=True):
            size = 5 * SIZES[benchmark]
            assert cell is not None
            assert abs(100 * round(cell * size / 100) / size - cell) <= 0.005 + 1e-9, (row.method, benchmark)


@pytest.mark.parametrize(
    ("name", "setup", "method", "mean"),
    [
        ("comas-table1", "vanilla", "Untrained", "54.17"),
        ("comas-table1", "vanilla", "CoMAS", "55.67"),
        ("comas-table1", "consistency", "TTRL", "58.18"),
        ("comas-table1", "autogen", "Untrained", "33.48"),
        ("comas-table1", "autogen", "CoMAS", "43.32"),
        ("comas-table1", "debate", "MAPoRL", "57.88"),
        ("comas-table4", "vanilla", "TTRL", "55.53"),
        ("comas-table4", "vanilla", "CoMAS", "56.19"),
        ("comas-table5", "autogen", "Untrained", "61.26"),
        ("comas-table5", "debate", "CoMAS", "67.29"),
        ("comas-table7", "vanilla", "w/o Evaluation", "53.38"),
        ("comas-table7", "consistency", "w/o Scoring", "56.65"),
        ("comas-table8", "autogen", "CoMAS, l = 1", "41.38"),
        ("comas-table8", "debate", "CoMAS, l = 2", "57.68"),
        ("comas-table9", "consistency", "Heterogeneous", "59.70"),
        ("comas-table9", "autogen", "Heterogeneous", "40.12"),
    ],
)
def test_averages_are_those_worked_out_from_the_paper(name: str, setup: str, method: str, mean: str) -> None:
    """Worked out apart from this code; the paper prints none."""
    assert average(name, setup, method) == mean


def test_rows_that_stand_in_two_tables_agree() -> None:
    main, agents = cells("comas-table1"), cells("comas-table8")
    for setup in SETUPS:
        assert agents[setup, "CoMAS, l = 4"] == main[setup, "CoMAS"]
        assert cells("comas-table9")[setup, "Homogeneous"] == agents[setup, "CoMAS, l = 2"]
    for key in (
        ("vanilla", "Untrained"),
        ("consistency", "Untrained"),
        ("vanilla", "CoMAS"),
        ("consistency", "CoMAS"),
    ):
        assert cells("comas-table7")[key] == main[key]


def test_what_the_papers_contradict_stands_in_the_notes() -> None:
    assert any("27.33" in note and "27.23" in note for note in load_table("comas-table1").notes)
    assert any("not clear" in note for note in load_table("comas-table7").notes)
    evochamber = " ".join(load_table("evochamber-streams").notes)
    assert "35.2" in evochamber
    assert "75.7" in evochamber


# Ours beside theirs


def test_without_runs_nothing_of_ours_is_filled_in() -> None:
    for name in table_names():
        table = load_table(name)
        _, rows = lines(table, {})
        for row in rows:
            if row["whose"] != "published":
                assert [row[column] for column in table.columns] == [""] * len(table.columns), name
                assert not row.get("average"), name


def test_ours_and_the_difference_stand_only_where_we_measured() -> None:
    table = load_table("comas-table1")
    _, rows = lines(table, {("CoMAS", "debate", "gpqa"): ours(0.25)})
    mine, gap = (
        next(r for r in rows if (r["setup"], r["method"], r["whose"]) == ("debate", "CoMAS", whose))
        for whose in ("ours", "difference")
    )
    assert mine["gpqa"] == "25.00 [21.0, 29.0]"
    assert gap["gpqa"] == "-4.91"  # 25 - 29.91
    filled = [r[column] for r in rows if r["whose"] != "published" for column in (*table.columns, "average")]
    assert sorted(filter(None, filled)) == ["-4.91", "25.00 [21.0, 29.0]"]


def test_an_average_of_ours_needs_every_cell_of_the_row() -> None:
    table = load_table("comas-table1")
    measured = {("CoMAS", "vanilla", column): ours(0.5) for column in table.columns}
    _, rows = lines(table, measured)
    by_whose = {r["whose"]: r for r in rows if (r["setup"], r["method"]) == ("vanilla", "CoMAS")}
    assert by_whose["ours"]["average"] == "50.00"
    assert by_whose["difference"]["average"] == "-5.67"  # 50 - 55.67
    del measured["CoMAS", "vanilla", "mbpp"]
    _, rows = lines(table, measured)
    assert {r["average"] for r in rows if r["whose"] != "published"} == {""}


def test_a_cell_that_the_paper_does_not_print_stays_empty_and_has_no_difference() -> None:
    table = load_table("evochamber-streams")
    missing = next(row for row in table.rows if None in row.cells)
    column = table.columns[missing.cells.index(None)]
    _, rows = lines(table, {(missing.method, missing.setup, column): ours(0.5)})
    mine = {r["whose"]: r for r in rows if (r["setup"], r["method"]) == (missing.setup, missing.method)}
    assert (mine["published"][column], mine["ours"][column], mine["difference"][column]) == (
        "",
        "50.00 [46.0, 54.0]",
        "",
    )


def test_csv_and_markdown_hold_the_same_cells() -> None:
    table = load_table("comas-table4")
    measured = {("CoMAS", "vanilla", "gsm8k"): Estimate(0.85, 0.01, 0.83, 0.87, 0.004)}
    columns, rows = lines(table, measured)
    assert list(csv.DictReader(io.StringIO(as_table_csv(table, measured)))) == rows
    page = as_markdown(table, measured, ["CoMAS: results/mine; tasks: gsm8k 500"])
    body = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("|")]
    assert body[0] == columns
    for part in (table.source, table.notes[0], "results/mine", "84.68 ± 0.37", "85.00 ± 0.40 [83.0, 87.0]", "+0.32"):
        assert part in page


@pytest.mark.parametrize("name", ["comas-table1", "comas-table4", "evochamber-streams"])
def test_the_plot_is_drawn_with_and_without_runs(name: str, tmp_path: Path) -> None:
    table = load_table(name)
    first = table.rows[0]
    measured = {(first.method, first.setup, column): ours(0.6) for column in table.columns}
    draw_table(table, {}, tmp_path / "published.png")
    draw_table(table, measured, tmp_path / "both.png")
    published, both = (matplotlib.image.imread(tmp_path / f"{name}.png") for name in ("published", "both"))
    assert published.shape == both.shape
    assert (published != both).any()

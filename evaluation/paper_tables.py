"""Published tables, as `paper/*.yaml` holds them, and ours laid beside."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from evaluation.metrics import Estimate
from evaluation.summary import as_csv, markdown
from marti_ext.errors import UserError
from marti_ext.plots import COLOURS
from marti_ext.registry import nearest

FOLDER = Path(__file__).parent / "paper"

Measured = Mapping[tuple[str, str, str], Estimate]
"""(method, set-up, column) -> what we measured."""


class PaperRow(BaseModel):
    """One row; a cell that the paper does not print is None."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    setup: str
    method: str
    cells: list[float | None]
    std: list[float] = []


class PaperTable(BaseModel):
    """One published table. `protocol` is how its numbers came about, `notes` what a reader has to know of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    arxiv: str | None
    table: str
    title: str
    unit: str = Field(pattern="^percent$")
    averaged: bool = True
    """Whether an average over the columns means something."""
    protocol: dict[str, Any]
    columns: list[str]
    notes: list[str]
    rows: list[PaperRow]

    @model_validator(mode="after")
    def _is_whole(self) -> "PaperTable":
        for row in self.rows:
            if len(row.cells) != len(self.columns) or (row.std and len(row.std) != len(self.columns)):
                raise ValueError(f"row {row.setup}, {row.method} has {len(row.cells)} cells")
        return self

    @property
    def source(self) -> str:
        """Where it was published."""
        return f"{self.paper}{f' (arXiv:{self.arxiv})' if self.arxiv else ''}, {self.table}: {self.title}"


def table_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_table(name: str) -> PaperTable:
    """Raises UserError for an unknown name, naming the nearest."""
    if name not in table_names():
        raise UserError(f"unknown table {name!r}: {nearest(name, table_names())}")
    return PaperTable.model_validate(yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))


def lines(table: PaperTable, measured: Measured) -> tuple[list[str], list[dict[str, str]]]:
    """(columns, rows): for each published row one of ours and their difference. What we did not measure is empty.

    The average stands only where every cell of the row does.
    """
    columns = ["setup", "method", "whose", *table.columns, *(["average"] if table.averaged else [])]
    rows = []
    for row in table.rows:
        ours = [measured.get((row.method, row.setup, column)) for column in table.columns]
        means = [None if found is None else 100 * found.mean for found in ours]
        gaps = [None if a is None or b is None else a - b for a, b in zip(means, row.cells, strict=True)]
        for whose, cells, average in (
            ("published", _published(row), _average(row.cells)),
            ("ours", [_estimate(found) for found in ours], _average(means)),
            ("difference", [_signed(gap) for gap in gaps], _average(gaps)),
        ):
            values = [
                *cells,
                "" if average is None else f"{average:+.2f}" if whose == "difference" else f"{average:.2f}",
            ]
            rows.append(dict(zip(columns, [row.setup, row.method, whose, *values], strict=False)))
    return columns, rows


def as_markdown(table: PaperTable, measured: Measured, about: Sequence[str]) -> str:
    """The whole page: table, protocol, notes, and `about`, what our runs were."""
    protocol = ", ".join(f"{key} {value}" for key, value in table.protocol.items())
    parts = [
        f"# {table.source}",
        f"Published with: {protocol}. In {table.unit}; ours with 95 % intervals. Empty: not measured.",
        markdown(*lines(table, measured)),
        "\n".join(f"- {note}" for note in (*table.notes, *about)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_table_csv(table: PaperTable, measured: Measured) -> str:
    return as_csv(*lines(table, measured))


def draw_table(table: PaperTable, measured: Measured, path: Path) -> None:
    """A panel for each set-up: published values as marks, ours as points with intervals."""
    from matplotlib.figure import Figure

    setups = list(dict.fromkeys(row.setup for row in table.rows))
    figure = Figure((1.3 * len(table.columns) + 3, 2.6 * len(setups)), layout="constrained")
    panels = figure.subplots(len(setups), 1, squeeze=False)[:, 0]
    for axes, setup in zip(panels, setups, strict=True):
        rows = [row for row in table.rows if row.setup == setup]
        for place, row in enumerate(rows):
            shift = (place - (len(rows) - 1) / 2) * 0.8 / len(rows)
            colour = COLOURS[place % len(COLOURS)]
            x = [column + shift for column, cell in enumerate(row.cells) if cell is not None]
            axes.plot(
                x, [cell for cell in row.cells if cell is not None], "_", color=colour, markersize=9, label=row.method
            )
            for column, name in enumerate(table.columns):
                if found := measured.get((row.method, setup, name)):
                    below, above = 100 * (found.mean - found.low), 100 * (found.high - found.mean)
                    axes.errorbar(
                        column + shift, 100 * found.mean, [[below], [above]], fmt="o", color=colour, markersize=4
                    )
        axes.set_title(setup, fontsize="medium")
        axes.set_xticks(range(len(table.columns)), table.columns)
        axes.set_ylabel(table.unit)
    panels[0].legend(fontsize="x-small", ncols=3, title="line: published · point: ours", title_fontsize="x-small")
    figure.savefig(path, dpi=150)


def _published(row: PaperRow) -> list[str]:
    std: list[float | None] = [*row.std] or [None] * len(row.cells)
    return [
        "" if cell is None else f"{cell:.2f}" if spread is None else f"{cell:.2f} ± {spread:.2f}"
        for cell, spread in zip(row.cells, std, strict=True)
    ]


def _estimate(found: Estimate | None) -> str:
    if found is None:
        return ""
    spread = "" if found.std is None else f" ± {100 * found.std:.2f}"
    return f"{100 * found.mean:.2f}{spread} [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def _signed(gap: float | None) -> str:
    return "" if gap is None else f"{gap:+.2f}"


def _average(cells: Sequence[float | None]) -> float | None:
    known = [cell for cell in cells if cell is not None]
    return sum(known) / len(known) if known and len(known) == len(cells) else None

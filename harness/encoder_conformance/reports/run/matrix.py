"""The matrix on the terminal: cases by implementations, in the widest of three forms that fits."""

from collections.abc import Iterable, Mapping

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from encoder_conformance.judging.records import Report
from encoder_conformance.reports.run.counts import Cell, RunCounts
from encoder_conformance.spec.outcome import Category, Outcome

_DTYPE = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16"}
_STYLES: dict[Category, str] = {"good": "green", "declared": "cyan", "bad": "bold red", "unasked": "dim"}
_IN_A_GROUP = 5
_OF_ONE, _OF_NAME = 7, 10
"""Columns of one outcome with its size; and of an implementation, whose name may take several lines."""


def format_sigma(sigma: float) -> str:
    """A size in σ in at most six characters."""
    if sigma < 9.995:
        return f"{sigma:.2f}"
    if sigma < 9999.5:
        return f"{sigma:.0f}"
    mantissa, _, exponent = f"{sigma:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def matrix(counts: RunCounts, width: int) -> RenderableType:
    """The matrix. A cell has the worst outcome of its checks and the largest rms σ of any tensor.

    Where it does not fit, a cell stands for all dtypes of the case; and where that does not fit, it is a sign alone.
    """
    names = list(counts.standings)
    dtypes = _dtypes_by_case(counts)
    of_case = max(len(case.partition("/")[2]) for case in dtypes) + 4
    of_each = max(map(len, dtypes.values())) * _OF_ONE
    if of_case + len(" (bf16, f16)") + sum(max(of_each, cell_len(name)) + 1 for name in names) <= width:
        return _by_dtype(counts, names, dtypes)
    if of_case + len(names) * (_OF_NAME + 1) <= width:
        return _by_case(counts, names, dtypes)
    return _signs(counts, names, dtypes, width)


def _dtypes_by_case(counts: RunCounts) -> dict[str, list[str]]:
    """Case → its dtypes, sorted; the cases of a layer stand together."""
    dtypes: dict[str, set[str]] = {}
    for case, _, dtype in counts.reached_cells():
        dtypes.setdefault(case, set()).add(dtype)
    layers = list(dict.fromkeys(case.partition("/")[0] for case in dtypes))
    return {case: sorted(dtypes[case]) for case in sorted(dtypes, key=lambda c: layers.index(c.partition("/")[0]))}


def _by_dtype(counts: RunCounts, names: list[str], dtypes: dict[str, list[str]]) -> Table:
    usual = max(dtypes.values(), key=list(dtypes.values()).count)
    heading = " ".join(f"{_DTYPE[dtype]:<6}" for dtype in usual)
    table = _table("case, rms σ")
    for name in names:
        table.add_column(f"{name}\n{heading}", no_wrap=True, min_width=max(cell_len(name), cell_len(heading)))
    rows = {}
    for case, of in dtypes.items():
        others = "" if of == usual else f" ({', '.join(_DTYPE[dtype] for dtype in of)})"
        cells = ([_cell(counts.cells.get((case, name, dtype))) for dtype in of] for name in names)
        rows[f"{case}{others}"] = [Text(" ").join(each) for each in cells]
    return _filled(table, rows)


def _by_case(counts: RunCounts, names: list[str], dtypes: dict[str, list[str]]) -> Table:
    table = _table("case, rms σ")
    for name in names:
        table.add_column(name, overflow="fold", min_width=_OF_NAME)
    together = {case: [_together(counts, case, name, of) for name in names] for case, of in dtypes.items()}
    return _filled(table, {case: map(_cell, row) for case, row in together.items()})


def _signs(counts: RunCounts, names: list[str], dtypes: dict[str, list[str]], width: int) -> RenderableType:
    """A sign for each implementation; which is which, a list above says."""
    columns = [f"{number:<{_IN_A_GROUP}}" for number in range(1, len(names) + 1, _IN_A_GROUP)]
    table = _table("case")
    table.add_column(" ".join(columns), overflow="fold", min_width=min(width // 2, 6 * len(columns)))
    rows = {case: [Text()] for case in dtypes}
    for case, [row] in rows.items():
        for number, name in enumerate(names):
            cell = _together(counts, case, name, dtypes[case])
            if number and number % _IN_A_GROUP == 0:
                row.append(" ")
            worst = cell.worst or (Outcome.NOT_RUN if cell.left else Outcome.UNSUPPORTED)
            row.append(worst.sign, style=_STYLES[worst.category])
    numbered = (f"{number}\N{NO-BREAK SPACE}{name}" for number, name in enumerate(names, 1))
    return Group(Text("   ".join(numbered), overflow="fold"), _filled(table, rows))


def plain_table() -> Table:
    """A table with a line below its head and no others."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def _table(first: str) -> Table:
    table = plain_table()
    table.add_column(first, overflow="ellipsis", no_wrap=True)
    return table


def _filled(table: Table, rows: Mapping[str, Iterable[Text]]) -> Table:
    """The table with a row for each case, and one for each layer where it begins."""
    before = ""
    for case, row in rows.items():
        layer, _, situation = case.partition("/")
        if layer != before:
            table.add_row(Text(layer, style="bold"))
        table.add_row(f"  {situation}", *row)
        before = layer
    return table


def _together(counts: RunCounts, case: str, name: str, dtypes: Iterable[str]) -> Cell:
    """The cells of a case in all dtypes as one."""
    whole = Cell()
    for dtype in dtypes:
        cell = counts.cells.get((case, name, dtype), Cell())
        whole.left += cell.left
        if cell.worst is not None:
            whole.take(cell.worst, cell.rms)
    return whole


def _cell(cell: Cell | None) -> Text:
    if cell is None or cell.worst is None:
        return Text(f"{'·' if cell and cell.left else '–':<6}", style="dim")
    worst = cell.worst
    text = f"{worst.sign}{worst.value if cell.rms is None else format_sigma(cell.rms)}"
    if worst.sign.isalpha():  # written out, where there is room
        text = f"!{worst.value}"
    return Text(f"{text[:7]:<6}", style=_STYLES[worst.category])


_COLUMNS = {
    "conforms": "conforms",
    "deviates as declared": "declared",
    "does not conform": "fails",
    "bugs ruled out": "bugs out",
    "requirements covered": "reqs",
    "largest rms σ": "rms σ",
    "max σ": "",
    "unsupported": "not asked",
}
"""Heading → the same in a narrow table, or "" for what it goes without."""
_WIDE = 140


def summary(report: Report, counts: RunCounts, width: int) -> Table:
    """A row for each implementation: its checks by outcome, and what they cover."""
    table = plain_table()
    table.add_column("implementation", overflow="fold")
    headings = list(_COLUMNS) if width >= _WIDE else list(_COLUMNS.values())
    for heading in filter(None, headings):
        table.add_column(heading, no_wrap=True)
    of = " / " if width >= _WIDE else "/"
    coverage_by_name = {coverage.implementation: coverage for coverage in report.shown}
    for name, standing in counts.standings.items():
        coverage, tally = coverage_by_name.get(name), standing.tally
        row: tuple[Text | str, ...] = (
            Text(str(tally.conforming), style="green"),
            Text(str(tally.deviating or "–"), style="cyan"),
            Text(str(tally.unexpected or "–"), style="bold red"),
            f"{coverage.excluded}{of}{coverage.deviations}" if coverage else "–",
            f"{coverage.cited}{of}{coverage.clauses}" if coverage else "–",
            "" if standing.rms is None else format_sigma(standing.rms),
            "" if standing.max is None else format_sigma(standing.max),
            str(tally.unsupported),
        )
        table.add_row(name, *(cell for cell, heading in zip(row, headings, strict=True) if heading))
    return table

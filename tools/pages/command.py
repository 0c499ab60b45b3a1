"""`python -m tools pages`: the generated files of docs/ and specs/, made of what is kept, or compared with it."""

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

import click

from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.paths import SPECS, shown
from tools import ROOT
from tools.onnx_table import page as onnx
from tools.pages import coverage, exit_statuses, finding_kinds
from tools.pages.frames import example_frames
from tools.pages.schema import schema_files
from tools.survey import page as findings
from tools.survey.judge import configurations
from tools.survey.results import SurveyRow, kept

Files = Mapping[Path, bytes]
"""Path → content."""


def _text(path: Path, content: str) -> Files:
    return {path: content.encode()}


def _rows(path: Path) -> tuple[list[SurveyRow], set[str]]:
    """The kept rows of configurations that there are, and the configurations that none is kept of."""
    rows = kept(path)
    return [rows[variant] for variant in configurations() if variant in rows], set(configurations()) - set(rows)


def _findings() -> Files:
    rows, waiting = _rows(findings.KEPT)
    return _text(findings.PAGE, findings.page(rows, waiting))


def _onnx() -> Files:
    from tools.onnx_table.configurations import configurations as of_exporters

    rows = kept(onnx.KEPT)
    return _text(onnx.PAGE, onnx.page(list(rows.values()), set(of_exporters()) - set(rows)))


def _of_benchmark(module: str) -> Callable[[], Files]:
    """The page of a benchmark, of the figures that it keeps."""

    def made() -> Files:
        benchmark = import_module(f"benchmarks.{module}")
        return _text(benchmark.PAGE, benchmark.page(benchmark.read()))

    return made


GENERATED: dict[str, Callable[[], Files]] = {
    "schemas": lambda: {path: content.encode() for path, content in schema_files().items()},
    "frames": example_frames,
    "exit-statuses": lambda: _text(exit_statuses.PAGE, exit_statuses.page()),
    "finding-kinds": lambda: _text(finding_kinds.PAGE, finding_kinds.page()),
    "coverage": lambda: _text(coverage.PAGE, coverage.page()),
    "findings": _findings,
    "onnx": _onnx,
    "mutants": _of_benchmark("mutants.page"),
    "onnx-files": _of_benchmark("onnx_files.page"),
    "performance": _of_benchmark("performance.page"),
    "rewritings": _of_benchmark("rewritings.page"),
    "scale": _of_benchmark("scale"),
    "zoo": _of_benchmark("zoo.page"),
}
"""Name → the files of it. docs/core.md, docs/deviations.md and docs/systems.md take minutes of computing, and have
commands of their own."""


def drifted(names: tuple[str, ...] = ()) -> Iterator[Path]:
    """The files that are not what is generated today."""
    for name in names or GENERATED:
        for path, content in GENERATED[name]().items():
            if not path.is_file() or path.read_bytes() != content:
                yield path


@click.command(epilog="Example: python -m tools pages --check")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--check", is_flag=True, help="Write nothing; exit status 1 if a file is not what is generated.")
def pages(names: tuple[str, ...], check: bool) -> int:
    """Write the generated files, or those of these names: docs/ from the figures and rows that are kept beside the
    pages, specs/schema/ and specs/vectors/frames/ from the models."""
    for name in names:
        if name not in GENERATED:
            raise InputError(f"no generated files {name!r}", where="NAME", hint=nearest(name, GENERATED))
    if not check and SPECS != ROOT / "specs":
        hint = "install the checkout itself (pip install -e .), or give --check"
        raise InputError("writes specs/, which is an installed copy here", where="python -m tools pages", hint=hint)
    found = list(drifted(names))
    for path in found:
        click.echo(f"{shown(path)}: {'is not what is generated' if check else 'written'}")
    if not check:
        for name in names or GENERATED:
            for path, content in GENERATED[name]().items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    return 1 if check and found else 0

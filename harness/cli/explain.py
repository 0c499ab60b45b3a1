"""`conform explain`: one failure of an earlier run, in full."""

import json
import shlex
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from encoder_conformance.errors import InputError, nearest
from encoder_conformance.impl.choices import parse_variant
from encoder_conformance.judge.outcome import EXPECTED
from encoder_conformance.judge.verdict import TensorVerdict
from encoder_conformance.report.ledger import read_report
from encoder_conformance.report.terminal import console, diagnosis_text
from encoder_conformance.results import Record, Report


@click.command(epilog="Example: conform explain --impl pytorch --case pre-gelu/no-mask --dtype float32")
@click.option("--impl", help="Implementation; default: that of the first failure.")
@click.option("--case", help="Case id; default: that of the first failure.")
@click.option("--dtype", help="Default: that of the first failure.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("conform-report"),
    show_default=True,
    help="The run's folder.",
)
@click.option("--json", "as_json", is_flag=True, help="The records as JSON.")
def explain(impl: str | None, case: str | None, dtype: str | None, out: Path, as_json: bool) -> None:
    """Show one failure in full: each check and stage in σ, the worst element, and the command that repeats it."""
    report = read_report(out)
    records = _chosen(report, impl, case, dtype)
    if as_json:
        click.echo(json.dumps([record.model_dump(mode="json") for record in records], indent=1, ensure_ascii=False))
        return
    if not records:
        click.echo("Nothing failed in this run; name --impl, --case or --dtype to see a check that passed.")
        return
    screen = console()
    first = records[0]
    seed = f", seed {report.environment.seed}" if report.environment.seed else ""
    screen.print(f"[bold]{first.case}[/] in {first.dtype}, {first.implementation}{seed}", highlight=False)
    for record in records:
        _show(screen, record)
    for diagnosis in report.diagnoses:
        if diagnosis.implementation == first.implementation and first.dtype in diagnosis.dtype.split(", "):
            screen.print(f"\n{diagnosis_text(diagnosis)}", style="bold", highlight=False, soft_wrap=True, markup=False)
    log = next(i.log for i in report.implementations if i.name == first.implementation)
    screen.print(f"Worker's stderr: {log}", highlight=False, soft_wrap=True)
    screen.print(f"Repeat: {_repeat(report, first)}", highlight=False, soft_wrap=True, markup=False)


def _chosen(report: Report, impl: str | None, case: str | None, dtype: str | None) -> list[Record]:
    """Every check of one (implementation, case, dtype): the first failing one that fits what was named."""
    fitting = list(report.records)
    for option, value, attribute in (
        ("--impl", impl, "implementation"),
        ("--case", case, "case"),
        ("--dtype", dtype, "dtype"),
    ):
        if value is None:
            continue
        known = {getattr(record, attribute) for record in report.records}
        if value not in known:
            raise InputError(f"{value!r} is not in the report", where=option, hint=nearest(value, known))
        fitting = [record for record in fitting if getattr(record, attribute) == value]
    failing = [record for record in fitting if record.outcome not in EXPECTED]
    named = impl or case or dtype
    if not failing and not named:
        return []
    if not fitting:
        raise InputError("no record fits all that was named", where="--impl, --case, --dtype", hint="name fewer")
    at = (failing or fitting)[0]
    return [r for r in report.records if (r.implementation, r.case, r.dtype) == (at.implementation, at.case, at.dtype)]


def _show(screen: Console, record: Record) -> None:
    screen.print(f"\n[bold]{record.check}[/]: {record.outcome.value}", highlight=False)
    if record.message:
        screen.print(f"  {record.message}", highlight=False, soft_wrap=True, markup=False)
    if record.stage and record.check == "stages":
        screen.print(f"  first stage out of line: {record.stage}", style="bold red", highlight=False)
    if not record.tensors:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tensor", no_wrap=True)
    for heading in ("rms σ", "max σ", "at", "observed", "expected", "σ"):
        table.add_column(heading, justify="right", no_wrap=True)
    for tensor in record.tensors:
        table.add_row(*_row(tensor), style=None if tensor.conforms else "red")
    screen.print(table)


def _row(tensor: TensorVerdict) -> tuple[str, ...]:
    name = tensor.tensor if tensor.conforms else f"✗ {tensor.tensor}"
    if tensor.problem or tensor.worst_index is None:
        return (name, tensor.problem.text if tensor.problem else "nothing compared")
    return (
        name,
        f"{tensor.rms:.3g}",
        f"{tensor.max:.3g}",
        ",".join(str(i) for i in tensor.worst_index),
        f"{tensor.observed:.9g}",
        f"{tensor.expected:.9g}",
        f"{tensor.sigma:.2g}",
    )


def _repeat(report: Report, record: Record) -> str:
    """The same check again: what the run was given, narrowed to this implementation, case and dtype.

    Threads are named even where the run chose them: alone, an implementation would be given more.
    """
    command = ["conform", "run", "--impl", _as_given(report, record), "--case", record.case, "--dtype", record.dtype]
    arguments = report.arguments
    for option in ("--layer", "--device", "--python"):
        command += [word for i, word in enumerate(arguments) if word == option or (i and arguments[i - 1] == option)]
    if report.environment.seed:
        command += ["--seed", str(report.environment.seed)]
    return shlex.join([*command, "--threads", str(report.environment.threads_per_worker)])


def _as_given(report: Report, record: Record) -> str:
    """The implementation as the run was given it: its folder, if it lies outside the project's own."""
    name, colon, told = record.implementation.partition(":")
    for given in report.arguments:
        folder, _ = parse_variant(given)
        if Path(folder).name == name and "/" in folder:
            return folder + colon + told
    return record.implementation

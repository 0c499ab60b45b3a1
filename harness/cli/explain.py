"""`conform explain`: one failure of an earlier run, in full."""

import json
import re
import shlex
from pathlib import Path

import click
import yaml
from rich import box
from rich.console import Console
from rich.table import Table

from encoder_conformance.diagnosis.identify.identify import patches_of
from encoder_conformance.errors import InputError, nearest
from encoder_conformance.files import replace_file
from encoder_conformance.impl.choices import parse_variant
from encoder_conformance.judge.outcome import EXPECTED
from encoder_conformance.judge.verdict import TensorVerdict
from encoder_conformance.report.ledger import read_report
from encoder_conformance.report.terminal import console, diagnosis_text
from encoder_conformance.results import Record, Report
from encoder_conformance.spec.deviation import Deviation


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
@click.option(
    "--write-deviation",
    "written",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the equations that were identified as a deviation, in YAML.",
)
def explain(
    impl: str | None, case: str | None, dtype: str | None, out: Path, as_json: bool, written: Path | None
) -> None:
    """Show one failure in full: each check and stage in σ, the worst element, and the command that repeats it."""
    report = read_report(out)
    records = _choose_records(report, impl, case, dtype)
    if written is not None:
        _write_deviation(report, records, written)
        return
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
    screen.print(f"Repeat: {_repeat_command(report, first)}", highlight=False, soft_wrap=True, markup=False)


def _write_deviation(report: Report, records: list[Record], path: Path) -> None:
    """The deviation that has the equations of the diagnosis of these records."""
    if path.suffix != ".yaml" or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.stem):
        hint = "a deviation's id is its file's name: small letters, digits and hyphens, then .yaml"
        raise InputError(f"cannot be the name of a deviation: {path.name}", where="--write-deviation", hint=hint)
    of = {(record.implementation, record.dtype) for record in records}
    found = [each for each in report.diagnoses if (each.implementation, each.dtype) in of and each.equations]
    if not found:
        hint = "equations are found where stages are shown and no deviation of the catalogue explains the failure"
        raise InputError("no equation was identified for this failure", where="--write-deviation", hint=hint)
    patch = patches_of(found[0].equations)
    sentence = "; ".join(dict.fromkeys(f"{each.stage} = {each.found}" for each in found[0].equations)) + "."
    kind = {"deviation": path.stem, "sentence": sentence, "kind": "wiring", "patch": {"stages": patch}}
    deviation = Deviation.model_validate({**kind, "unseen": None, "links": ()})
    text = yaml.safe_dump(deviation.model_dump(mode="json", exclude_defaults=True), sort_keys=False, width=120)
    try:
        replace_file(path, text.encode())
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(problem, where=f"--write-deviation {path}", hint="choose another folder") from None
    click.echo(f"{path}: {len(patch)} stage{'s' * (len(patch) > 1)}, of {found[0].implementation} in {found[0].dtype}")


def _choose_records(report: Report, impl: str | None, case: str | None, dtype: str | None) -> list[Record]:
    """Every check of one (implementation, case, dtype): the first failing one that matches the options."""
    matching = list(report.records)
    for option, value, attribute in (
        ("--impl", impl, "implementation"),
        ("--case", case, "case"),
        ("--dtype", dtype, "dtype"),
    ):
        if value is None:
            continue
        values = {getattr(record, attribute) for record in report.records}
        if value not in values:
            raise InputError(f"{value!r} is not in the report", where=option, hint=nearest(value, values))
        matching = [record for record in matching if getattr(record, attribute) == value]
    failing = [record for record in matching if record.outcome not in EXPECTED]
    is_selected = bool(impl or case or dtype)
    if not failing and not is_selected:
        return []
    if not matching:
        raise InputError("no record matches all of these", where="--impl, --case, --dtype", hint="name fewer")
    first = (failing or matching)[0]
    return [
        r
        for r in report.records
        if (r.implementation, r.case, r.dtype) == (first.implementation, first.case, first.dtype)
    ]


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


def _repeat_command(report: Report, record: Record) -> str:
    """The command that repeats a check: the run's arguments, narrowed to this implementation, case and dtype.

    It always names the number of threads, since an implementation that runs alone would get more by default.
    """
    command = [
        "conform",
        "run",
        "--impl",
        _implementation_argument(report, record),
        "--case",
        record.case,
        "--dtype",
        record.dtype,
    ]
    arguments = report.arguments
    for option in ("--layer", "--device", "--python"):
        command += [word for i, word in enumerate(arguments) if word == option or (i and arguments[i - 1] == option)]
    if report.environment.seed:
        command += ["--seed", str(report.environment.seed)]
    return shlex.join([*command, "--threads", str(report.environment.threads_per_worker)])


def _implementation_argument(report: Report, record: Record) -> str:
    """The implementation as in the run's arguments: a path, if its folder is outside the project's own."""
    name, colon, choices = record.implementation.partition(":")
    for argument in report.arguments:
        folder, _ = parse_variant(argument)
        if Path(folder).name == name and "/" in folder:
            return folder + colon + choices
    return record.implementation

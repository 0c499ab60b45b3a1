"""`conform explain`: one failure of an earlier run, in full."""

import re
from contextlib import suppress
from pathlib import Path

import click
import yaml
from rich.console import Console
from rich.text import Text

from encoder_conformance.commands.completion import cases, implementations
from encoder_conformance.commands.inspect.looking import table
from encoder_conformance.commands.options import FILE, print_json, run_option
from encoder_conformance.diagnosis.identify.identify import patches_of
from encoder_conformance.judging.records import Record, Report
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.files import replace_file, writable
from encoder_conformance.reports.run.folder import LOGS
from encoder_conformance.reports.run.reading import StoredReport, report_file
from encoder_conformance.reports.run.repeating import repeat_command
from encoder_conformance.reports.run.terminal import console, diagnosis_text, show_line
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.outcome import EXPECTED, Outcome


@click.command(epilog="Example: conform explain --impl pytorch --case pre-gelu/no-mask --dtype float32")
@click.option("--impl", shell_complete=implementations, help="Implementation; default: that of the first failure.")
@click.option("--case", shell_complete=cases, help="Case id; default: that of the first failure.")
@click.option("--dtype", help="Default: that of the first failure.")
@run_option
@click.option("--json", "as_json", is_flag=True, help="The records as JSON.")
@click.option(
    "--write-deviation",
    "written",
    type=FILE,
    metavar="FILE",
    help="Write the equations that were identified as a deviation, in YAML.",
)
def explain(
    impl: str | None, case: str | None, dtype: str | None, out: Path, as_json: bool, written: Path | None
) -> None:
    """Show one failure in full: each check and stage in σ, the worst element, and the command that repeats it."""
    stored = StoredReport(out)
    report = stored.report
    records, judged, planned = _choose(stored, impl, case, dtype)
    if written is not None:
        _write_deviation(report, records, written)
        return
    if as_json:
        print_json([record.model_dump(mode="json") for record in records])
        return
    screen = console()
    if not report.complete:
        why = f"ended by the {report.ended_by}" if report.ended_by else "it did not come to its end"
        show_line(screen, f"INCOMPLETE: {judged} of {planned} checks were judged ({why}).", "bold red")
    if not records:
        of_it = "in this run" if report.complete else "of what was judged"
        click.echo(f"Nothing failed {of_it}; name --impl, --case or --dtype to see a check that passed.")
        return
    first = records[0]
    seed = f", seed {report.environment.seed}" if report.environment.seed else ""
    screen.print(Text.assemble((first.case, "bold"), f" in {first.dtype}, {first.implementation}{seed}"))
    for record in records:
        _show(screen, record)
    for diagnosis in report.diagnoses_of(first):
        screen.print(f"\n{diagnosis_text(diagnosis)}", style="bold", soft_wrap=True)
    if log := _log(report, first.implementation, out):
        screen.print(f"Worker's stderr: {log}", soft_wrap=True)
    screen.print(f"Repeat: {repeat_command(report, first.implementation, first.case, first.dtype)}", soft_wrap=True)


def _log(report: Report, implementation: str, out: Path) -> Path | None:
    """The log of an implementation's worker, where it is there: a worker that was never started has none, and a report
    may have come without its logs."""
    noted = Path(next(each.log for each in report.implementations if each.name == implementation))
    places = (noted, report_file(out).parent / LOGS / noted.name)
    for place in places:
        with suppress(OSError):  # a name that no file can have
            if place.is_file():
                return place
    return None


def _write_deviation(report: Report, records: list[Record], path: Path) -> None:
    """The deviation that has the equations of the diagnosis of these records."""
    if path.suffix != ".yaml" or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", path.stem):
        hint = "a deviation's id is its file's name: small letters, digits and hyphens, then .yaml"
        raise InputError(f"cannot be the name of a deviation: {path.name}", where="--write-deviation", hint=hint)
    if path.is_file():
        raise InputError("is there already", where=f"--write-deviation {path}", hint="name another file")
    of = {(record.implementation, record.dtype) for record in records}
    found = [each for each in report.diagnoses if (each.implementation, each.dtype) in of and each.equations]
    if any(each.of == "backward" for each in found):
        hint = "a deviation says what a forward pass gives; `conform explain` shows the equations"
        raise InputError("only the backward pass is wrong", where="--write-deviation", hint=hint)
    if not found:
        hint = "equations are found where stages are shown and no deviation of the catalogue explains the failure"
        raise InputError("no equation was identified for this failure", where="--write-deviation", hint=hint)
    patch = patches_of(found[0].equations)
    sentence = "; ".join(dict.fromkeys(f"{each.stage} = {each.found}" for each in found[0].equations)) + "."
    kind = {"deviation": path.stem, "sentence": sentence, "kind": "wiring", "patch": {"stages": patch}}
    deviation = Deviation.model_validate({**kind, "unseen": None, "links": ()})
    text = yaml.safe_dump(deviation.model_dump(mode="json", exclude_defaults=True), sort_keys=False, width=120)
    with writable(f"--write-deviation {path}"):
        replace_file(path, text.encode())
    click.echo(f"{path}: {len(patch)} stage{'s' * (len(patch) > 1)}, of {found[0].implementation} in {found[0].dtype}")


def _choose(
    stored: StoredReport, impl: str | None, case: str | None, dtype: str | None
) -> tuple[list[Record], int, int]:
    """The checks of the first failing (implementation, case, dtype) that matches the options, and how many of all that
    were planned were judged. No other record stays in memory."""
    options = {"implementation": ("--impl", impl), "case": ("--case", case), "dtype": ("--dtype", dtype)}
    wanted = {attribute: value for attribute, (_, value) in options.items() if value is not None}
    values: dict[str, dict[str, None]] = {attribute: {} for attribute in options}
    matching = failing = None
    planned = judged = 0
    for record in stored.records():
        planned, judged = planned + 1, judged + (record.outcome is not Outcome.NOT_RUN)
        of = {attribute: getattr(record, attribute) for attribute in options}
        for attribute, value in of.items():
            values[attribute][value] = None
        if all(of[attribute] == value for attribute, value in wanted.items()):
            matching = matching or of
            failing = failing or (None if record.outcome in EXPECTED else of)
    for attribute, value in wanted.items():
        if value not in values[attribute]:
            where, hint = options[attribute][0], nearest(value, values[attribute])
            raise InputError(f"{value!r} is not in the report", where=where, hint=hint)
    first = failing or (matching if wanted else None)
    if wanted and first is None:
        raise InputError("no record matches all of these", where="--impl, --case, --dtype", hint="name fewer")
    if first is None:
        return [], judged, planned
    chosen = [each for each in stored.records() if all(getattr(each, name) == of for name, of in first.items())]
    return chosen, judged, planned


def _show(screen: Console, record: Record) -> None:
    screen.print(Text.assemble("\n", (record.check, "bold"), f": {record.outcome.value}"))
    if record.message:
        screen.print(f"  {record.message}", soft_wrap=True)
    if record.stage and record.check == "stages":
        screen.print(f"  first wrong stage: {record.stage}", style="bold red")
    if not record.tensors:
        return
    shown = table(["tensor"], ("rms σ", "max σ", "at", "observed", "expected", "σ"))
    for tensor in record.tensors:
        shown.add_row(*_row(tensor), style=None if tensor.conforms else "red")
    screen.print(shown)


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

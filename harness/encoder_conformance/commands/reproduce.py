"""`conform reproduce`: a failing case of an earlier run, as a script of the framework alone."""

from dataclasses import replace
from pathlib import Path

import click

from encoder_conformance.commands.commands import NOT_AS_EXPECTED
from encoder_conformance.commands.completion import implementations
from encoder_conformance.commands.options import FILE, interpreters_option, run_option, worker_limits
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import replace_file, writable
from encoder_conformance.reports.reproduce.failure import failure_of, ready_to_show
from encoder_conformance.reports.reproduce.running import run_script
from encoder_conformance.reports.reproduce.script import script_of
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.sandbox import require_sandbox

_EXAMPLES = """
\b
Examples:
  conform reproduce --impl ./my_backend     the smallest case that failed
  conform reproduce 'pre-gelu/*' --impl ./my_backend --to issue.py
"""


@click.command(epilog=_EXAMPLES)
@click.argument("case", default="*", metavar="[CASE]")
@click.option(
    "--impl",
    required=True,
    shell_complete=implementations,
    metavar="NAME|FOLDER[:KEY=VALUE,…]",
    help="The implementation that failed.",
)
@click.option("--dtype", type=click.Choice(list(FORMATS)), help="Default: that of the smallest failing case.")
@run_option
@interpreters_option("the implementation")
@click.option("--to", "target", type=FILE, help="The file; default: named after the case.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it is there.")
@worker_limits
def reproduce(
    case: str,
    impl: str,
    dtype: DtypeName | None,
    out: Path,
    pythons: dict[str, str],
    target: Path | None,
    overwrite: bool,
    limits: WorkerLimits,
) -> int:
    """Write the smallest failing case as a script that needs the framework and NumPy alone, and run it once.

    CASE is a case or a pattern; of several that failed, the one with the smallest layer and the fewest masks is taken.
    The script of a run with --isolate is run in a sandbox too; by yourself, you run it with your rights.
    """
    report = read_report(out)
    failure = failure_of(report, case, dtype, ready_to_show(report, impl, pythons))
    record = failure.record
    if failure.judged.isolated and not limits.isolate:
        require_sandbox()
        limits = replace(limits, isolate=True)
    failure = replace(failure, limits=limits)
    name = "-".join((record.implementation.partition(":")[0], *record.case.split("/"), record.dtype))
    target = target or Path(f"{name}.py")
    if target.exists() and not overwrite:
        raise InputError("is there already", where=f"--to {target}", hint="name another file, or --overwrite")
    text = script_of(failure)
    with writable(f"--to {target}"):
        replace_file(target, text.encode())
    ended = run_script(target, failure.ready, record, limits)
    click.echo(f"{target}: {record.case} {record.dtype} {record.check}, {len(text.splitlines())} lines")
    click.echo(f"{'It shows' if ended.shows else 'It does not show the failure'}: {ended.last_line}")
    return 0 if ended.shows else NOT_AS_EXPECTED

"""`conform versions`: one implementation over released versions of its framework, and the version that changed what."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from encoder_conformance.commands.commands import INCOMPLETE, NOT_AS_EXPECTED
from encoder_conformance.commands.options import (
    FOLDER,
    cases_option,
    dtypes_option,
    jobs_option,
    level_option,
    print_json,
    worker_limits,
)
from encoder_conformance.commands.run.judging import Planned, judge_assignments
from encoder_conformance.commands.versions.environments import (
    NotInstalled,
    environment_for,
    named,
    newest_of_each_series,
    package_of,
    released,
)
from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.declared import check_declared
from encoder_conformance.implementation.interpreter import Missing, Ready, resolve
from encoder_conformance.implementation.manifest import Implementation, find_implementation
from encoder_conformance.judging.records import Report
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.compare.show import show_trend
from encoder_conformance.reports.compare.trend import History, Point, Trend, point_of
from encoder_conformance.reports.merge.partition import resume
from encoder_conformance.reports.run.folder import NAME, RUNS, begun_run
from encoder_conformance.reports.run.reading import read_report
from encoder_conformance.reports.run.terminal import console
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.load import every_case
from encoder_conformance.subjects.plan import asked_of, plan, select
from encoder_conformance.worker.limits import WorkerLimits

_EXAMPLES = """
\b
Examples:
  conform versions keras_mha --last 6
  conform versions hf_bert:attention=eager --version 4.57.6 --version 5.0.0
  conform versions flax_nnx --package jax --last 4
  conform report conform-report/versions/keras_mha/keras-* --to site
"""


@dataclass(frozen=True)
class _Plan:
    """A plan for every version, and its options. `anew`: also where nothing has changed since it was last asked."""

    folder: Path
    implementation: Implementation
    package: str
    options: RunOptions
    level: Level
    globs: tuple[str, ...]
    dtypes: tuple[DtypeName, ...]
    anew: bool


@click.command(epilog=_EXAMPLES)
@click.argument("name", metavar="NAME|FOLDER[:KEY=VALUE,…]")
@click.option(
    "--last", type=click.IntRange(1, 50), default=6, show_default=True, help="The newest of that many series."
)
@click.option(
    "--version", "wanted", multiple=True, metavar="V", help="These versions instead; may be given several times."
)
@click.option("--package", metavar="PACKAGE", help="Whose versions; default: the manifest's package.")
@level_option
@cases_option
@dtypes_option
@jobs_option
@worker_limits
@click.option("--anew", is_flag=True, help="Ask again what has been asked of the same packages before.")
@click.option(
    "--out",
    type=FOLDER,
    help=f"Folder for a run of each version; default: {RUNS}/versions/NAME.",
)
@click.option("--json", "as_json", is_flag=True, help="The trend on standard output as JSON, and nothing else.")
def versions(
    name: str,
    last: int,
    wanted: tuple[str, ...],
    package: str | None,
    jobs: int,
    limits: WorkerLimits,
    out: Path | None,
    as_json: bool,
    **asked: Any,
) -> int:
    """Judge one implementation over released versions of its framework, and print the version that changed what.

    Each version is installed by pip in an environment of its own, wheels only, and kept in the user's cache folder. A
    series such as 3.14 counts by its newest version. Versions whose packages have not changed are not asked again.
    """
    folder, implementation = find_implementation(name)
    check_declared(implementation, folder)
    if implementation.command[0] != "python":
        raise InputError("is no Python adapter", where=name, hint="its versions are those of another package manager")
    package = package or package_of(implementation)
    available = released(package)
    chosen = named(available, wanted, package) if wanted else newest_of_each_series(available, last)
    options = RunOptions(jobs=jobs, begun=time.monotonic(), limits=limits, quiet=True)
    every = _Plan(folder.resolve(), implementation, package, options, **asked)
    out = out or RUNS / "versions" / implementation.name.replace(":", "-").replace(",", "-")
    points, complete = [], True
    for version in chosen:
        point, whole = _point(every, version, out / f"{package}-{version}")
        points.append(point)
        complete &= whole
    trend = Trend(implementation.name, tuple(points))
    if as_json:
        print_json(_as_json(trend))
    else:
        show_trend(console(), trend)
        click.echo(f"Reports: {out}")
    if any(change.worse for change in trend.changes):
        return NOT_AS_EXPECTED
    return 0 if complete and trend.present else INCOMPLETE


def _point(asked: _Plan, version: str, out: Path) -> tuple[Point, bool]:
    """The run of one version, and whether it is complete."""
    click.echo(f"{asked.package} {version}: installing", err=True)
    try:
        python, loosened = environment_for(asked.implementation, asked.folder, asked.package, version)
    except NotInstalled as error:
        return Point(version, absent=f"cannot be installed: {error}"), False
    if loosened:
        said = "does not fit the other pinned packages; they are as pip chose"
        click.echo(f"{asked.package} {version}: {said}", err=True)
    ready = resolve(asked.implementation, asked.folder, {asked.implementation.folder_name: str(python)})
    if isinstance(ready, Missing):
        return Point(version, absent=f"cannot be started: {ready.reason}"), False
    click.echo(f"{asked.package} {version}: judging", err=True)
    report = _run(asked, ready, out)
    return point_of(report, asked.implementation.name, version), report.complete


def _run(asked: _Plan, ready: Ready, out: Path) -> Report:
    """The report of one version: an earlier one if it has the same plan and nothing has changed since."""
    cases = {case.id: case for case in asked_of(asked.implementation, [*every_case().values()])}
    selected = select(cases, asked.globs, None if asked.globs else asked.level)
    assignment = Assignment(ready, plan(asked.implementation, selected, asked.dtypes))
    if not asked.anew and (earlier := _unchanged(assignment, out)):
        return earlier
    shutil.rmtree(out / "logs", ignore_errors=True)
    with begun_run(out) as folder:
        judge_assignments(Planned([assignment], Goldens(selected)), folder, asked.options)
        return read_report(folder)


def _unchanged(assignment: Assignment, out: Path) -> Report | None:
    """The earlier report if it has a verdict of everything in the plan, and of nothing else."""
    if not (out / NAME).is_file():
        return None
    try:
        earlier = read_report(out)
    except InputError:  # cut off, or of another conform: it is asked again, and replaced
        return None
    applicable = {task.key for task in assignment.tasks if not task.opt_out}
    resumed = resume([assignment], earlier, 0, "cpu")
    same = earlier.complete and {record.key for record in earlier.records} == {task.key for task in assignment.tasks}
    left = {task.key for each in resumed.rest for task in each.tasks}
    return earlier if same and not left & applicable else None


def _as_json(trend: Trend) -> dict[str, Any]:
    return {
        "implementation": trend.implementation,
        "versions": [
            {
                "version": point.label,
                "absent": point.absent,
                "outcomes": {outcome.value: count for outcome, count in point.outcomes.items()},
                "largest": point.largest,
                "same_bits": trend.same_bits(number),
            }
            for number, point in enumerate(trend.points)
        ],
        "changes": [_change_as_json(change) for change in trend.changes],
    }


def _change_as_json(change: History) -> dict[str, Any]:
    return {
        "sentence": change.sentence,
        "worse": change.worse,
        "spans": [
            {"from": first, "to": last, "kind": state.kind, "names": state.names, "detail": state.detail}
            for first, last, state in change.spans
        ],
        "checks": [dict(zip(("case", "dtype", "check"), key, strict=True)) for key in change.keys],
    }

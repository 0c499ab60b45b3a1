"""`conform summarize`: a run in the formats that CI systems read."""

import sys
from pathlib import Path

import click

from encoder_conformance.commands.options import ANY_PATH, NamedPath, print_json
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import replace_file, writable
from encoder_conformance.platform.paths import working_directory
from encoder_conformance.reports.ci.annotations import annotations
from encoder_conformance.reports.ci.counted import summary
from encoder_conformance.reports.ci.junit import junit
from encoder_conformance.reports.ci.markdown import badge, markdown, verdict
from encoder_conformance.reports.run.folder import LATEST, RUNS
from encoder_conformance.reports.run.journal import NAME as JOURNAL
from encoder_conformance.reports.run.reading import read_report, report_file

_EXAMPLES = """
\b
Examples:
  conform summarize --junit junit.xml
  conform summarize conform-report/20261101T080000Z --badge conform.svg
  conform summarize --markdown - >> "$GITHUB_STEP_SUMMARY"
  conform summarize --annotations
"""
_FILE = NamedPath(dir_okay=False, allow_dash=True)


@click.command(epilog=_EXAMPLES)
@click.argument("run", default=RUNS / LATEST, type=ANY_PATH)
@click.option("--junit", "junit_file", type=_FILE, help="JUnit XML: a suite for each implementation.")
@click.option("--markdown", "markdown_file", type=_FILE, help="Markdown: failures and their diagnosis first.")
@click.option("--badge", "badge_file", type=_FILE, help="An SVG image: how many checks conform.")
@click.option("--json", "as_json", is_flag=True, help="Counts, causes and versions as JSON, on standard output.")
@click.option("--annotations", "annotated", is_flag=True, help="GitHub's workflow commands, on standard output.")
def summarize(
    run: Path,
    junit_file: Path | None,
    markdown_file: Path | None,
    badge_file: Path | None,
    as_json: bool,
    annotated: bool,
) -> None:
    """Write a run's report as CI reads it. RUN: its folder or report.json; default: the last run without --out.

    FILE - is standard output. The exit status is 0 whatever the run found: `conform run` has said it.
    """
    report = read_report(run)
    if not (annotated or as_json or junit_file or markdown_file or badge_file):
        hint = "--junit FILE, --markdown FILE, --badge FILE, --json or --annotations"
        raise InputError(f"choose a format for: {verdict(report)}", where=str(run), hint=hint)
    _require_others(run, [file for file in (junit_file, markdown_file, badge_file) if file])
    if junit_file is not None:
        _write(junit_file, junit(report))
    if markdown_file is not None:
        _write(markdown_file, markdown(report).encode())
    if badge_file is not None:
        _write(badge_file, badge(report).encode())
    if as_json:
        print_json(summary(report))
    if annotated:
        for line in annotations(report, working_directory()):
            click.echo(line)


def _require_others(run: Path, files: list[Path]) -> None:
    """Raises InputError for a file that would replace the run's own, or another of these."""
    own = report_file(run).resolve()
    named = [file.resolve() for file in files if str(file) != "-"]
    for file in named:
        if file in (own, own.with_name(JOURNAL)):
            raise InputError("is the run itself", where=str(file), hint="name another file")
        if named.count(file) > 1:
            raise InputError("is named twice", where=str(file), hint="name a file for each format")


def _write(file: Path, data: bytes) -> None:
    if str(file) == "-":
        sys.stdout.buffer.write(data)
        return
    with writable(str(file)):
        replace_file(file, data)

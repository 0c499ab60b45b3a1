"""A run as annotations: workflow commands that GitHub shows at a line of the adapter or of its manifest."""

from collections.abc import Iterator
from pathlib import Path

from encoder_conformance.judging.records import Judged, Report
from encoder_conformance.reports.run.terminal import diagnosis_text
from encoder_conformance.spec.outcome import Outcome

_MOST = 10
"""GitHub shows no more of one step."""


def annotations(report: Report, root: Path) -> list[str]:
    """At most ten workflow commands: each diagnosis, then each implementation that fails without one. `root`: the
    folder that files are named from, which is the repository's."""
    return list(_commands(report, root))[:_MOST]


def _commands(report: Report, root: Path) -> Iterator[str]:
    by_name = {implementation.name: implementation for implementation in report.implementations}
    for diagnosis in report.diagnoses:
        implementation = by_name[diagnosis.implementation]
        title = f"{diagnosis.implementation} {diagnosis.dtype}: {diagnosis.confidence}"
        yield _command(implementation, root, diagnosis.first_stage or "", title, diagnosis_text(diagnosis))
    explained = {diagnosis.implementation for diagnosis in report.diagnoses}
    for name, implementation in by_name.items():
        of_it = (record for record in report.records if record.implementation == name)
        failed = [record for record in of_it if record.outcome.category == "bad"]
        if not failed or name in explained:
            continue
        first, more = failed[0], len(failed) - 1
        word = first.stage or ""
        if first.outcome is Outcome.STALE and first.deviations:
            word = first.deviations[0]  # the manifest declares it
        rest = f" … and {more} more checks" if more else ""
        text = f"{first.case} {first.dtype} {first.check}: {first.outcome.value}: {first.message}{rest}"
        title = f"{name}: {len(failed)} checks do not conform"
        yield _command(implementation, root, word, title, text)


def _command(implementation: Judged, root: Path, word: str, title: str, text: str) -> str:
    file, line = _place(Path(implementation.folder), word) if implementation.folder else (None, 1)
    properties = {"title": title}
    if file is not None:
        shown = file.relative_to(root) if file.is_relative_to(root) else file
        properties = {"file": shown.as_posix(), "line": str(line), **properties}
    escaped = {name: _data(value).replace(":", "%3A").replace(",", "%2C") for name, value in properties.items()}
    return f"::error {','.join(map('='.join, escaped.items()))}::{_data(text)}"


def _place(folder: Path, word: str) -> tuple[Path | None, int]:
    """The first line of the adapter or manifest that has the word; else the adapter's first class or function."""
    files = [file for file in (folder / "adapter.py", folder / "impl.yaml") if file.is_file()]
    lines = [
        (file, number, line)
        for file in files
        for number, line in enumerate(file.read_text("utf-8", "replace").splitlines(), 1)
    ]
    having = [(file, number) for file, number, line in lines if word and word in line]
    beginning = [(file, number) for file, number, line in lines if line.startswith(("class ", "def ", "name:"))]
    return next(iter(having + beginning), (None, 1))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")

"""Verdicts of earlier commands: a module that is checked again as it was is not asked again.

A verdict holds as long as nothing that it rests on has changed: the command, the machine, the environment variables,
this program, every file that the worker read, and all files at and below the working directory and the target's folder.
"""

import os
import platform
import sys
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from encoder_conformance.commands.check.results import CheckResult
from encoder_conformance.commands.check.stated import TRANSFORMERS, CheckRequest
from encoder_conformance.commands.check.unchanged import TooManyFiles, Unchanged, names_in, state_below, state_of
from encoder_conformance.platform.kept import KeptFiles
from encoder_conformance.platform.paths import IMPLS, PACKAGE, SPECS
from encoder_conformance.platform.recent import cache_folder
from encoder_conformance.protocol.files_read import FilesReadAnswer
from encoder_conformance.reports.run.folder import RUNS
from encoder_conformance.spec.strict import Frozen

VERDICTS = KeptFiles("verdicts", room=64 << 20)
_OF_A_SHELL = frozenset({"_", "SHLVL", "OLDPWD", "COLUMNS", "LINES"})
"""Environment variables that differ between commands of one shell, and are of no module's concern."""


class _KeptVerdict(Frozen):
    """`below`: folder → a digest of all that is at and below it."""

    result: CheckResult
    read: Unchanged
    below: dict[Path, str]


class Verdicts:
    """The verdicts on one request. It is made before the module is imported: what changes later is noticed."""

    def __init__(self, request: CheckRequest, out: Path) -> None:
        """`out`: the folder of this command's own files."""
        self._began = time.time_ns()
        self._request = request
        self._besides = (RUNS.name, str(out.absolute()), str(cache_folder("")))
        self._before = self._below()

    @cached_property
    def _key(self) -> list[object]:
        asked = repr(replace(self._request, jobs=1))
        environment = sorted((name, value) for name, value in os.environ.items() if name not in _OF_A_SHELL)
        return [asked, sys.executable, *platform.uname(), os.cpu_count(), environment]

    def recalled(self) -> CheckResult | None:
        """The verdict of an earlier command, where all that it rests on is as it was."""
        content = VERDICTS.get(self._key)
        with suppress(ValidationError):  # it was written by another version of this program
            kept = _KeptVerdict.model_validate_json(content) if content is not None else None
            if kept is not None and kept.below == self._before and kept.read.still(self._besides):
                return _as_made(kept.result)
        return None

    def keep(self, result: CheckResult, read: FilesReadAnswer | None) -> None:
        """Keep the verdict of this command, where it would be the same the next time, as far as anybody can tell."""
        if read is None or read.beyond or self._before is None or not _is_settled(self._request, result):
            return
        given = [self._request.inputs, *self._request.pythons.values()]
        files = {*map(Path, read.files), *(self._request.folder / each for each in given if each)}
        unchanged = Unchanged(
            files={path: state_of(path) for path in sorted(files)},
            names={path: names_in(path, self._besides) for path in map(Path, read.folders)},
        )
        moment = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        kept = result.model_copy(update={"kept_since": moment})
        if unchanged.older_than(self._began) and self._below() == self._before:
            verdict = _KeptVerdict(result=kept, read=unchanged, below=self._before)
            VERDICTS.put(self._key, verdict.model_dump_json().encode())
            VERDICTS.forget_oldest()

    def _below(self) -> dict[Path, str] | None:
        """What a module may read without a trace, and this program; None where it is too much to look at."""
        folder, target = self._request.folder, self._request.target
        named = folder / (
            target.removeprefix(TRANSFORMERS) if target.startswith(TRANSFORMERS) else target.rpartition(":")[0]
        )
        own = [named.resolve()] if named.is_dir() else [named.resolve().parent] if named.is_file() else []
        folders = {folder, *own, PACKAGE, IMPLS, SPECS}
        with suppress(TooManyFiles):
            return {path: state_below(path, self._besides) for path in sorted(folders)}
        return None


def _is_settled(request: CheckRequest, result: CheckResult) -> bool:
    """Whether it was judged by one worker, which answered everything, and everything in one way."""
    alone = not request.also and request.like is None
    answered = all(record.outcome.state != "no answer" for part in result.parts for record in part.records)
    two_answers = any(part.described.is_two_answers for part in result.parts)
    return alone and answered and not two_answers and result.status < 2


def _as_made(result: CheckResult) -> CheckResult:
    """The result with the decimal of each epsilon, whose float32 a layer is read back with."""
    parts = [
        part if part.layer is None else part.model_copy(update={"layer": part.layer.with_decimal_epsilon})
        for part in result.parts
    ]
    return result.model_copy(update={"parts": tuple(parts)})

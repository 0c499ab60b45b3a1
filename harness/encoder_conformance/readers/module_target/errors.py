"""The problems of a target: why it names no module that can be judged, and where its own code failed."""

import traceback
from pathlib import Path

from encoder_conformance.platform.paths import PACKAGE, ROOT
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Problem

_OURS = (str(PACKAGE.resolve()), str((ROOT / "impls").resolve()))
_FRAMES = 3


class BadTarget(Exception):
    """The target names no module that can be judged: what is wrong, and what to do. `about`: the facts of that."""

    def __init__(self, problem: str, hint: str = "", kind: FindingKind = "not-callable", **about: object) -> None:
        super().__init__(problem)
        self.problem, self.hint, self.kind, self.about = problem, hint, kind, about

    def as_problem(self) -> Problem:
        """As the harness is told it."""
        return Problem(message=self.problem, hint=self.hint, kind=self.kind, about=self.about)


def error_line(error: BaseException) -> str:
    """The error in one line, as a sentence quotes it."""
    return (f"{type(error).__name__}: {error}".strip().splitlines() or [""])[0].removesuffix(":")


def last_frames(error: BaseException) -> str:
    """The error and the last frames of its traceback that are not this program's own."""
    frames = [
        f"{frame.filename}:{frame.lineno}, in {frame.name}: {frame.line}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not str(Path(frame.filename).resolve()).startswith(_OURS)
        and "importlib" not in frame.filename
        and not frame.name.endswith("_call_impl")
    ]
    said = str(error).strip().partition("\n\n")[0]  # a compiler's advice follows, and places of this program
    text = f"{type(error).__name__}: {said}".strip().removesuffix(":")
    if isinstance(error, SystemExit):
        text = f"it ends its own process, by {text}"
    return "\n".join([text, *(f"  {frame}" for frame in frames[-_FRAMES:])])

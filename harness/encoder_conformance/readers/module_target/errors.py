"""The problems of a target: why it names no module that can be judged, and where its own code failed."""

import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from functools import cache
from importlib.metadata import PackageNotFoundError
from linecache import getline
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from encoder_conformance.platform.paths import PACKAGE, ROOT, shown
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Problem
from encoder_conformance.readers.module_target.installing import install

_OURS = (str(PACKAGE.resolve()), str((ROOT / "impls").resolve()))
_OTHERS = tuple({str(Path(sysconfig.get_path(each)).resolve()) for each in ("stdlib", "purelib", "platlib")})
"""Where Python and what is installed lie: no files of the user's."""
_FRAMES = 3
_ALIKE = 0.8
"""How alike a name and a file's are that may be meant."""
_WRAPPERS = "_call_impl", "error_handler", "_with_checkpointing"
"""Functions by which PyTorch, Keras and transformers call a module's own."""
_BOLD = re.compile("\x1b\\[1m(.+?)\x1b\\[0m", re.DOTALL)
_ARRAY = re.compile(r"\b(tensor|array|Array)\(\s*\[[^()]*\)")
"""What PyTorch, NumPy and JAX print of an array."""
_NUMBERS = re.compile(r"\[[\[\]\s\d.,+\-einfa…]{60,}\]")
"""Numbers without a word, as NumPy prints an array in a text: more of them than a shape has."""
_REWRITTEN = "user code:\n"
_REWRITTEN_FROM = re.compile(r'File "([^"]+)", line (\d+), in (\S+)  \*\n([^\n]*)')
_RAISED = re.compile(r"^ *(\w+(?:Error|Exception): [^\n]+)", re.MULTILINE)
"""What TensorFlow says of an error in a function that it rewrote: lines of its source, with stars, and the error."""


class BadTarget(Exception):
    """The target names no module that can be judged: what is wrong, and what to do. `about`: the facts of that."""

    def __init__(self, problem: str, hint: str = "", kind: FindingKind = "not-callable", **about: object) -> None:
        super().__init__(problem)
        self.problem, self.hint, self.kind, self.about = problem, hint, kind, about

    def as_problem(self) -> Problem:
        """As the harness is told it."""
        return Problem(message=self.problem, hint=self.hint, kind=self.kind, about=self.about)


OF_ENCODERS = "the layers of encoders are judged, which take one sequence"
"""What is to be known of a layer of a decoder."""
MEND = "that line names what is not there: mend it, or have the version of the library that it was written for"
"""What to do about such an error, whatever a module is given."""
MISCALLED = (
    "that line gives what it calls more arguments than that takes: mend it, or have the version of the library that it "
    "was written for"
)
"""What to do where a line of the module's calls a library's part as that was once called."""
SET_ELSEWHERE = (
    "that line reads what another class of its file sets, as a model does in its parts: check what sets it, and name "
    "the part with --at PATH"
)
"""What to do where a part lacks what is set in it from without."""
MEND_WHATEVER = (
    "that is raised whatever it is given: mend that line, or have the version of the library that it was written for"
)


def names_nothing(error: Exception, *own: type) -> bool:
    """Whether a line names what nothing has: no library, no scope, and no object of the module's `own` kinds. Keras
    raises another error of the same kind, which knows of no object."""
    caught = error.__context__
    if isinstance(error, AttributeError) and isinstance(caught, AttributeError) and error.obj is None:
        return names_nothing(caught, *own)
    if isinstance(error, AttributeError):
        return isinstance(error.obj, (ModuleType, *own))
    return isinstance(error, NameError | ImportError)


def mending(error: Exception, *own: type) -> str:
    """What to do about an error that names what is not there, or calls what takes fewer arguments, whatever a module is
    given; "" of another error."""
    if isinstance(error, ModuleNotFoundError) and (added := to_add(error)):
        return added
    if not names_nothing(error, *own):
        return MISCALLED if isinstance(error, TypeError) and _is_called_with_too_many(error) else ""
    return SET_ELSEWHERE if isinstance(error, AttributeError) and _is_set_elsewhere(error) else MEND


def to_add(error: ModuleNotFoundError) -> str:
    """The command that adds what an import did not find, and a file of nearly that name beside the one that imports it;
    "" where a package that is there lacks a part."""
    top = (error.name or "").partition(".")[0]
    if not top or top in sys.modules:
        return ""
    importing = next((Path(each.function[0]) for each in reversed(places_of(error))), None)
    beside = [] if importing is None else [each.stem for each in importing.parent.glob("*.py")]
    if importing is not None and isinstance(error, PackageNotFoundError) and importing.parent.name == top:
        return f"it asks for what an installed package alone has: pip install -e {shown(importing.parent.parent)}"
    if importing is not None and top in beside:
        return f"{top}.py lies beside it, where Python does not look: PYTHONPATH={shown(importing.parent)}"
    alike = get_close_matches(top, beside, n=1, cutoff=_ALIKE)
    return f"{install(top)}, unless it is a file of yours" + "".join(f": did you mean {each}?" for each in alike)


def _is_called_with_too_many(error: TypeError) -> bool:
    """Whether a line of the user's gives more than is taken, or what is not taken by its name, in so many words: no `*`
    hands on what it was given."""
    own = [each for each in traceback.extract_tb(error.__traceback__) if not _is_in(each, (*_OURS, *_OTHERS))]
    if unknown := re.search(r"\(\) got an unexpected keyword argument '(\w+)'", str(error)):
        return bool(own) and re.search(rf"\b{unknown[1]}\s*=", _whole_statement(own[-1])) is not None
    if not re.search(r"\(\) takes .*positional arguments? but \d+ (was|were) given", str(error)):
        return False
    return bool(own) and "*" not in (own[-1].line or "")


def _whole_statement(frame: traceback.FrameSummary) -> str:
    """All lines of what a frame runs."""
    first = frame.lineno or 0
    return "".join(getline(frame.filename, number) for number in range(first, (frame.end_lineno or first) + 1))


def _is_set_elsewhere(error: AttributeError) -> bool:
    """Whether the file of the object's class sets such an attribute, or registers one of its name, in another class
    and of another object: what a class sets in itself it sets in none of its parts."""
    kind, name = type(error.obj), re.escape(error.name or "")
    try:
        file, own = inspect.getsource(sys.modules[kind.__module__]), inspect.getsource(kind)
    except (OSError, TypeError, KeyError):
        return False
    ways = rf"\.{name}\s*=(?!=)|\.(register_\w+|add_module)\(\s*[\"']{name}[\"']"
    return bool(name) and bool(re.search(rf"([\])]|\b(?!self\b)\w+)({ways})", file.replace(own, "")))


class LineReached(NamedTuple):
    """A line of a function, and the instruction there: of a call over several lines the arguments come first, and the
    call's own line may stand before them."""

    function: tuple[str, str]
    line: int
    instruction: int = 0


def places_of(error: BaseException, files: Collection[str] = ()) -> tuple[LineReached, ...]:
    """The lines of the user's source that an error went through, the outermost first. `files`: of what is installed
    those that are a module's own."""
    frames, instructions = traceback.extract_tb(error.__traceback__), _instructions(error)
    return tuple(
        LineReached((each.filename, each.name), each.lineno or 0, instruction)
        for each, instruction in zip(frames, instructions, strict=False)
        if not _is_in(each, _OURS) and (each.filename in files or not _is_in(each, _OTHERS))
    )


def _instructions(error: BaseException) -> Iterator[int]:
    """That of each frame, the outermost first."""
    frame = error.__traceback__
    while frame is not None:
        yield frame.tb_lasti
        frame = frame.tb_next


def raised_by_a_library(error: BaseException) -> bool:
    """Whether what is installed raises it, and no line of the user's."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and _is_in(frames[-1], _OTHERS)


def error_line(error: BaseException) -> str:
    """The error in one line, as a sentence quotes it."""
    return (f"{type(error).__name__}: {_said(error)}".strip().splitlines() or [""])[0].removesuffix(":")


def _said(error: BaseException) -> str:
    """What it says itself, without the numbers of arrays: Keras puts in bold what it caught, between where that was and
    what was given."""
    caught = _BOLD.search(str(error))
    said = caught.group(1) if caught else str(error)
    return _NUMBERS.sub("[…]", _ARRAY.sub(r"\1(…)", said))


def _in_user_code(error: BaseException) -> str:
    """What was raised in a function that TensorFlow rewrote, and the last lines of its source, which TensorFlow puts
    into the text of the error: the frames are of what it wrote. "" of another error."""
    said = str(error)
    if _REWRITTEN not in said:
        return ""
    raised = [each for each in _RAISED.findall(said) if "Exception encountered when calling" not in each]
    lines = [each for each in _REWRITTEN_FROM.findall(said) if not is_installed(Path(each[0]))]
    shown = [f"  {file}:{line}, in {name}: {code.strip()}" for file, line, name, code in lines[-_FRAMES:]]
    return "\n".join([*raised[-1:], *shown]) if raised and shown else ""


def last_frames(error: BaseException) -> str:
    """The error and the last frames of its traceback that are not this program's own.

    One of the user's is among them, if there is any: what a library does inside is no place that they can mend. What
    ends the process in a library, as a parser of command lines does, was called there.
    """
    if rewritten := _in_user_code(error):
        return rewritten
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not _is_in(frame, _OURS) and "importlib" not in frame.filename and not frame.name.endswith(_WRAPPERS)
    ]
    said = _said(error).strip().partition("\n\n")[0]  # a compiler's advice follows, and places of this program
    text = f"{type(error).__name__}: {said}".strip().removesuffix(":")
    own = max((at for at, frame in enumerate(frames) if not _is_in(frame, _OTHERS)), default=None)
    last = frames[-_FRAMES:] if own is None else [frames[own], *frames[max(own + 1, len(frames) - _FRAMES + 1) :]]
    if own is not None and len(frames) - own <= _FRAMES:
        last = frames[-_FRAMES:]
    if isinstance(error, SystemExit):
        text = f"it ends its own process, by {text}"
        last = frames[: own + 1][-_FRAMES:] if own is not None else last
    return "\n".join([text, *(f"  {each.filename}:{each.lineno}, in {each.name}: {each.line}" for each in last)])


def raised_at(problem: str) -> tuple[str, str]:
    """What such a text says was raised, and the last line of the user's on the way there: where a mask is handed on to
    a part, that is the part's."""
    first, *frames = map(str.strip, problem.splitlines())
    own = [each for each in frames if not is_installed(Path(each.partition(":")[0]))]
    return first, next(iter((own or frames)[-1:]), "")


def is_installed(folder: Path) -> bool:
    """Whether what lies there is Python's own, or installed: no code of the user's."""
    return str(folder.resolve()).startswith(_OTHERS)


def _is_in(frame: traceback.FrameSummary, folders: tuple[str, ...]) -> bool:
    return _resolved(frame.filename).startswith(folders)


@cache
def _resolved(path: str) -> str:
    """A call that is tried with many arguments raises in the same few files, and each link of a path is looked up."""
    return str(Path(path).resolve())


def needs_cuda(problem: str) -> bool:
    """Whether what is raised is about CUDA: modules are called on the CPU."""
    return "cuda" in problem.lower()


def is_at_import(error: BaseException) -> bool:
    """Whether it was raised as a file of the user's was imported."""
    return any(frame.name == "<module>" for frame in traceback.extract_tb(error.__traceback__))

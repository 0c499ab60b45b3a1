"""The findings of a reader and of the harness: one problem or fact each, in text that is safe to print."""

import math
import re
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field

from encoder_conformance.platform.errors import InputError
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.spec.strict import Frozen

Phase = Literal[
    "file", "checker", "operators", "interface", "dimensions", "loads", "layer", "shapes", "masks", "numbers", "whole",
    "source", "levels", "properties", "history", "reduction", "cost",
]  # fmt: skip
PHASES: tuple[Phase, ...] = get_args(Phase)
"""The phases of a validation, in the order in which a file goes through them."""

Severity = Literal["error", "warning", "note"]
"""An error: the subject is wrong. A warning: somebody will stumble, or it is unusual. A note: a fact."""


_LINE = re.compile(r"([^:]+):(\d+)(?::|$)")
"""A place in the user's source: `model.py:12: return x`."""


def plain(text: str) -> str:
    """The text on one line, each character that is not printable as its escape: `\\n`, `\\x1b`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


Plain = Annotated[str, AfterValidator(plain)]
"""Text that a file or a worker chose, made safe to print: a terminal obeys control characters and newlines."""


def _as_json(value: object) -> Any:
    """The value as JSON has it: texts safe to print, tuples and sets as lists, None for a number that is not finite.

    Raises ValueError for what is none of these.
    """
    match value:
        case None | bool():
            return value
        case str():
            return plain(str(value))
        case BaseModel():
            return _as_json(value.model_dump())
        case Mapping():
            return {plain(str(key)): _as_json(each) for key, each in value.items()}
        case set() | frozenset():
            return sorted(map(_as_json, value))
        case list() | tuple():
            return [_as_json(each) for each in value]
        case Integral():
            return int(value)
        case Real():
            return float(value) if math.isfinite(value) else None
    raise ValueError(f"{type(value).__name__} is no value of JSON")


About = Annotated[Mapping[str, Any], AfterValidator(_as_json)]
"""The facts that a message puts into words, by plain keys: names, sizes, formats. Each is a value of JSON."""


class Finding(Frozen):
    """One problem or fact: what and where it is, and what to do about it.

    A program goes by `kind` and `about`; `message` and `hint` are for people, and their words change.
    """

    severity: Severity
    kind: FindingKind
    message: Plain
    hint: Plain = ""
    about: About = Field(default_factory=dict)

    def __hash__(self) -> int:
        """Of what is not a mapping: findings are told once."""
        return hash((self.severity, self.kind, self.message, self.hint))


def noted(kind: FindingKind, message: str, **about: object) -> Finding:
    """A fact that is worth a word, and nothing to do about."""
    return Finding(severity="note", kind=kind, message=message, about=about)


class PhaseFinding(Finding):
    """A finding of one phase of a validation. `runtimes`: the runs that alone show it, or a runtime; `out_of_line`:
    their numbers are. `deviation`: the one of the catalogue that it is."""

    phase: Phase
    runtimes: tuple[str, ...] = ()
    out_of_line: bool = False
    deviation: str | None = None

    def is_of(self, runtimes: Collection[str]) -> bool:
        """Whether it is of these runs alone, and says nothing of the file."""
        known = {*runtimes, *(name.partition(" ")[0] for name in runtimes)}
        return bool(self.runtimes) and known.issuperset(self.runtimes)


class NotRead(Frozen):
    """Why the graph is no layer's; `where`: the line of source, if it is known. `beyond`: whether it is for what no
    layer of the specification can be stated to have. `features`: the names of what is otherwise; `sentence`: the first
    of them in words, "" where none is known."""

    problem: str
    where: str
    beyond: bool = False
    features: tuple[str, ...] = ()
    sentence: str = ""

    @property
    def about(self) -> dict[str, object]:
        """Its facts, for a finding."""
        return {"features": self.features, "beyond": self.beyond, **source_of(self.where)}


class SourceLine(Frozen):
    """A line of the user's source: its file's name, and its number, from 1."""

    file: Plain
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @classmethod
    def of(cls, place: str) -> "SourceLine | None":
        """That of a place as `model.py:12`, with or without the code that stands there; None of "", which is none."""
        found = _LINE.match(place)
        return cls(file=found[1], line=int(found[2])) if found else None


def source_of(place: str) -> dict[str, object]:
    """The fact `source` of a place as `model.py:12`; {} where it is not known."""
    line = SourceLine.of(place)
    return {} if line is None else {"source": line.model_dump()}


def said_at(place: str) -> str:
    """` (model.py:12)`, as it stands behind what a message says; "" where the place is not known."""
    return f" ({place})" if place else ""


class Problem(Frozen):
    """Why nothing could be examined, and what to do. `about`: the facts of the message."""

    message: str
    hint: str
    kind: FindingKind = "not-callable"
    about: About = Field(default_factory=dict)

    def error(self, where: str) -> InputError:
        return InputError(self.message, where=where, hint=self.hint)

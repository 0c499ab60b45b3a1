"""Which of several calls that failed came furthest: the error of that one tells most of what is amiss."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple

from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.errors import LineReached, mending, places_of
from encoder_conformance.readers.module_target.forms_of_x import Arrays
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.returned import OtherShape
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

OF_A_VIEW = "view size is not compatible with input tensor's size and stride"
"""Words of what a form of its arguments is not the cause of: heads that were transposed are viewed as they lie."""
_OF_FRAMEWORKS = "torch", "keras", "tensorflow", "flax", "equinox", "jax", "haiku", "builtins"
"""Packages whose lines are no module's own."""


class Reached(NamedTuple):
    """How far a module's call came: the lines of the user's source that it was in, the outermost first, and how many
    functions it had called. `answered`: it came to its end, and gave another shape. `mend`: what to do where
    it raised that a line names what is not there, whatever it is given."""

    places: tuple[LineReached, ...] = ()
    calls: int = 0
    answered: bool = False
    mend: str = ""

    def is_beyond(self, other: "Reached") -> bool:
        """A later step of one function is further. Else the calls tell: what fails in a function that a line calls may
        be before what fails in the line itself."""
        if self.answered != other.answered:
            return self.answered
        for one, another in zip(self.places, other.places, strict=False):
            if one != another and one.function == another.function:
                return one.instruction > another.instruction
            if one != another:
                break
        return self.calls > other.calls


@dataclass(frozen=True)
class Failed:
    """A call that raised: how it was called, with which x, how far it came, and what it raised."""

    arrangement: Arrangement
    x: Array
    reached: Reached
    problem: str


@dataclass(frozen=True)
class _Watched(Arrangement):
    """Notes how far the module came before it raised. `own`: the kinds of its parts."""

    reached: list[Reached] = field(default_factory=list, compare=False)
    own: tuple[type, ...] = ()

    def call(
        self, module: Callable[..., Any], x_name: str, x: Any, given: Mapping[str, Any], arrays: Arrays
    ) -> tuple[Any, Any]:
        def watched(*inputs: Any, **named: Any) -> Any:
            calls, before = 0, sys.getprofile()

            def called(frame: object, event: str, argument: object) -> None:
                nonlocal calls
                calls += event in ("call", "c_call")

            sys.setprofile(called)
            try:
                return module(*inputs, **named)
            except Exception as error:
                sys.setprofile(before)
                places = places_of(error, _files_of(self.own))
                self.reached.append(Reached(places, calls, mend=mending(error, *self.own)))
                raise
            finally:
                sys.setprofile(before)

        return super().call(watched, x_name, x, given, arrays)


@cache
def _files_of(kinds: tuple[type, ...]) -> frozenset[str]:
    """Those that define what a module is made of, but for a framework's own: a module may be one that is installed."""
    own = (each.__module__ for each in kinds if each.__module__.partition(".")[0] not in _OF_FRAMEWORKS)
    files = (getattr(sys.modules.get(each), "__file__", None) for each in own)
    return frozenset(each for each in files if each)


def watched(arrangement: Arrangement, own: tuple[type, ...] = ()) -> tuple[Arrangement, list[Reached]]:
    """The same call, which notes how far the module came, each time that it raises."""
    reached = list[Reached]()
    held = {each.name: getattr(arrangement, each.name) for each in fields(Arrangement)}
    return _Watched(**held, reached=reached, own=own), reached


def furthest(module: LiveModule, tries: Iterable[tuple[Arrangement, Array]]) -> Failed | None:
    """Of these calls that which came furthest, of several the first; None where none of them fails. What no argument is
    the cause of stands before all."""
    best: Failed | None = None
    own, held = tuple({type(each) for each in module.objects()}), module.held()
    for arrangement, x in tries:
        noted, reached = watched(arrangement, own)
        if (other := module.arranged(noted)) is None:
            return None
        try:
            other.run({"x": x})
        except ExecutionError as error:
            if held is not None:
                held.restore()
            found = reached[-1] if reached else Reached(answered=isinstance(error, OtherShape))
            if OF_A_VIEW in str(error):
                return Failed(arrangement, x, found, str(error))
            if best is None or found.is_beyond(best.reached):
                best = Failed(arrangement, x, found, str(error))
    return best

"""Which numbers of positions a module takes, where it does not take any."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from encoder_conformance.protocol.findings import Finding, noted, source_of
from encoder_conformance.readers.module_target.errors import is_installed
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.probing import drawn
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.locality import LENGTHS as BEYOND_WINDOWS
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE
from encoder_conformance.spec.axes import Array

LENGTHS = (
    8, 16, 4, 32, 64, 7, 49, 6, 12, 24, 48, 9, 36, 10, 20,
    40, 50, 14, 28, 56, 60, 25, 30, 18, 27, 54, 63, 17, 65,
    196, 197, 256, 257,
)  # fmt: skip
"""Numbers of positions that are tried where 5 are refused; the last are the patches of usual images, and a token."""
LONGEST_TRIED = 65
_SHAPE = "shape"
"""That of what a norm or a mask is of: its rows may be as many as there are positions."""
_OF_LENGTH = ("resolution", "size", "len", "seq", "patches", "tokens", "positions", "context", _SHAPE)
"""Words in the names of attributes that say how many positions it takes."""
_LONGEST_SAID, _MOST_SAID = 1024, 12
_REFUSING = re.compile(r"\s*(.+):(\d+), in .+?: (raise|assert)\b")
"""A frame that raises an error of its own, as `errors` tells it."""


def lengths_said(parts: Iterable[object]) -> tuple[int, ...]:
    """Numbers of positions that attributes of a module's parts may say: of a map of so many rows and columns, or as
    they are."""
    found = dict[int, None]()
    for name, value in (each for part in parts for each in _held_by(part).items()):
        if not any(word in name.lower() for word in _OF_LENGTH):
            continue
        sides = value if isinstance(value, tuple | list) else (value, 1)
        if len(sides) == 3 and sides[0] is None:  # [batch, sequence, features], as Keras says what it takes
            sides = (sides[1], 1)
        if len(sides) == 2 and all(isinstance(each, int) and not isinstance(each, bool) for each in sides):
            rows = (sides[0],) if name.endswith(_SHAPE) else ()
            found |= dict.fromkeys((*rows, sides[0] * sides[1], sides[0] ** 2))
    return tuple(each for each in found if 1 < each <= _LONGEST_SAID)[:_MOST_SAID]


def _held_by(part: object) -> Mapping[str, object]:
    """Its attributes; none where it keeps them elsewhere."""
    return dict(getattr(part, "__dict__", {}))


def lengths_taken(module: LiveModule, x: Array) -> tuple[int, ...]:
    """The numbers of positions up to 65 that it takes, as it takes x, and that of x; () where it is taken with 5 as any
    is, and with one more or less. Of what a file has a number for so many positions, all up to that."""
    longest = min((each.longest for each in module.signature.arrangement.beside.values() if each.longest), default=0)
    beside = (drawn((BATCH, SEQUENCE + more, x.shape[-1])) for more in (1, -1))
    if x.shape[1] == SEQUENCE and not longest and any(module.takes(each) for each in beside):
        return ()
    tried = dict.fromkeys((*range(1, (longest or LONGEST_TRIED) + 1), *(() if longest else (x.shape[1],))))
    return tuple(n for n in tried if module.takes(drawn((BATCH, n, x.shape[-1]))))


def lengths_asked(
    module: LiveModule, x: Array, semantics: InputSemantics, notes: tuple[Finding, ...]
) -> tuple[tuple[int, ...], tuple[Finding, ...]]:
    """The numbers of positions that a check asks of a layer that takes not all that others are asked, and the `notes`
    with what is to be said of that; () of what takes all. `x`: one that it takes, of these `semantics`."""
    if up_to_most := _lengths_up_to_most(module, x):
        return up_to_most, notes
    least, line = _least(module, semantics)
    if least == 1:
        return (), notes
    said = f"it refuses {'one position' if least == 2 else f'fewer than {least} positions'} itself ({line})"
    note = noted("few-positions-refused", f"{said}: it is asked from {least} on", least=least, **source_of(line))
    return tuple(range(least, BEYOND_WINDOWS[0] + 1)), (*notes, note)


def _lengths_up_to_most(module: LiveModule, x: Array) -> tuple[int, ...]:
    """All numbers of positions up to the most that it takes, where those are fewer than a check asks; () where they are
    not. `x`: one that it takes."""
    taken, refused = x.shape[1], BEYOND_WINDOWS[0]
    if module.takes(drawn((BATCH, refused, x.shape[-1]))):
        return ()
    while refused - taken > 1:
        middle = (taken + refused) // 2
        taken, refused = (middle, refused) if module.takes(drawn((BATCH, middle, x.shape[-1]))) else (taken, middle)
    return tuple(range(1, taken + 1))


def _least(module: LiveModule, semantics: InputSemantics) -> tuple[int, str]:
    """The least number of positions that no line of the user's own refuses, and that line: what breaks at few positions
    without such a word is a mistake. 1, and "", where none does."""
    least, line = 1, ""
    while least < semantics.S and (at := _refused_at(module, drawn(semantics.x_shape(semantics.B, least)))):
        least, line = least + 1, at
    return least, line


def _refused_at(module: LiveModule, x: Array) -> str:
    """The line of the user's, `model.py:12`, that refuses x [B, S, D], or as it lies; "" where none does."""
    try:
        module.run({"x": x})
    except ExecutionError as error:
        found = _REFUSING.match(str(error).splitlines()[-1])
        own = found is not None and not is_installed(Path(found[1]).parent)
        return f"{Path(found[1]).name}:{found[2]}" if found is not None and own else ""
    return ""

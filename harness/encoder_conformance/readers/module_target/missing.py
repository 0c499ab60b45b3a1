"""Tells for which of its arguments, left at None, a call fails: by what it raises where another value stands there."""

from collections.abc import Iterable

from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.supplies import Supply
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array


class _Unknown:
    """What nothing can be computed with: it is refused where it is first read."""


_UNKNOWN = Supply("value", value=_Unknown())


def missed_by(module: LiveModule, arrangement: Arrangement, x: Array, names: Iterable[str]) -> list[str]:
    """Those of `names` that such a call, which fails, fails for: of another value it raises something else in the same
    line. What is not read there changes nothing, and what may be None is refused in another line."""
    known = _raised(module, arrangement, x)
    others = ((name, arrangement.giving({name: _UNKNOWN})) for name in names)
    raised = ((name, _raised(module, other, x)) for name, other in others)
    return [name for name, (said, place) in raised if place == known[1] and said != known[0]]


def _raised(module: LiveModule, arrangement: Arrangement, x: Array) -> tuple[str, str]:
    """What a call raises, and where; "" where it raises nothing."""
    if (other := module.arranged(arrangement)) is None:
        return "", ""
    try:
        other.run({"x": x})
    except ExecutionError as error:
        said, *frames = str(error).splitlines()
        return said, frames[-1] if frames else ""
    return "", ""

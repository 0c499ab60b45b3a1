"""The format in which a module takes x and answers as it was given, where its parameters or its work are narrow."""

from collections.abc import Iterable

from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName, dtype_named

_PLAIN = ({"float32"}, {"float64"}, set[str]())
"""Formats of all parameters in which any copy is as the module itself."""


def format_as_given(module: LiveModule, x: Array) -> DtypeName | None:
    """The format of x in which it answers as it was given; None where a copy in float32 or float64 is the same.

    `x`: in the layout that it takes, in float32. From here on `module` and its copies know that format.

    Raises BadTarget for parameters in several formats with which it takes no x.
    """
    held = {*module.formats.values()} & {*FORMATS}
    computed, inside = _output_format(module, x), module.narrow_inside({"x": x})
    plain = held in _PLAIN and computed in ("float32", "float64")
    if plain and not inside:
        return None
    problem = ""
    for name in _narrowest_first({*(inside if plain else (*held, computed))} & {*FORMATS}):
        module.own_format = name
        try:
            as_given = module.in_dtype(name)
            if _output_format(as_given, x.astype(FORMATS[name].numpy)) == name:
                return dtype_named(name)
        except ExecutionError as error:
            problem = problem or str(error)
    module.own_format = ""
    if plain:
        return None  # it goes on in a wide one: what it casts to inside is seen where it is read
    named = " and ".join(_narrowest_first(held))
    said = problem or f"it answers in {computed}"
    hint = "give it in one format, and that is judged: .to(torch.float32), say"
    problem = f"its parameters are in {named}, and so it takes no x in one of these: {said}"
    raise BadTarget(problem, hint, "takes-no-x", formats=sorted(held))


def _narrowest_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: -FORMATS[name].roundoff)


def _output_format(module: LiveModule, x: Array) -> str:
    """Raises ExecutionError."""
    return str(module.run({"x": x})["output"].dtype)

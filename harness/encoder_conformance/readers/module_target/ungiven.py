"""Finds out what of a module's arguments changes its output, of those that it is judged without."""

from collections.abc import Iterable

import numpy as np

from encoder_conformance.protocol.arguments import UngivenArgument, axes_text
from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.masking import shape_at
from encoder_conformance.readers.module_target.probing import drawn
from encoder_conformance.readers.module_target.supplies import BIAS
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.spec.axes import Array

_COUNTED = ("S", "BS", "B", "1S", "SS", "1SS", "BSS")
"""Axes of positions, of lengths and of distances."""
_MEASURED = (
    *("BSD", "SBD", "SD", "1SD", "D", "BD"),
    *("BS", "BSS", "SS", "1SS", "HSS", "1HSS", "BHSS", "B1SS", "B11S", "S", "B", "H", "BSSD"),
    *("Sd", "1Sd", "BSd", "11Sd", "B1Sd", "BHSd", "2Sd", "21Sd", "2BSd", "211Sd", "2B1Sd", "2BHSd"),
    *("Se", "1Se", "BSe", "11Se", "2Se", "21Se", "2BSe"),
    *("Sf", "1Sf", "BSf", "11Sf"),
)
"""Axes of a second sequence, of biases of scores, of pairs of positions, and of angles: of each feature of a head or
each pair of them, and of sines and cosines in one, side by side or one after the other."""
_FORMS = (
    *(("int64", axes) for axes in _COUNTED),
    *(("float32", axes) for axes in _MEASURED),
    *(("bool", axes) for axes in ("BS", "B11S")),
)
_OF_SCORES = tuple(("float32", axes) for axes in ("BHSS", "1HSS", "HSS", "B1SS", "BSS", "SS"))
"""What a bias is given first: it is of scores, most often, and numbers of positions that are added to these change
them, too."""
FIXED = {"zeros": "zeros", "segment": "one segment", "full": "a mask that hides nothing", BIAS: "zeros"}
"""Kinds of what an argument is given, of which other values are not asked → the words for it."""
_ODD = (13, 11, 7)
"""A shape of nothing: what takes it, and answers as before, does not look at it."""
_CACHES = ("past", "cache")
"""Words in the names of what earlier calls left."""


def ungiven_arguments(
    runner: LiveModule, found: InputSemantics, num_heads: int, names: Iterable[str]
) -> tuple[UngivenArgument, ...]:
    """Each argument of `names`, which are left at their defaults, given as an array of every form that is plausible."""
    x = drawn(found.x_shape(found.B, found.S))
    feeds = {"x": x, **(found.open_masks() if found.causal else {})}
    before = runner.run(feeds)["output"]
    return tuple(_given(runner, found, num_heads, name, feeds, before) for name in names)


def _given(
    runner: LiveModule, found: InputSemantics, num_heads: int, name: str, feeds: dict[str, Array], before: Array
) -> UngivenArgument:
    """`before`: the output without it, in the shape of x."""
    outcomes, form = [_changes(runner, feeds, name, drawn(_ODD), before)], f"float32 {list(_ODD)}"
    supply = runner.signature.arrangement.beside.get(name)
    of_scores = "bias" in name.lower() or (supply is not None and supply.what == BIAS)
    own = [(supply.dtype, supply.axes)] if supply is not None and supply.kind == "full" else []
    forms = dict.fromkeys((*own, *(_OF_SCORES if of_scores else ()), *_FORMS))
    for dtype, axes in forms if outcomes[0] is not False else ():
        shape = shape_at(axes, found, num_heads)
        outcomes.append(_changes(runner, feeds, name, _values(dtype, shape), before) if all(shape) else None)
        if outcomes[-1]:
            of_one = axes.replace("d", "D") if num_heads == 1 else axes  # one head, or as many as are not known
            form = f"{dtype} {axes_text(of_one)}"
            break
    changes = True if any(outcomes) else False if False in outcomes else None
    cache = any(word in name.lower() for word in _CACHES)
    given = FIXED.get(supply.what or supply.kind, "") if supply is not None else ""
    return UngivenArgument(argument=name, changes=changes, form=form if changes else "", cache=cache, given=given)


def _changes(runner: LiveModule, feeds: dict[str, Array], name: str, value: Array, before: Array) -> bool | None:
    """Whether the output is another than `before`, in the shape of x, with this value of any shape; None: it is
    refused."""
    try:
        after = runner.run({**feeds, name: value})["output"]
    except ExecutionError:
        return None
    return differ(before, after)


def _values(dtype: str, shape: tuple[int, ...]) -> Array:
    """Numbers that no default has: places in reverse, normal numbers, or the first half true."""
    if dtype == "float32":
        return drawn(shape)
    count = np.broadcast_to(np.arange(shape[-1])[::-1], shape)
    return np.ascontiguousarray(count if dtype == "int64" else count >= shape[-1] // 2)

"""Which masks a module takes together alone, as of queries and keys, that are one mask for a sequence."""

from collections.abc import Iterator
from itertools import permutations, product

import numpy as np

from encoder_conformance.readers.module_target.calling import may_be_mask
from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.live import Feeds, LiveModule
from encoder_conformance.readers.module_target.probing import is_of_none
from encoder_conformance.readers.module_target.supplies import Supply
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array

_FORMS = (("BS", "B11S", "BSS", "SS", "B1SS"), ("bool", "float32", "int64"))


def with_masks_together(module: LiveModule, x: Array) -> LiveModule:
    """The same, given a mask in the place of a second, too, without which it does nothing with the first, or which
    fails without the first."""
    beside = module.signature.arrangement.beside
    names = [name for name in module.signature.masks if may_be_mask(name) and name not in beside]
    bare = module.bare()
    for first, second in permutations(names, 2):
        both = bare.giving({second: Supply("mask", what=first)})
        if both is not None and _belong_together(bare, both, (first, second), x):
            return module.giving({second: Supply("mask", what=first)}) or module
    return module


def _belong_together(alone: LiveModule, both: LiveModule, names: tuple[str, str], x: Array) -> bool:
    """Whether, in the first form in which both together hide something, neither does anything by itself; or the second
    fails without the first, and both give another output than the first alone."""
    plain = _answer(alone, {"x": x})
    for mask in _masks(x):
        together = _answer(both, {"x": x, names[0]: mask})
        if _is_other(together, plain):
            first, second = (_answer(alone, {"x": x, name: mask}) for name in names)
            needs_it = isinstance(second, str) and not _does_something(second, plain)
            return (needs_it and _is_other(together, first)) or not any(
                _does_something(each, plain) for each in (first, second)
            )
    return False


def _masks(x: Array) -> Iterator[Array]:
    """Masks that flag every second position of x [B, S, D], in the usual forms."""
    batch, sequence = x.shape[:2]
    sizes = {"B": batch, "S": sequence}
    for axes, dtype in product(*_FORMS):
        flags = np.arange(sequence) % 2 == 0
        yield np.broadcast_to(flags, [sizes.get(axis, 1) for axis in axes]).astype(dtype)


def _answer(module: LiveModule, feeds: Feeds) -> Array | str:
    """The output, or what is raised."""
    try:
        return np.asarray(module.run(feeds)["output"])
    except ExecutionError as error:
        return str(error)


def _is_other(answer: Array | str, plain: Array | str) -> bool:
    """Whether both are outputs [B, S, D], and not the same."""
    return not isinstance(answer, str) and not isinstance(plain, str) and differ(plain, answer)


def _does_something(answer: Array | str, plain: Array | str) -> bool:
    """Whether a mask changes the output [B, S, D] by itself, or is refused for another reason than that the other is
    None."""
    if isinstance(answer, str):
        return not is_of_none(answer)
    return _is_other(answer, plain)

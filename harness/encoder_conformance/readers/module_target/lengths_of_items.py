"""Lengths of items, which a module is given beside x: whether they count, and as what."""

from dataclasses import replace

import numpy as np

from encoder_conformance.readers.module_target.arranging import OF_LENGTHS
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.supplies import Supply
from encoder_conformance.readers.module_target.supply_options import speaks
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array


def with_its_lengths(module: LiveModule, bare: LiveModule, x: Array) -> LiveModule:
    """The same, given the lengths of its items where it has no mask, does with None for them, and they count."""
    names = dict.fromkeys((*bare.signature.arrays, *bare.signature.fixed))
    left = [name for name in names if speaks(name, "lengths")]
    if len(left) != 1 or bare.signature.masks or bare.signature.fixed.get(left[0]) is not None:
        return module
    other = bare.giving({left[0]: Supply("lengths", "B")}) or bare
    if not counts(other, left[0], x) or not np.allclose(other.run({"x": x})["output"], bare.run({"x": x})["output"]):
        return module
    return module.arranged(other.signature.arrangement) or module


def without_lengths(module: LiveModule, x: Array) -> LiveModule | None:
    """The same, given None for lengths, which computes the same of items that are whole; None where it has none, or
    does not do without."""
    known = module.signature.arrangement
    left = {name: supply for name, supply in known.beside.items() if supply.kind not in OF_LENGTHS}
    if len(left) == len(known.beside):
        return None
    other = module.arranged(replace(known, beside=left))
    return other if other is not None and other.takes(x) else None


def counting(module: LiveModule, name: str, x: Array) -> LiveModule:
    """The same with lengths as parts of the longest, where as numbers of positions they change nothing, and so do."""
    parts = module.giving({name: Supply("parts", "B", "float32")}) or module
    return parts if counts(parts, name, x) and not counts(module, name, x) else module


def counts(module: LiveModule, name: str, x: Array) -> bool:
    """Whether it matters that an item has fewer positions."""
    mask = np.ones(x.shape[:2], np.int64)
    mask[0, x.shape[1] // 2 :] = 0
    try:
        whole, less = (module.run(each)["output"] for each in ({"x": x}, {"x": x, name: mask}))
    except ExecutionError:
        return False
    return not np.array_equal(whole, less, equal_nan=True)

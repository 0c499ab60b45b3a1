"""Tells by what an argument does, and not by its name, that it is added to x, as positions are, or another sequence."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from encoder_conformance.readers.module_target.calling import may_be_mask
from encoder_conformance.readers.module_target.errors import OF_ENCODERS, BadTarget
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.probing import drawn, is_one_number
from encoder_conformance.readers.module_target.returned import OtherShape
from encoder_conformance.readers.module_target.supplies import MEMORY, STACKED, Supply
from encoder_conformance.readers.module_target.supply_options import MASKS
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE
from encoder_conformance.spec.axes import Array

_ZEROS, _NONE = Supply("zeros"), Supply("none")
_PERHAPS_ADDED = ("x", "count", "size", "condition")
"""Kinds of what an argument is given by its name, that may be positions which are added."""
_OPEN = tuple(each for each in MASKS if each.axes in ("BS", "B1S", "BSS", "B11S", "B1SS"))
_MOST = 4
"""Arguments of which each is tried as each of these."""
_ROUNDED = 1e-5
"""Of the output's largest number: no more than rounding."""


def refuse_second(module: LiveModule, widths: Iterable[int]) -> None:
    """Raises BadTarget for an argument that by its name is another sequence, and that a module does not do without,
    unless it is seen to take numbers of each item there, as of a time step, and no sequence."""
    known = module.signature
    if known.second is None or known.second.name in known.arrangement.beside:
        return
    second, of, line = known.second
    if any(_takes_numbers(module, second, width) for width in widths):
        return
    problem = f"it is a layer of a decoder: {of} needs {second} beside {known.x}, which it attends to{line}"
    raise BadTarget(problem, OF_ENCODERS, "takes-several-inputs", arguments=[known.x, second])


def _takes_numbers(module: LiveModule, name: str, width: int) -> bool:
    x = drawn((BATCH, SEQUENCE, width))
    given = Supply("condition", "Bd", "float32", width), Supply("memory", "", "float32", width)
    numbers, memory = (module.giving({name: each}) for each in given)
    return numbers is not None and memory is not None and numbers.takes(x) and not memory.takes(x)


def refuse_attended(module: LiveModule, x: Array) -> None:
    """Raises BadTarget for numbers of each item [batch, 1, d_model] in whose place another sequence is taken, and the
    first of its positions counts: one that is longer than 1."""
    for name, supply in module.signature.arrangement.beside.items():
        if supply.kind == "condition" and "1" in supply.axes:
            memory = Supply("memory", "", "float32", supply.number)
            other = module.giving({name: memory})
            if other is not None and other.takes(x) and _reads_first(module, name, x, memory):
                _refuse_another_sequence(other, x)


def _reads_first(module: LiveModule, name: str, x: Array, memory: Supply) -> bool:
    whole = memory.of(*x.shape[:2])
    moved = whole.copy()
    moved[:, 0] += 1
    held = (Supply("held", "BMd", "float32", value=each) for each in (whole, moved))
    others = [module.giving({name: each}) for each in held]
    one, other = (None if each is None else each.run({"x": x})["output"] for each in others)
    return one is not None and other is not None and not np.array_equal(one, other)


def called_by_effect(
    module: LiveModule, widths: Iterable[int], needed: Iterable[str]
) -> tuple[LiveModule, Array] | None:
    """The module with zeros for what may be added to x, and an x [3, 5, D] that it takes so; None where it takes none.
    Raises BadTarget where one of the arguments is another sequence, and its output depends on that."""
    names = [*dict.fromkeys(needed)]
    if not 0 < len(names) <= _MOST or module.signature.arrangement.form != "BSD":
        return None
    for width in widths:
        x = drawn((BATCH, SEQUENCE, width))
        for beside in _ways(names, width):
            other = module.giving(beside)
            if other is None:
                return None
            if other.takes(x) and not is_one_number(other.run({"x": x})["output"]):
                _refuse_another_sequence(other, x)
                return _with_masks(other, x), x
            if of := _gives_a_row_each(other, x):
                raise _of_two(module.signature.x, of)
    return None


def _with_masks(module: LiveModule, x: Array) -> LiveModule:
    """The same, given a mask that hides nothing in the place of zeros of x's shape, which may hide every key, where it
    takes one."""
    for name, supply in module.signature.arrangement.beside.items():
        if supply.kind != "zeros" or not may_be_mask(name):
            continue
        for mask in MASKS:
            other = module.giving({name: mask})
            if other is not None and other.takes(x) and np.isfinite(other.run({"x": x})["output"]).all():
                module = other
                break
    return module


def _gives_a_row_each(module: LiveModule, x: Array) -> str:
    """The other sequence of which it gives a row for each position, and not of x: that attends to x; "" for none."""
    names = [name for name, supply in module.signature.arrangement.beside.items() if supply.kind == "memory"]
    try:
        module.run({"x": x})
    except OtherShape as error:
        return names[0] if len(names) == 1 and (len(x), MEMORY, x.shape[-1]) in error.shapes else ""
    except ExecutionError:
        return ""
    return ""


def _of_two(x_name: str, second: str) -> BadTarget:
    what = f"item {second} of" if second.isdigit() else f"{second} beside"
    problem = f"it is a layer of a decoder, or of two sequences: it needs {what} {x_name}, of a length of its own"
    problem = f"{problem}, and depends on it"
    return BadTarget(problem, OF_ENCODERS, "takes-several-inputs", arguments=[x_name, second])


def _ways(names: list[str], width: int) -> Iterator[dict[str, Supply]]:
    """Each argument as zeros, None or another sequence: the most of the latter first, which is no length of x."""
    memory = Supply("memory", "", "float32", width)
    masks = (*_OPEN, _ZEROS) if sum(map(may_be_mask, names)) == 1 else (_ZEROS,)
    kinds = [(_NONE, *masks, memory) if may_be_mask(name) else (_ZEROS, _NONE, memory) for name in names]
    ways = sorted(product(*kinds), key=lambda way: -sum(each is memory for each in way))
    yield from (dict(zip(names, way, strict=True)) for way in ways)


def _refuse_another_sequence(module: LiveModule, x: Array) -> None:
    """Raises BadTarget where zeros in the place of another sequence give another output."""
    before = module.run({"x": x})["output"]
    for name, supply in module.signature.arrangement.beside.items():
        if supply.kind != "memory":
            continue
        other = module.giving({name: replace(supply, number=supply.number, kind="zeros")})
        try:
            same = other is not None and np.array_equal(other.run({"x": x})["output"], before)
        except ExecutionError:
            same = False
        if not same:
            raise _of_two(module.signature.x, name)


def with_x_again(module: LiveModule, names: Iterable[str], x: Array) -> LiveModule:
    """The same, which does with None for these as well, given x for each on which its output depends: that is another
    sequence, whatever it is called, and no key of random numbers."""
    for name in names:
        other = module.giving({name: Supply("x")})
        if other is not None and other.takes(x) and _reads(module.bare(), name, x):
            module = other
    return module


def _reads(module: LiveModule, name: str, x: Array) -> bool:
    """Whether it gives another output where the items of x stand in another order there."""
    try:
        same, other = (module.run({"x": x, name: each})["output"] for each in (x, x[::-1]))
    except ExecutionError:
        return False
    return not np.allclose(same, other)


def without_positions(module: LiveModule, x: Array) -> Iterator[tuple[LiveModule, bool]]:
    """The same, given zeros for what by its name was something else, and may be positions that are added to x: for each
    argument alone, then for all of them; and whether it is seen that it is added."""
    beside = module.signature.arrangement.beside
    names = [name for name, supply in beside.items() if supply.kind in _PERHAPS_ADDED]
    for some in dict.fromkeys((*((name,) for name in names), tuple(names))):
        other = module.giving(dict.fromkeys(some, _ZEROS)) if some else None
        if other is not None and other.takes(x):
            yield other, len(some) == 1 and _is_added(other, some[0], x)


def turned_otherwise(module: LiveModule) -> Iterator[LiveModule]:
    """The same, given other numbers of the same size for angles: each at two features side by side, as a module takes
    them that turns those together, or its cosine and its sine there; or each once, of heads of twice as many features.
    """
    beside = module.signature.arrangement.beside
    turned = {name: each for name, each in beside.items() if each.kind == "turning" and each.axes.endswith("d")}
    in_pairs = {name: replace(each, in_pairs=True) for name, each in turned.items() if not each.in_pairs}
    stacked = {
        name: replace(each, axes=f"{each.axes[:-1]}e2", what=STACKED) for name, each in turned.items() if not each.what
    }
    of_more = {
        name: replace(each, axes=f"{each.axes[:-1]}e", number=2 * each.number)
        for name, each in turned.items()
        if not each.in_pairs
    }
    for way in filter(None, (in_pairs, stacked, of_more)):
        if (other := module.giving(way)) is not None:
            yield other


def opened_otherwise(module: LiveModule) -> Iterator[LiveModule]:
    """The same, given the other truth where a mask that it needs is given: of one that hides in neither, as where what
    it fills is next to 0, the scores count under one of them."""
    for name, each in module.signature.arrangement.beside.items():
        if each.kind == "full" and each.dtype != "float32":
            other = module.giving({name: replace(each, number=1 - each.number)})
            if other is not None:
                yield other


def _is_added(module: LiveModule, name: str, x: Array) -> bool:
    """Whether queries and keys are made of x + the argument: of x less itself all keys are one, and what a position
    gives to the others as values alone may go over to another one."""
    moved, step = x.copy(), drawn(x[:, 0].shape)
    moved[:, 1] += step
    moved[:, 2] -= step
    others = [at for at in range(x.shape[1]) if at not in (1, 2)]
    try:
        plain, other = (module.run({"x": each})["output"][:, others] for each in (x, moved))
        same, also = (module.run({"x": each, name: -each})["output"][:, others] for each in (x, moved))
    except ExecutionError:
        return False
    near = _ROUNDED * float(np.abs(same).max())
    return np.allclose(same, also, rtol=0, atol=near) and not np.allclose(plain, other, rtol=0, atol=near)

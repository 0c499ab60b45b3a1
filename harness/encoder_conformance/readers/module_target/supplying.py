"""Finds out how a module is called that does not take x [batch, sequence, d_model] alone, by trying."""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice, product

import numpy as np

from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.module_target.arranging import OF_LENGTHS, Arrangement
from encoder_conformance.readers.module_target.batches import refuse_some_batches
from encoder_conformance.readers.module_target.bundles import bundled
from encoder_conformance.readers.module_target.by_effect import (
    called_by_effect,
    refuse_attended,
    refuse_second,
    with_x_again,
)
from encoder_conformance.readers.module_target.calling import may_be_mask
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.forms_of_x import MAPS, height_of
from encoder_conformance.readers.module_target.furthest import furthest
from encoder_conformance.readers.module_target.heads import heads_said
from encoder_conformance.readers.module_target.lacking import masks_of_parts, missed_in
from encoder_conformance.readers.module_target.lengths import LENGTHS, lengths_said
from encoder_conformance.readers.module_target.live import LiveModule, Signature
from encoder_conformance.readers.module_target.missing import missed_by
from encoder_conformance.readers.module_target.probing import (
    OF_NONE,
    drawn,
    first_x,
    is_one_number,
    left_out,
    not_given,
    probe_of,
    to_be_said,
    usual_x,
    widths_of,
)
from encoder_conformance.readers.module_target.returned import OtherShape
from encoder_conformance.readers.module_target.supplies import Supply, Told
from encoder_conformance.readers.module_target.supply_options import SPOKEN, speaks
from encoder_conformance.readers.module_target.ways_to_call import MOST, ways_to_call
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics, semantics_of
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE
from encoder_conformance.spec.axes import Array

_TELLING = 24
"""Those after which it is told what x should have been."""
_MOST_OF_IDS = 60
"""Those in which it is given ids in the place of x."""
_MOST_LONG = 24
"""Those that are tried at each other length."""
_MOST_QUOTED = 40
"""Those of which one is quoted where all fail."""
_FIRST, _MOST_MISSED = 8, 3
"""Ways to call that show what a module misses, and how often one thing more is."""
_OF_A_MAP = 6
"""Positions of a map that has several rows: of 5 it has one alone."""
_OF_INTEGERS = "integer", "scalar types: Long, Int"
"""Words of what is raised for numbers in the place of ids."""


def called_as_it_takes(module: LiveModule, told: Told | None = None) -> tuple[LiveModule, Array]:
    """The module as it is to be called, and an x that it takes. Raises BadTarget if it takes none in any way."""
    if told is not None and told.beside:
        module = _as_told(module, told)
    bare = module.bare()
    refuse_second(bare, widths_of(bare))
    if (x := usual_x(bare)) is not None:
        module = _with_its_lengths(module, bare, x)
        again = (name for name in not_given(module.signature) if speaks(name, "x"))
        return with_x_again(module, again, x), x
    by_itself = not (module.called_with or module.supplied)
    if by_itself and (found := arranged(bare)) is not None:
        other, x = found
        return module.arranged(other.signature.arrangement) or other, x
    try:
        return module, first_x(bare)
    except BadTarget:
        if by_itself and _takes_ids(bare):
            raise _of_ids(bare.signature.x) from None
        if by_itself and (likeliest := likeliest_problem(bare)) is not None:
            raise likeliest from None
        raise


def _with_its_lengths(module: LiveModule, bare: LiveModule, x: Array) -> LiveModule:
    """The same, given the lengths of its items where it has no mask, does with None for them, and they count."""
    names = dict.fromkeys((*bare.signature.arrays, *bare.signature.fixed))
    left = [name for name in names if speaks(name, "lengths")]
    if len(left) != 1 or bare.signature.masks or bare.signature.fixed.get(left[0]) is not None:
        return module
    other = _given(bare, left[0], Supply("lengths", "B"))
    if not _counts(other, left[0], x) or not np.allclose(other.run({"x": x})["output"], bare.run({"x": x})["output"]):
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


def with_told(signature: Signature, told: Told) -> Signature:
    """A call with what a user says that its arguments are given. Raises BadTarget for one that it has not."""
    unknown = [
        name for name in told.beside if signature.names and not signature.hands_on and name not in signature.names
    ]
    if unknown:
        meant = difflib.get_close_matches(unknown[0], signature.names, n=1)
        hint = f"did you mean {meant[0]}?" if meant else f"it takes {', '.join(signature.names)}"
        raise BadTarget(f"it has no argument {unknown[0]!r} to be given", hint)
    known = signature.arrangement
    return replace(signature, arrangement=replace(known, beside={**known.beside, **told.beside}))


def _as_told(module: LiveModule, told: Told) -> LiveModule:
    """Raises BadTarget for an argument that it has not, and where it does not take what a file has."""
    signature = module.signature
    said = module.arranged(with_told(signature, told).arrangement)
    if said is None:
        raise BadTarget("what its arguments are given cannot be said of a module of this framework")
    needs_more = any(value is None and name not in told.beside for name, value in signature.fixed.items())
    if told.x is not None and not needs_more:
        try:
            said.bare().run({"x": told.x.astype(np.float32)})
        except ExecutionError as error:
            held = [f"{name} {list(np.shape(each.value))}" for name, each in told.beside.items() if each.kind == "held"]
            shapes = ", ".join([f"{signature.x} {list(told.x.shape)}", *held])
            raise BadTarget(f"it does not take what {told.source} has, {shapes}: {error}") from None
    return said


def of_one_row(module: LiveModule, semantics: InputSemantics) -> InputSemantics:
    """A graph of packed rows, or of items one by one, has each by itself: it is read of one."""
    form = module.signature.arrangement.form
    apart = form == "TD" or (form == "SD" and module.may_take_items == "one by one")
    return replace(semantics, B=1) if apart else semantics


def arranged(module: LiveModule) -> tuple[LiveModule, Array] | None:
    """The module, called in the first way that it takes, and an x [3, 5, D] for it; None if it takes none. Raises
    BadTarget where ids are wanted in the place of x.

    x has another number of positions where it takes no 5 in any way.
    """
    widths = widths_of(module)
    if widths and (keyed := bundled(module, drawn((BATCH, SEQUENCE, widths[0])))) is not None:
        module = module.arranged(keyed) or module
    lengths = dict.fromkeys((*lengths_said(module.objects()), *LENGTHS))
    needed, refused = _optional_needed(module, widths), _Refused(module)
    known = (*not_given(module.signature), *needed)
    for sequence, most in ((SEQUENCE, MOST), *((length, _MOST_LONG) for length in lengths)):
        for arrangement in islice(_ways_of(module, widths, needed), most):
            other = module.arranged(arrangement)
            if other is None:
                return None
            refused.ways.append(arrangement)
            for d_model in widths:
                x = drawn((BATCH, sequence, d_model))
                if (problem := _problem_with(other, x)) is None:
                    refuse_attended(other, x)
                    return _with_maps(_apart(_opened(other, x), d_model), x), x
                refused.problems.append(problem)
            if refused.want_integers():
                raise _of_ids(module.signature.x)
        if sequence == SEQUENCE and (found := called_by_effect(module, widths, known)) is not None:
            return found  # numbers of so many positions as there are features may be taken for these
    others = (name for name in module.signature.arrays if name not in known)  # of which it may not do without one
    for names in ((*known, name) for name in islice(others, _MOST_MISSED)):
        if (found := called_by_effect(module, widths, names)) is not None:
            return found
    refuse_some_batches(module, widths, islice(_ways_of(module, widths, needed), _FIRST))
    return None


def _problem_with(module: LiveModule, x: Array) -> str | None:
    """What it raises; "" where it gives no numbers for x, or one for all, as under a mask that hides everything; None
    where it answers."""
    try:
        output = module.run({"x": x})["output"]
    except ExecutionError as error:
        return str(error)
    return None if bool(np.isfinite(output).any()) and not is_one_number(output) else ""


class _Refused:
    """The ways to call a module with numbers that it refused, and whether that is since x should have been ids."""

    def __init__(self, module: LiveModule) -> None:
        self._module, self._asked = module, 0
        self.ways, self.problems = list[Arrangement](), list[str]()

    def want_integers(self) -> bool:
        """Whether it answers to ids, called as it was with numbers; or raises the same of integers whatever stands
        beside x, integers too."""
        if len(self.problems) < _TELLING:
            return False
        asked, self._asked = self._asked, min(len(self.ways), _MOST_OF_IDS)
        if any(_answers_ids(self._module, each) for each in self.ways[asked : self._asked]):
            return True
        if not any(words in self.problems[0] for words in _OF_INTEGERS) or len(set(self.problems)) > 1:
            return False
        beside = (each.beside.values() for each in self.ways)
        return any(all(supply.kind != "none" and supply.dtype == "int64" for supply in each) for each in beside)


def _answers_ids(module: LiveModule, arrangement: Arrangement) -> bool:
    """Whether it gives anything for ids [3, 5], which every vocabulary has, or for an item of them."""
    forms = dict.fromkeys((arrangement.form, *(["SD"] if module.may_take_items == "mapped" else [])))
    others = (module.arranged(replace(arrangement, form=form)) for form in forms)
    ids = np.ones((BATCH, SEQUENCE), np.int64)
    return any(_gives(other, ids) for other in others if other is not None)


def _gives(module: LiveModule, x: Array) -> bool:
    """Whether it gives anything for x, of whatever shape."""
    try:
        module.run({"x": x})
    except OtherShape:
        return True
    except ExecutionError:
        return False
    return True


def _takes_ids(module: LiveModule) -> bool:
    """Whether it answers to ids [3, 5], and to no numbers of that shape, in one of the first ways to call it."""
    ways = [module.signature.arrangement, *islice(_ways_of(module, widths_of(module)), _FIRST)]
    others = (module.arranged(way) for way in ways if _answers_ids(module, way))
    return any(not other.takes(drawn((BATCH, SEQUENCE))) for other in others if other is not None)


def _of_ids(x_name: str) -> BadTarget:
    """Of a model whose parts are no layers: where one is, that is judged, and this is not said."""
    problem = f"it takes ids as {x_name}, integers [batch, sequence], and no x [batch, sequence, d_model]"
    hint = "no part of it is a layer by itself: put the steps of one in a module of their own, and name that"
    return BadTarget(problem, hint, "takes-no-x")


def _optional_needed(module: LiveModule, widths: Iterable[int]) -> tuple[str, ...]:
    """The arguments of which it does not do with their default, None, as the first ways to call it show: one that it
    misses may be seen only where it has another."""
    for d_model in widths:  # of another width than its own it raises something else
        needed, x = tuple[str, ...](), drawn((BATCH, SEQUENCE, d_model))
        for _ in range(_MOST_MISSED):
            ways = (module.arranged(way) for way in islice(_ways_of(module, widths, needed), _FIRST))
            failed = [(way, _problem_with(way, x) or "") for way in ways if way is not None]
            problems = [(way.signature, problem) for way, problem in failed]
            more = next((missed for of, problem in problems if (missed := missed_in(problem, of, needed))), ())
            more = more or masks_of_parts(module.signature, needed, problems)
            more = more or _read_where_it_fails(failed, needed, x)
            if not more:
                break
            needed = (*needed, *more)
        if needed:
            return needed
    return ()


def _read_where_it_fails(
    failed: Iterable[tuple[LiveModule, str]], needed: tuple[str, ...], x: Array
) -> tuple[str, ...]:
    """What is missed beside what is `needed`, where the line that fails for a None names nothing: an argument of which
    another value is refused in that line, too."""
    for way, problem in failed if needed else ():
        if any(words in problem for words in OF_NONE):
            left = [name for name in way.signature.arrays if name not in needed]
            if missed := missed_by(way.bare(), way.signature.arrangement, x, left):
                return (missed[0],)
    return ()


def likeliest_problem(module: LiveModule) -> BadTarget | None:
    """What it raises where it comes furthest, of the ways to call it that make sense: with all that it needs, by its
    names; and which argument that is about. None where names do not say what it needs."""
    widths = widths_of(module)
    needed = [name for name, value in module.signature.fixed.items() if value is None]
    if not needed or not all(may_be_mask(name) or any(speaks(name, kind) for kind in SPOKEN) for name in needed):
        return None
    whole = (each for each in _ways_of(module, widths) if "none" not in {s.kind for s in each.beside.values()})
    tries = product(islice(whole, _MOST_QUOTED), (drawn((BATCH, SEQUENCE, width)) for width in widths))
    if (found := furthest(module, tries)) is None:
        return None
    given = ", ".join(f"{name} {supply.said}" for name, supply in found.arrangement.beside.items())
    left = [name for name in left_out(module.signature) if name not in found.arrangement.beside]
    missed = missed_by(module, found.arrangement, found.x, left)
    needed += [name for name in missed if name not in needed]
    problem = f"it needs {', '.join(needed)} beside {module.signature.x}; given {given}: {found.problem}"
    return BadTarget(problem, to_be_said(module.signature, "", *missed), "needs-arguments", arguments=needed)


def _ways_of(module: LiveModule, widths: Iterable[int], needed: tuple[str, ...] = ()) -> Iterator[Arrangement]:
    items, keys = module.may_take_items, module.draws_of_keys
    return ways_to_call(module.signature, widths, needed, items=items, keys=keys, heads=heads_said(module))


def _opened(module: LiveModule, x: Array) -> LiveModule:
    """The same, where each mask that it needs is given such that it hides nothing, and lengths such that they count."""
    for name, supply in module.signature.arrangement.beside.items():
        if supply.kind == "lengths":
            module = _counting(module, name, x)
        if supply.kind != "full":
            continue
        sizes = {"B": x.shape[0], "S": x.shape[1], "X": x.shape[0] * supply.heads}
        shape = tuple(sizes.get(axis, 1) for axis in supply.axes)
        port = Port(name=name, dtype=supply.dtype, shape=shape)
        try:
            [mask] = semantics_of(probe_of(module, x.shape, (port,))).masks
        except ExecutionError:
            continue
        if mask.polarity is not None:
            module = _given(module, name, replace(supply, number=mask.polarity.open))
    return module


def _apart(module: LiveModule, d_model: int) -> LiveModule:
    """The same, given x as one row or one column of a map, where it takes each of them by itself, as the pixels of a
    patch, or a place at all times: what is asked of one says what each gives."""
    known = module.signature.arrangement
    if known.form != "BHWD":
        return module
    x = drawn((BATCH, _OF_A_MAP, d_model))
    other = x.copy()
    other[:, 0] = -x[:, 0]
    try:
        before, after = (module.run({"x": each})["output"] for each in (x, other))
    except ExecutionError:
        return module
    changed = (before != after).any((0, 2)).reshape(height_of(_OF_A_MAP), -1)
    in_row, in_column = changed[0, 1:].any(), changed[1:, 0].any()
    if changed[1:, 1:].any() or in_row == in_column:
        return module
    return module.arranged(replace(known, form="BRSD" if in_row else "BSRD")) or module


def _with_maps(module: LiveModule, x: Array) -> LiveModule:
    """The same, given those masks as maps that it refuses as rows [batch, sequence] beside an x that is one."""
    sequence = x.shape[1] if height_of(x.shape[1]) > 1 else _OF_A_MAP
    shape = BATCH, sequence, x.shape[-1]
    for name in module.signature.masks if module.signature.arrangement.form in MAPS else ():
        known = module.signature.arrangement
        other = module.arranged(replace(known, mapped=(*known.mapped, name)))
        if other is not None and not _takes_rows(module, name, shape) and _takes_rows(other, name, shape):
            module = other
    return module


def _takes_rows(module: LiveModule, name: str, shape: tuple[int, ...]) -> bool:
    for dtype in (np.bool_, np.float32):
        with suppress(ExecutionError):
            module.run({"x": drawn(shape), name: np.ones(shape[:2], dtype)})
            return True
    return False


def _given(module: LiveModule, name: str, supply: Supply) -> LiveModule:
    arrangement = module.signature.arrangement
    return module.arranged(replace(arrangement, beside={**arrangement.beside, name: supply})) or module


def _counting(module: LiveModule, name: str, x: Array) -> LiveModule:
    """The same with lengths as parts of the longest, where as numbers of positions they change nothing, and so do."""
    parts = _given(module, name, Supply("parts", "B", "float32"))
    return parts if _counts(parts, name, x) and not _counts(module, name, x) else module


def _counts(module: LiveModule, name: str, x: Array) -> bool:
    """Whether it matters that an item has fewer positions."""
    mask = np.ones(x.shape[:2], np.int64)
    mask[0, x.shape[1] // 2 :] = 0
    try:
        whole, less = (module.run(each)["output"] for each in ({"x": x}, {"x": x, name: mask}))
    except ExecutionError:
        return False
    return not np.array_equal(whole, less, equal_nan=True)

"""Finds out how a module is called that does not take x [batch, sequence, d_model] alone, by trying."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice, product

import numpy as np

from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.as_maps import row_by_row, with_masks_as_maps
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
from encoder_conformance.readers.module_target.forms_of_x import ROWS
from encoder_conformance.readers.module_target.furthest import OF_A_VIEW, furthest
from encoder_conformance.readers.module_target.heads import heads_said
from encoder_conformance.readers.module_target.in_lists import with_masks_in_lists
from encoder_conformance.readers.module_target.lacking import missed_in, perhaps_masks, read_where_it_fails
from encoder_conformance.readers.module_target.lengths import LENGTHS, lengths_said
from encoder_conformance.readers.module_target.lengths_of_items import counting, with_its_lengths
from encoder_conformance.readers.module_target.live import HeldState, LiveModule
from encoder_conformance.readers.module_target.misread import is_of_any_batch, of_each_position
from encoder_conformance.readers.module_target.missing import missed_by
from encoder_conformance.readers.module_target.of_ids import RefusedWays, of_ids, takes_ids
from encoder_conformance.readers.module_target.probing import (
    AS_MUCH,
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
from encoder_conformance.readers.module_target.supplies import Supply, Told
from encoder_conformance.readers.module_target.supply_options import SPOKEN, speaks
from encoder_conformance.readers.module_target.told import as_told
from encoder_conformance.readers.module_target.ways_to_call import MOST, ways_to_call
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics, semantics_of
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE
from encoder_conformance.spec.axes import Array

_MOST_LONG = 24
"""Those that are tried at each other length."""
_MOST_QUOTED = 40
"""Those of which one is quoted where all fail."""
_FIRST, _MOST_MISSED = 8, 3
"""Ways to call that show what a module misses, and how often one thing more is."""


def called_as_it_takes(module: LiveModule, told: Told | None = None) -> tuple[LiveModule, Array]:
    """The module as it is to be called, and an x that it takes. Raises BadTarget if it takes none in any way."""
    if told is not None and told.beside:
        module = as_told(module, told)
    bare = module.bare()
    if (x := usual_x(bare)) is not None:
        module, second = with_masks_in_lists(with_its_lengths(module, bare, x), x), bare.signature.second
        left = second.name if second else ""  # another sequence, which it does without
        again = (name for name in not_given(module.signature) if speaks(name, "x") and name != left)
        return with_x_again(module, again, x), x
    refuse_second(bare, widths_of(bare))
    by_itself = not (module.called_with or module.supplied)
    if by_itself and (found := arranged(bare)) is not None:
        other, x = found
        return module.arranged(other.signature.arrangement) or other, x
    try:
        return module, first_x(bare)
    except BadTarget:
        if by_itself and takes_ids(bare, islice(_ways_of(bare, widths_of(bare)), _FIRST)):
            raise of_ids(bare.signature.x) from None
        if by_itself and (likeliest := likeliest_problem(bare)) is not None:
            raise likeliest from None
        raise


def _of_two_parts(module: LiveModule, x: Array) -> Array:
    """x [B, S, D]; where it takes no 5 positions, twice as many as those, if it takes them: of one part, such as a
    window, nothing shows that attention ends with it."""
    twice = drawn((len(x), 2 * x.shape[1], x.shape[-1]))
    return twice if x.shape[1] != SEQUENCE and module.takes(twice) else x


def of_one_row(module: LiveModule, semantics: InputSemantics) -> InputSemantics:
    """A graph of packed rows, or of items one by one, has each by itself: it is read of one."""
    form = module.signature.arrangement.form
    apart = form in ROWS or (form == "SD" and module.may_take_items == "one by one")
    return replace(semantics, B=1) if apart else semantics


def arranged(module: LiveModule) -> tuple[LiveModule, Array] | None:
    """The module, called in the first way that it takes, and an x [3, 5, D] for it; None if it takes none. Raises
    BadTarget where ids are wanted in the place of x.

    x has another number of positions where it takes no 5 in any way.
    """
    widths = widths_of(module)
    if widths and (keyed := bundled(module, drawn((BATCH, SEQUENCE, widths[0])))) is not None:
        module = module.arranged(keyed) or module
    if module.arranged(module.signature.arrangement) is None:
        return None
    said = lengths_said(module.objects())
    lengths = dict.fromkeys((*said, *LENGTHS))
    held = module.held()
    needed, refused = _optional_needed(module, widths, held), RefusedWays(module)
    known = (*not_given(module.signature), *needed)
    for sequence, most in ((SEQUENCE, MOST), *((length, _MOST_LONG) for length in lengths)):
        ways = chain(
            islice(_ways_of(module, widths, needed), most), _of_items(module, widths, needed, sequence in said)
        )
        shapes = [(BATCH, sequence, width) for width in widths]
        if (taken := _first_taken(module, ways, shapes, refused, held)) is not None:
            other, x = _features_normed(*taken)
            x = _of_two_parts(other, x)
            return _as_it_is_taken(other, x), x
        if sequence == SEQUENCE and (found := called_by_effect(module, widths, known)) is not None:
            return _opened(*found), found[1]  # as many positions as there are features may be taken for these
    others = (name for name in module.signature.arrays if name not in known)  # of which it may not do without one
    for names in ((*known, name) for name in islice(others, _MOST_MISSED)):
        if (found := called_by_effect(module, widths, names)) is not None:
            return _opened(*found), found[1]
    refuse_some_batches(module, widths, _ways_of(module, widths, needed))
    return None


def _as_it_is_taken(module: LiveModule, x: Array) -> LiveModule:
    module = _changing(module, x)
    refuse_attended(module, x)
    module = _opened(with_masks_in_lists(module, x), x)
    return with_masks_as_maps(row_by_row(module, x.shape[-1]), x)


def _changing(module: LiveModule, x: Array) -> LiveModule:
    """The same; given the other truth for a mask with which it returns x as it is, as for positions that are done."""
    masks = ((name, each) for name, each in module.signature.arrangement.beside.items() if each.kind == "full")
    if not np.array_equal(module.run({"x": x})["output"], x):
        return module
    others = (module.giving({name: replace(each, number=1 - each.number)}) for name, each in masks)
    taken = (other for other in others if other is not None and other.takes(x))
    return next((other for other in taken if not np.array_equal(other.run({"x": x})["output"], x)), module)


def _features_normed(module: LiveModule, x: Array) -> tuple[LiveModule, Array]:
    """The same call, and its x [B, S, D], in which what its norms are as wide as is d_model: of so many channels beside
    as many positions as these are wide, channels are the positions."""
    known, normed = module.signature.arrangement, widths_of(module)[0]
    if known.form != "BDS" or normed == x.shape[-1] or normed != x.shape[1]:
        return module, x
    rows, turned = module.arranged(replace(known, form="BSD")), drawn((BATCH, x.shape[-1], normed))
    return (rows, turned) if rows is not None and rows.takes(turned) else (module, x)


def _first_taken(
    module: LiveModule,
    ways: Iterable[Arrangement],
    shapes: list[tuple[int, int, int]],
    refused: RefusedWays,
    held: HeldState | None,
) -> tuple[LiveModule, Array] | None:
    """The module called in the first of these ways that it takes, with any number of items, each by itself, if there is
    one such, and an x of one of these shapes; None if it takes none. `held`: what it holds before it is called. Raises
    BadTarget where ids are wanted in the place of x."""
    of_this_batch, torn = None, list[Arrangement]()
    for arrangement in ways:
        other = module.arranged(arrangement) or module
        refused.ways.append(arrangement)
        for x in map(drawn, shapes):
            if (problem := _problem_with(other, x, held)) is not None:
                refused.problems.append(problem)
                torn += [arrangement] if OF_A_VIEW in problem else []
            elif any(_has_fewer_axes(each, arrangement) for each in torn) or not of_each_position(other, x):
                continue
            elif is_of_any_batch(other, x):
                return other, x
            else:
                of_this_batch = of_this_batch or (other, x)
        if refused.want_integers():
            raise of_ids(module.signature.x)
    return of_this_batch


def _has_fewer_axes(one: Arrangement, other: Arrangement) -> bool:
    """Whether the first is the same call with masks of fewer axes in all. With more of them scores may have more, too,
    and other axes are viewed than the heads'."""
    counted = (sum(len(each.axes) for each in way.beside.values() if each.kind == "full") for way in (one, other))
    return one.form == other.form and next(counted) < next(counted)


def _problem_with(module: LiveModule, x: Array, held: HeldState | None) -> str | None:
    """What it raises; "" where it gives no numbers for x, or one for all, as under a mask that hides everything; None
    where it answers. What it raises in the middle of leaves it as it was (`held`): the next way is tried of the same
    module."""
    try:
        output = module.run({"x": x})["output"]
    except ExecutionError as error:
        if held is not None:
            held.restore()
        return str(error)
    return None if bool(np.isfinite(output).any()) and not is_one_number(output) else ""


def _optional_needed(module: LiveModule, widths: Iterable[int], held: HeldState | None) -> tuple[str, ...]:
    """The arguments of which it does not do with their default, None, as the first ways to call it show: one that it
    misses may be seen only where it has another."""
    for d_model in widths:  # of another width than its own it raises something else
        needed, x = tuple[str, ...](), drawn((BATCH, SEQUENCE, d_model))
        for _ in range(_MOST_MISSED):
            ways = (module.arranged(way) for way in islice(_ways_of(module, widths, needed), _FIRST))
            asked = [(way, _problem_with(way, x, held)) for way in ways if way is not None]
            if any(problem is None for _, problem in asked):
                break
            failed = [(way, problem or "") for way, problem in asked]
            problems = [(way.signature, problem) for way, problem in failed]
            more = next((missed for of, problem in problems if (missed := missed_in(problem, of, needed))), ())
            more = more or read_where_it_fails(failed, needed, x)
            more = more or perhaps_masks(module.signature, needed, problems)
            if not more:
                break
            needed = (*needed, *more)
        if needed:
            return needed
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
    if found.reached.answered:
        problem = f"it gives nothing of the shape of {module.signature.x}; given {given}: {found.problem}"
        return BadTarget(problem, AS_MUCH, "takes-no-x")
    if OF_A_VIEW in found.problem:
        return BadTarget(f"it takes no {module.signature.x}; given {given}: {found.problem}", "", "takes-no-x")
    left = [name for name in left_out(module.signature) if name not in found.arrangement.beside]
    missed = missed_by(module, found.arrangement, found.x, left)
    needed += [name for name in missed if name not in needed]
    problem = f"it needs {', '.join(needed)} beside {module.signature.x}; given {given}: {found.problem}"
    hint = found.reached.mend or to_be_said(module.signature, "", *missed)
    return BadTarget(problem, hint, "needs-arguments", arguments=needed)


def _ways_of(module: LiveModule, widths: Iterable[int], needed: tuple[str, ...] = ()) -> Iterator[Arrangement]:
    items, keys = module.may_take_items, module.draws_of_keys
    return ways_to_call(module.signature, widths, needed, items=items, keys=keys, heads=heads_said(module))


def _of_items(module: LiveModule, widths: Iterable[int], needed: tuple[str, ...], said: bool) -> Iterable[Arrangement]:
    """The ways in which what is mapped over items takes one, where it says so many positions: those of a batch come
    before, and are many where it needs a mask."""
    ways = _ways_of(module, widths, needed) if said and module.may_take_items == "mapped" else ()
    return islice((way for way in ways if way.form == "SD"), _MOST_LONG)


def _opened(module: LiveModule, x: Array) -> LiveModule:
    """The same, where each mask that it needs is given such that it hides nothing, and lengths such that they count."""
    for name, supply in module.signature.arrangement.beside.items():
        if supply.kind == "lengths":
            module = counting(module, name, x)
        if supply.kind != "full":
            continue
        port = Port(name=name, dtype=supply.dtype, shape=_shape_of(supply, module, x))
        try:
            [mask] = semantics_of(probe_of(module, x.shape, (port,))).masks
        except ExecutionError:
            continue
        if mask.polarity is not None:
            module = module.giving({name: replace(supply, number=mask.polarity.open)}) or module
    return module


def _shape_of(supply: Supply, module: LiveModule, x: Array) -> tuple[int, ...]:
    """The shape in which a mask is given in the place of this one. What is mapped over items takes one for each."""
    mapped = module.signature.arrangement.form == "SD" and module.may_take_items == "mapped"
    batch = 1 if mapped else len(x)
    sizes = {"B": batch, "S": x.shape[1], "X": batch * supply.heads}
    shape = tuple(sizes.get(axis, 1) for axis in supply.axes)
    return (len(x), *shape) if mapped else shape

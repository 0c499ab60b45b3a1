"""Examines one module: how it is called, what layer it is, which parameter is which; and whether that is proved."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.protocol.findings import Finding, noted
from encoder_conformance.protocol.module_description import OtherAnswer
from encoder_conformance.readers.module_target.allocated import with_numbers
from encoder_conformance.readers.module_target.batches import refuse_one_batch
from encoder_conformance.readers.module_target.biases import settled
from encoder_conformance.readers.module_target.by_effect import opened_otherwise, turned_otherwise, without_positions
from encoder_conformance.readers.module_target.causal_switch import causal_unless
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.examination import Examination
from encoder_conformance.readers.module_target.exporting import Exported
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.formats import format_as_given
from encoder_conformance.readers.module_target.forms_of_x import MAPS
from encoder_conformance.readers.module_target.frameworks import ModuleFramework, framework_of
from encoder_conformance.readers.module_target.heads import head_counts
from encoder_conformance.readers.module_target.keeping_masks import offered_from_the_first
from encoder_conformance.readers.module_target.lengths import lengths_asked, lengths_taken
from encoder_conformance.readers.module_target.lengths_of_items import without_lengths
from encoder_conformance.readers.module_target.live import Feeds, LiveModule
from encoder_conformance.readers.module_target.local import long_enough
from encoder_conformance.readers.module_target.map_choice import choose_map
from encoder_conformance.readers.module_target.mapping import separated
from encoder_conformance.readers.module_target.masking import causal_with_open_masks
from encoder_conformance.readers.module_target.masks_together import with_masks_together
from encoder_conformance.readers.module_target.mixed_precision import answers_in_mixed_precision
from encoder_conformance.readers.module_target.past_first import with_masks_past_first
from encoder_conformance.readers.module_target.probing import awake, live_semantics, refuse_what_changes_nothing
from encoder_conformance.readers.module_target.proving import changing, is_cast, parameters_for
from encoder_conformance.readers.module_target.reading import (
    read_as_it_lies,
    read_off,
    refuse_one_length,
    with_a_name,
    with_its_window,
)
from encoder_conformance.readers.module_target.repeating import chance_in
from encoder_conformance.readers.module_target.returned import lists_noted
from encoder_conformance.readers.module_target.sizes import with_sizes_of
from encoder_conformance.readers.module_target.supplies import ToldOf, no_words
from encoder_conformance.readers.module_target.supplying import called_as_it_takes, of_one_row
from encoder_conformance.readers.module_target.ways import other_answers, refuse_unrunnable
from encoder_conformance.readers.module_target.weights_kept import refuse_written
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer

_WIDE: tuple[DtypeName, ...] = ("float64", "float32")


def examine(
    given: object,
    stated: Layer | None = None,
    *,
    resize: bool = False,
    dtypes: tuple[DtypeName, ...] = (),
    told: ToldOf = no_words,
) -> Examination:
    """`given`, a module, stays as it is: all is done with copies of it. Raises BadTarget if it cannot be called at all.

    `stated`: what it should be; with `resize` at the module's own sizes. `dtypes`: the formats that it is to be asked
    in; none: float64, float32, and that in which it was given. `told`: what a user says that its arguments are given.
    """
    framework = framework_of(given)
    if framework is None:
        raise BadTarget(f"{type(given).__name__} is a module of no framework that is known")
    with framework.undisturbed(), _told_what_it_raises():
        found = _examined(framework, given, stated, resize, told)
        if (found.layer is None or found.map is None) and (other := framework.folded(given)) is not None:
            again = _examined(framework, other[0], stated, resize, told)
            again.notes, again.folded = (*again.notes, *other[1]), True
            found = found if again.layer is None else again
        asked = dtypes or (*_WIDE, *([found.as_given] if found.as_given else []))
        narrow = [dtype for dtype in asked if dtype not in _WIDE and _runs_in(found, dtype)]
        wide = [dtype for dtype in found.dtypes if dtype in asked]
        found.taken = (*wide, *narrow)
        return found


@contextmanager
def _told_what_it_raises() -> Iterator[None]:
    """Raises BadTarget where a call raises after the first that did not."""
    try:
        yield
    except ExecutionError as error:
        hint = "have it take x at every call, whatever it was called with before"
        raise BadTarget(f"it took x, and at a later call it raised {error}", hint, "takes-no-x") from None


def _notes(framework: ModuleFramework, given: object, module: LiveModule, x: Array) -> tuple[Finding, ...]:
    """What is to be known of it, and of what it returns."""
    with lists_noted() as lengths:
        module.run({"x": x})
    thrown = (each for feeds in _with_each_mask(module, x) for each in framework.thrown_away(module, feeds))
    notes = (*framework.notes(given), *{each.message: each for each in thrown}.values())
    if not lengths:
        return notes
    said = f"it gives a list of {lengths[0]} tensors of the shape of x, as of all its layers: the last is asked"
    return (*notes, noted("output-chosen", said, listed=lengths[0]))


def _with_each_mask(module: LiveModule, x: Array) -> Iterator[Feeds]:
    """x alone, and beside it each argument that may be a mask, in shapes of which one is taken."""
    yield {"x": x}
    batch, sequence = x.shape[:2]
    for name in dict.fromkeys((*module.signature.masks, *module.signature.arrays)):
        of_each_query = (sequence, sequence), (batch, sequence, sequence), (sequence, sequence, batch)
        for shape in ((batch, sequence), *of_each_query, (batch, 1, 1, sequence)):
            yield {"x": x, name: np.ones(shape, np.bool_)}


def _of_rows(module: LiveModule, x: Array) -> Iterator[Finding]:
    """What a module raises that takes x as a map, or one item, where it is given rows: it may take that by chance."""
    known = module.signature.arrangement
    otherwise = known.form in MAPS or (known.form == "SD" and module.may_take_items == "one by one")
    plain = module.arranged(replace(known, form="BSD", mapped=())) if otherwise else None
    if plain is None:
        return
    try:
        plain.run({"x": x})
    except ExecutionError as error:
        yield noted("takes-no-x", f"given x as [batch, sequence, d_model] it raises {_said(error)}", taken=known.form)


def _said(error: Exception) -> str:
    """What was raised, and the last line of source on the way there."""
    said, *frames = map(str.strip, str(error).splitlines())
    return f"{said} ({frames[-1]})" if frames else said


def _given_otherwise(
    module: LiveModule, read: LiveModule, x: Array, exported: Exported, again: Callable[[LiveModule], Exported]
) -> tuple[LiveModule, LiveModule, Exported]:
    """The module, the same without what it was given in, and what is read `again` off it: where what it was given
    beside x may be given otherwise, and is a layer's, or positions, then."""
    turned = turned_otherwise(read) if "rope" in exported.features else ()
    for other in turned:
        otherwise = again(other)
        if otherwise.layer is not None or (otherwise.features and "rope" not in otherwise.features):
            return module.arranged(other.signature.arrangement) or module, other, otherwise
    opened = opened_otherwise(read) if "own_mask" in exported.features else ()
    for other in opened:
        otherwise = again(other)
        if otherwise.layer is not None or (otherwise.traced and "own_mask" not in otherwise.features):
            return module.arranged(other.signature.arrangement) or module, other, otherwise
    for other, added in without_positions(read, x):
        without = again(other)
        if added or without.layer is not None:
            return module.arranged(other.signature.arrangement) or module, other, without
    return module, read, exported


def _opened(framework: ModuleFramework, given: object, told: ToldOf) -> Examination:
    """What is known of it before anything is asked of its masks. Raises BadTarget if it cannot be called."""
    given = framework.built(given, told)
    live, filled = with_numbers(framework.live(given))
    held, before = live.held(), live.flat().copy()
    module, x = called_as_it_takes(live, told(live.signature.x))
    module = with_masks_past_first(with_masks_together(module, x), x)
    refuse_written(module, before, {"x": x})
    refuse_unrunnable(module, {"x": x})
    as_given, kept = format_as_given(module, x), None
    if held is None or held.changed():
        if held is not None:  # one that was not called
            fresh, _ = with_numbers(framework.live(given))
            module = fresh.arranged(module.signature.arrangement) or fresh
        kept = module.kept({"x": x})
    refuse_one_batch(module, x)
    chance, loose = chance_in(module, x), module.take_in({"x": x})
    read = module.bare()
    with awake(read):
        refuse_what_changes_nothing(read, x)
        semantics = live_semantics(read, x)
    lengths = () if module.called_with else lengths_taken(read, x)
    reading = partial(read_off, read, at_any_length=not lengths)
    semantics, exported = read_as_it_lies(semantics, lambda each: reading(of_one_row(module, each)))
    exported = with_a_name(read, x, semantics.layout, exported, loose.tensors)
    again = partial(read_off, semantics=of_one_row(module, semantics), at_any_length=not lengths)
    if exported.layer is None and (whole := without_lengths(read, x)) is not None:
        exported = exported if (without := again(whole)).layer is None else without
    if exported.layer is None:
        module, read, exported = _given_otherwise(module, read, x, exported, again)
    exported = exported if lengths else with_its_window(read, semantics, exported)
    notes = (*_notes(framework, given, read, x), *filled, *(_of_rows(read, x) if exported.layer is None else ()))
    if not lengths:
        refuse_one_length(read, x, exported)
    if not (lengths or module.length) and exported.layer is not None:
        lengths, notes = lengths_asked(read, x, semantics, notes)
    found = Examination(framework, module, read, semantics, exported, chance=chance, loose=loose, notes=notes)
    found.as_given, found.kept, found.lengths = as_given, kept, lengths
    found.trains_unless_told = read.trains_unless_told({"x": x})
    return found


def _examined(
    framework: ModuleFramework, given: object, stated: Layer | None, resize: bool, told: ToldOf
) -> Examination:
    examination = _opened(framework, given, told)
    semantics, exported = examination.semantics, examination.exported
    examination.given, examination.given_by = examination.module.supplied, examination.module.supplied_by
    if exported.layer is not None and exported.map is not None and not exported.unplaced:
        map, examination.tied, examination.read_twice = separated(exported.map)
        found = settled(map, exported.layer.with_decimal_epsilon, exported.absent, stated)
        examination.layer, examination.map = found.layer, found.map
        examination.absent, examination.unread = found.absent, found.unread
        examination.exported = replace(exported, facts=found.facts(exported.facts))
    examination.dtypes = _WIDE if _runs_in(examination, "float64") else ("float32",)
    narrow = examination.layer is not None and "float64" not in examination.dtypes
    if narrow and (raised := _raised_in(examination, "float64")) is not None:
        note = noted("no-float64", f"it is not asked in float64: {_said(raised)}")
        examination.notes = *examination.notes, note
    alternatives = [] if stated is None else _alternatives(examination, stated, resize)
    examination.stated = alternatives[0] if alternatives else None
    known = examination.layer or examination.stated
    _find_masks(examination, semantics, known)
    _leave_out_float64(examination, known)
    choose_map(examination, alternatives)
    if examination.stated is not None and examination.layer is None and examination.stated != known:
        _find_masks(examination, semantics, examination.stated)
    if examination.map is not None:
        examination.of_no_step = tuple(changing(examination.bench("float32"), examination.map))
    if examination.chance is None:  # what answers at random gives another output in every way
        _compare_ways(examination)
    return examination


def _compare_ways(examination: Examination) -> None:
    """What the bare module shows of its stages is nothing of a module that answers otherwise as it was given."""
    known = examination.layer or examination.stated
    heads, causal = known.attention.num_heads if known else 1, examination.always_causal
    module, semantics = examination.module, examination.semantics
    answers = other_answers(module, semantics, heads, always_causal=causal)
    proof = examination.proof  # without one a softmax may be cast to float32, which rounds two sums to two numbers
    exact = proof is not None and proof.holds and proof.dtype == "float64"
    if exact and not module.wrappers:  # what was compiled is not compiled once more
        wide = other_answers(module.in_dtype("float64"), semantics, heads, always_causal=causal, dtype="float64")
        answers += tuple(each for each in wide if each.way not in {other.way for other in answers})
    if answers:
        examination.stages = {}
    examination.other_answers = *answers, *_in_mixed_precision(examination)


def _in_mixed_precision(examination: Examination) -> Iterator[OtherAnswer]:
    layer = examination.mapped_to
    if examination.map is not None and layer is not None:
        bench = replace(examination.bench("float32"), module=examination.module.in_dtype("float32"))
        parameters = examination.map.made_one(parameters_for(layer, examination.absent))
        examination.map.load(bench.module, parameters)
        yield from answers_in_mixed_precision(bench, layer, parameters)


def _find_masks(examination: Examination, semantics: InputSemantics, known: Layer | None) -> None:
    """The masks and what they mean, for the heads of the layer that is known. `semantics`: those of x alone."""
    heads = known.attention.num_heads if known else 1
    far = long_enough(semantics, known).S if known and known.attention.window else 0
    far = far if not examination.lengths or far in examination.lengths else 0
    with awake(examination.read):
        examination.offered = offered_from_the_first(examination, semantics, heads, far)
        examination.semantics = examination.offered.semantics
        examination.always_causal = causal_with_open_masks(examination.read, examination.semantics)
        if examination.always_causal:
            examination.causal_unless = causal_unless(examination.read, examination.semantics)
    _ask_of_padding_alone(examination, heads)


def _alternatives(examination: Examination, stated: Layer, resize: bool) -> list[Layer]:
    """The stated layer; with `resize` at the module's sizes, and with each number of heads that it may have where the
    graph does not tell, the likeliest first."""
    if not resize:
        return [stated.with_decimal_epsilon]
    read = examination.layer or examination.exported.layer
    sized = with_sizes_of(examination.module, stated, examination.semantics.d_model, read).with_decimal_epsilon
    if read is not None:
        return [sized]
    counts = head_counts(examination.bench(examination.dtypes[0]), sized)
    examination.heads_known = counts.known
    return counts.of(sized)


def _ask_of_padding_alone(examination: Examination, num_heads: int) -> None:
    """Whether an item that is padding alone comes out as NaN, or is refused, though one that shows its first position
    is taken. Neither where no mask can say that it is."""
    semantics = examination.semantics
    x = np.random.default_rng(0).normal(size=(semantics.B, semantics.S, semantics.d_model)).astype(np.float32)

    def first_item(shown: int) -> Array:
        padding = np.ones((semantics.B, 1, 1, semantics.S), np.bool_)
        padding[0, ..., shown:] = False
        masks = Masks(padding, None, sequence=semantics.S)
        feeds = module_feeds(semantics, x, masks, num_heads, always_causal=examination.always_causal)
        output = semantics.batch_first(examination.module.run(feeds)["output"])
        return np.asarray(output[0])

    try:
        examination.padded_item_is_nan = bool(np.isnan(first_item(shown=0)).any())
    except ExecutionError as error:
        with suppress(ExecutionError):
            first_item(shown=1)
            examination.padded_item_raises = _said(error)
    except NotImplementedError:
        pass


def _raised_in(examination: Examination, dtype: DtypeName) -> Exception | None:
    try:
        bench = examination.bench(dtype)
        bench.output(bench.x())
    except (ExecutionError, RuntimeError) as error:
        return error
    return None


def _leave_out_float64(examination: Examination, known: Layer | None) -> None:
    """Where it takes its masks in float32 alone, or is as exact beside them, as one whose scores are cast beside a
    mask: what they are without it is as exact as in float64."""
    if known is None or "float64" not in examination.dtypes or not examination.semantics.masks:
        return
    raised = [_raised_with_masks(examination, known.attention.num_heads, each) for each in _WIDE]
    if raised[0] is not None and raised[1] is None:
        note = noted("no-float64", f"with its masks it is not asked in float64: {_said(raised[0])}")
    elif raised[0] is None and _is_cast_beside_masks(examination):
        why = "beside its masks it is no more exact in float64 than in float32: something is cast there"
        note = noted("float64-no-more-exact", f"{why}. It is judged in float32")
    else:
        return
    examination.dtypes = ("float32",)
    examination.notes = *examination.notes, note


def _is_cast_beside_masks(examination: Examination) -> bool:
    bench = examination.bench("float64")
    try:
        return not is_cast(bench) and is_cast(bench, masked=True)
    except ExecutionError:
        return False


def _raised_with_masks(examination: Examination, num_heads: int, dtype: DtypeName) -> Exception | None:
    semantics, bench = examination.semantics, examination.bench(dtype)
    padding = np.ones((semantics.B, 1, 1, semantics.S), np.bool_)
    padding[..., -1] = False
    x = bench.x().astype(FORMATS[dtype].numpy)
    try:
        masks = Masks(padding, None, sequence=semantics.S)
        bench.module.run(module_feeds(semantics, x, masks, num_heads, always_causal=examination.always_causal))
    except NotImplementedError:
        return None
    except ExecutionError as error:
        return error
    return None


def _runs_in(examination: Examination, dtype: DtypeName) -> bool:
    """Whether its output is in the format of its input and its parameters."""
    try:
        bench = examination.bench(dtype)
        return bool(bench.output(bench.x()).dtype == FORMATS[dtype].numpy)
    except (ExecutionError, RuntimeError):
        return False

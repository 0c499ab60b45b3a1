"""Gives a module each of its masks in every usual form: what it means by it, and why in no form it is a mask."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from encoder_conformance.protocol.arguments import MaskForm, MaskMeaning, UnusableMask
from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.module_target.calling import is_called_mask
from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.errors import needs_cuda, raised_at
from encoder_conformance.readers.module_target.forms_together import forms_together
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.mask_effects import effect_of, is_unread, raises
from encoder_conformance.readers.module_target.objects_made import class_in_place_of
from encoder_conformance.readers.module_target.probing import drawn, features_turned, probe_of
from encoder_conformance.readers.module_target.refusing import is_switch, without_refusals
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics, semantics_of
from encoder_conformance.readers.onnx_file.interface.mask_semantics import MaskSemantics, Polarity, polarities_of
from encoder_conformance.spec.axes import Array

_MOST_FORMS = 3
"""Of one mask of a layer without a window: which of several leaves that is asked of all."""
_USUAL = ("BHSS", "XSS", "B1SS", "BSS", "SS", "B11S", "B1S", "BS")
"""Axes of a mask, those first that can tell most."""
_TURNED = "BS1"
_RARE = ("1HSS", "HSS", "11SS", "1SS", _TURNED, "BH1S", "SB", "SSB")
"""Those that are tried where a module takes none of the usual ones."""
_DTYPES = ("bool", "float32", "int64")
_OTHER_DTYPES = ("int32", "uint8", "float16")
"""Those that are tried where a module refuses the usual ones in every form."""
_COMPARED = (
    *(("bool", axes) for axes in ("BS", "SS", "B11S", "B1SS")),
    *(("float32", axes) for axes in ("BS", "B11S")),
)
"""Forms in which every mask is given, so that those of two modules can be compared."""
_BATCHES = (1, 2, 3, 4, 7)
"""Sizes of a batch that a mask is given for which is refused with that of the probe."""
_OTHER_BATCHES = (2, 7)
"""Sizes that one is given for which is taken with that of the probe."""
_OF_BLOCKS = "block_mask"
"""In the name of one that FlexAttention alone reads: a module that computes otherwise has no use for it."""


@dataclass
class _Tried:
    """The forms of one mask: it hides what it flags; and is refused for other batches; it hides in part; it hides at
    +1e9 what −1e9 should; it raises the scores that it leaves; it is taken and hides nothing; so, and the output is
    another; it ends with this error."""

    hiding: list[MaskSemantics] = field(default_factory=list)
    sized: list[MaskSemantics] = field(default_factory=list)
    leaking: list[MaskSemantics] = field(default_factory=list)
    flipped: list[tuple[str, str]] = field(default_factory=list)
    raised: list[tuple[str, str]] = field(default_factory=list)
    idle: list[tuple[str, str]] = field(default_factory=list)
    elsewhere: list[tuple[str, str]] = field(default_factory=list)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)


def with_masks(
    runner: LiveModule, found: InputSemantics, num_heads: int, unnamed: tuple[str, ...] = (), *, far: int = 0
) -> tuple[InputSemantics, tuple[UnusableMask, ...]]:
    """`found`, and the meaning of those masks that hide what they flag, in the form that can tell most; and those by
    which none can be given. `unnamed`: arguments that may be masks, and whose names do not say so: they are
    given truths alone, since a large number hides much. `far`: positions beyond the layer's window; 0 without one.

    Forms that the module does not take together are passed over, for those that tell less.
    """
    most = len(_USUAL) if far else _MOST_FORMS
    tried = {name: _tried(runner, found, name, num_heads, most) for name in runner.signature.masks}
    tried |= {name: _tried(runner, found, name, num_heads, most, ("bool",)) for name in unnamed}
    told = [name for name in tried if is_called_mask(name) and _OF_BLOCKS not in name.lower()]
    named = {name: tried[name] for name in told}
    unusable = [_unusable(runner, found, name, each, num_heads) for name, each in named.items() if not each.hiding]
    forms = [_whole(runner, found, each.hiding) for each in tried.values() if each.hiding]
    unusable += [each for each in (_replacing(runner, found, masks, far) for masks in forms) if each] if far else []
    together = forms_together(runner, found, forms, lambda mask: _as_numbers(runner, found, mask, num_heads))
    if together is not None:
        masks = together.masks
        idle = [mask for mask in masks if len(masks) > 1 and _is_overridden(runner, together, mask)]
        unusable += [UnusableMask(argument=mask.name, kind="overridden") for mask in idle]
        together = replace(found, masks=tuple(mask for mask in masks if mask not in idle))
        return together, (*unusable, *_sized(runner, together, num_heads))
    alone = (UnusableMask(argument=each[0].name, kind="alone") for each in forms[1:])
    return replace(found, masks=tuple(each[0] for each in forms)[:1]), (*unusable, *alone)


def _as_numbers(runner: LiveModule, found: InputSemantics, mask: MaskSemantics, num_heads: int) -> list[MaskSemantics]:
    """The mask, of the same axes, as numbers, if it hides what it flags as such."""
    tried, port = _Tried(), Port(name=mask.name, dtype="float32", shape=mask.shape)
    _try(runner, found, port, mask.axes, num_heads, tried)
    return tried.hiding


def _whole(runner: LiveModule, found: InputSemantics, hiding: list[MaskSemantics]) -> list[MaskSemantics]:
    """Those forms of a mask of which every query and head counts: of [batch, 1, sequence] the first query's may be read
    alone, whoever else has one. All, where it is so of none."""
    return [mask for mask in hiding if _counts_whole(runner, found, mask)] or hiding


def _replacing(runner: LiveModule, found: InputSemantics, forms: list[MaskSemantics], far: int) -> UnusableMask | None:
    """Takes out of `forms` those in which a mask that hides nothing takes the window away, as transformers' models do
    with a mask of four axes. None where it is so of all forms, or of none."""
    bare = _answer(runner, found.at_length(far))
    opened = {mask.axes: _answer(runner, replace(found, masks=(mask,)).at_length(far)) for mask in forms}
    replacing = [mask for mask in forms if _differ(bare, opened[mask.axes])]
    if not replacing or len(replacing) == len(forms):
        return None
    forms[:] = [mask for mask in forms if mask not in replacing]
    first = replacing[0]
    return UnusableMask(argument=first.name, kind="replaces", form=_form(first.dtype, first.axes))


def _counts_whole(runner: LiveModule, found: InputSemantics, mask: MaskSemantics) -> bool:
    """Whether the output is another where a key is hidden from all queries, or heads, but the first: of those of each
    item, from all but the first item's first."""
    assert mask.polarity is not None
    at_first = _answer(runner, replace(found, masks=(mask,)))
    x, flagged = drawn(found.x_shape(found.B, found.S)), mask.filled(mask.polarity.open)
    hidden = _flagged(flagged, mask.polarity, mask.key_axis)
    for axis, letter in enumerate(mask.letters):
        if letter not in ("H", "Q", "BH") or at_first is None:
            continue
        but_first = hidden.copy()
        but_first.swapaxes(axis, 0)[0] = mask.polarity.open
        output = runner.run({"x": x, mask.name: but_first})["output"]
        rows = found.batch_first(output)[:, 1:], found.batch_first(at_first)[:, 1:]
        if np.array_equal(*(rows if letter == "Q" else (output, at_first))):
            return False
    return True


def _is_overridden(runner: LiveModule, found: InputSemantics, mask: MaskSemantics) -> bool:
    """Whether a key that this mask flags is seen where another mask is given that hides nothing, as of a module that
    makes its own of a padding mask where it is given no other."""
    assert mask.polarity is not None
    flagged = _flagged(mask.filled(mask.polarity.open), mask.polarity, mask.key_axis)
    feeds = {"x": drawn(found.x_shape(found.B, found.S)), **found.open_masks()}
    opened, hidden = (runner.run(each)["output"] for each in (feeds, {**feeds, mask.name: flagged}))
    return not _differ(opened, hidden)


def _sized(runner: LiveModule, found: InputSemantics, num_heads: int) -> Iterator[UnusableMask]:
    """Those of the masks that are refused for another batch, for which x alone is not."""
    for mask in found.masks if found.layout != "SD" else ():
        form = mask.dtype, mask.axes
        refused = _raising(runner, found, mask.name, form, num_heads)
        if raising := tuple(refused):
            problem, where = raised_at(refused[raising[0]])
            yield UnusableMask(
                argument=mask.name,
                kind="sized",
                form=_form(*form),
                problem=problem,
                where=where,
                raising=raising,
                taken=tuple(sorted({*_OTHER_BATCHES, found.B} - {*raising})),
            )


def causal_with_open_masks(runner: LiveModule, found: InputSemantics) -> bool:
    """Whether no position sees a later one although masks are given that hide nothing."""
    if not (found.masks and found.causal):
        return found.causal
    x = drawn(found.x_shape(found.B, found.S))
    feeds = {"x": x, **found.open_masks()}
    later = features_turned(x, (slice(None), -1) if found.layout == "BSD" else (-1,))
    before, after = (found.batch_first(runner.run({**feeds, "x": each})["output"]) for each in (x, later))
    return bool(np.allclose(before[:, :-1], after[:, :-1], rtol=0, atol=1e-12))


def forms_taken(runner: LiveModule, found: InputSemantics, num_heads: int) -> Mapping[str, tuple[MaskForm, ...]]:
    """Mask → the forms in which the module takes it, and what it means by each.

    One key is hidden, for all items, heads and queries, in the mask's own form; what another form has to say for the
    same output is its meaning.
    """
    x = drawn(found.x_shape(found.B, found.S))
    taken = {}
    for mask in found.masks:
        assert mask.polarity is not None
        feeds = {"x": x, **found.open_masks()}
        feeds[mask.name] = _flagged(feeds[mask.name], mask.polarity, mask.key_axis)
        hidden = runner.run(feeds)["output"]
        forms, own = [], [(dtype, mask.axes) for dtype in (mask.dtype, *_DTYPES)]
        for dtype, axes in dict.fromkeys((*own, *(form for form in _COMPARED if form[1] != mask.axes))):
            like_own = axes == mask.axes
            shape, key_axis = (mask.shape, mask.key_axis) if like_own else (shape_at(axes, found, num_heads), -1)
            feeds[mask.name] = np.zeros(shape, np.dtype(dtype))
            meanings = _meanings(runner, feeds, mask.name, key_axis, hidden)
            if meanings is not None:
                forms.append(MaskForm(axes=axes, dtype=dtype, meanings=meanings))
        taken[mask.name] = tuple(forms)
    return taken


def _flagged(like: Array, polarity: Polarity, key_axis: int) -> Array:
    """A mask of the shape of `like` that hides one key, the last but one, and nothing else."""
    flagged = np.full_like(like, polarity.open)
    flagged.swapaxes(key_axis, -1)[..., -2] = polarity.shut
    return flagged


def _meanings(
    runner: LiveModule, feeds: Mapping[str, Array], name: str, key_axis: int, hidden: Array
) -> tuple[MaskMeaning, ...] | None:
    """The meanings with which a mask of the form that is fed by this name gives the output `hidden`, in the shape of x;
    None: it is refused."""
    meanings, ran = list[MaskMeaning](), False
    for polarity in polarities_of(str(feeds[name].dtype)):
        flagged = _flagged(feeds[name], polarity, key_axis)
        try:
            output = runner.run({**feeds, name: flagged})["output"]
        except ExecutionError:
            continue
        ran = True
        if np.allclose(output, hidden, rtol=1e-4, atol=1e-5 * np.abs(hidden).max()):
            meanings.append(polarity.meaning)
    return tuple(meanings) if ran else None


def shape_at(axes: str, found: InputSemantics, num_heads: int, batch: int | None = None) -> tuple[int, ...]:
    """The sizes of these axes, at the batch of the probe or another: a 0 where half of a head's features are none."""
    B, d = batch or found.B, found.d_model // num_heads
    sizes = {"B": B, "S": found.S, "H": num_heads, "X": B * num_heads}
    sizes |= {"D": found.d_model, "d": d, "e": d // 2, "f": 2 * d}
    return tuple(sizes[axis] if axis in sizes else int(axis) for axis in axes)


def _tried(
    runner: LiveModule, found: InputSemantics, name: str, num_heads: int, most: int, dtypes: tuple[str, ...] = _DTYPES
) -> _Tried:
    """The mask in each form, up to so many that hide what they flag: one of each shape. One of [B, S, S] whose keys
    stand before its queries, and that is taken as [B, S, 1], too, is a row of keys that lies turned, and has no
    queries."""
    tried = _Tried()
    known = runner.signature.arrangement
    of_rows = name in (*known.mapped, *known.past_first)
    usual = (("BS",) if of_rows else _USUAL, dtypes)
    rare = () if of_rows else ((_RARE, dtypes), (_USUAL, _OTHER_DTYPES if dtypes == _DTYPES else ()))
    for several, formats in (usual, *rare):
        for axes in several[::-1] if "padding" in name else several:
            if num_heads == 1 and {*axes} & {*"HX"}:  # one head, or as many as are not known: there is a form without
                continue
            shape = shape_at(axes, found, num_heads)
            for dtype in formats:
                done = {mask.shape for mask in tried.hiding}
                if shape not in done and len(done) < most:
                    _try(runner, found, Port(name=name, dtype=dtype, shape=shape), axes, num_heads, tried)
        if tried.hiding or tried.sized or tried.leaking or tried.flipped or tried.raised or tried.idle:
            break
    tried.hiding = tried.hiding or tried.sized
    if tried.hiding and all(mask.axes == "BSS" and mask.keys_first for mask in tried.hiding):
        turned, shape = _Tried(), shape_at(_TURNED, found, num_heads)
        for dtype in dtypes:
            _try(runner, found, Port(name=name, dtype=dtype, shape=shape), _TURNED, num_heads, turned)
        tried.hiding = turned.hiding[:1] or tried.hiding
    return tried


def _try(runner: LiveModule, found: InputSemantics, port: Port, axes: str, num_heads: int, tried: _Tried) -> None:
    """Note what becomes of the mask in one form."""
    try:
        if is_unread(runner, found, port):
            tried.idle.append((port.dtype, axes))
            return
        shape = found.x_shape(found.B, found.S)
        under = semantics_of(probe_of(without_refusals(runner, drawn(shape), port), shape, (port,)))
    except ExecutionError as error:
        tried.refused[port.dtype, axes] = str(error)
        return
    [mask] = under.masks
    if mask.flipped:
        tried.flipped.append((port.dtype, axes))
    elif raises(runner, found, mask):
        tried.raised.append((port.dtype, axes))
    elif mask.polarity is None or under.layout != found.layout:
        filled = [replace(mask, polarity=None, fill=number) for number in (0.0, 1.0)]
        answers = [_answer(runner, replace(found, masks=(each,))) for each in filled]
        if any(each is not None for each in answers):
            tried.idle.append((port.dtype, axes))
            if _differ(*answers) or _differ(_answer(runner, replace(found, masks=())), answers[0]):
                tried.elsewhere.append((port.dtype, axes))
        else:
            tried.refused[port.dtype, axes] = "its output is not finite"
    elif mask.leakage:
        tried.leaking.append(mask)
    elif "B" not in mask.letters and _is_of_items(runner, found, mask):
        tried.refused[port.dtype, axes] = "its rows are taken for those of the items"
    elif found.layout != "SD" and _raising(runner, found, port.name, (port.dtype, axes), num_heads):
        tried.sized.append(mask)
    else:
        tried.hiding.append(mask)


def _raising(
    runner: LiveModule, found: InputSemantics, name: str, form: tuple[str, str], num_heads: int
) -> Mapping[int, str]:
    """What it raises by the batch for which a form of a mask is refused, and x alone is not."""
    tried = {B: _problem(runner, found, name, form, (B, num_heads)) for B in _OTHER_BATCHES}
    return {B: problem for B, problem in tried.items() if problem and not _problem(runner, found, "", form, (B, 1))}


def _is_of_items(runner: LiveModule, found: InputSemantics, mask: MaskSemantics) -> bool:
    """Whether a mask without an axis of items tells equal items apart, as one [sequence, sequence] does that is taken
    for [batch, sequence]."""
    assert mask.polarity is not None
    rows = found.batch_first(drawn(found.x_shape(found.B, found.S)))
    x = found.laid_out(np.broadcast_to(rows[:1], rows.shape).copy())
    hidden = _flagged(mask.filled(mask.polarity.open), mask.polarity, mask.key_axis)
    if "Q" in mask.letters:
        hidden.swapaxes(mask.letters.index("Q"), 0)[1:] = mask.polarity.open
    output = found.batch_first(runner.run({"x": x, mask.name: hidden})["output"])
    return _differ(output, np.broadcast_to(output[:1], output.shape))


def _answer(runner: LiveModule, found: InputSemantics) -> Array | None:
    """The output with these masks, in the shape of x; None where it takes them not together, or gives no numbers."""
    try:
        output = runner.run({"x": drawn(found.x_shape(found.B, found.S)), **found.open_masks()})["output"]
    except ExecutionError:
        return None
    return output if np.isfinite(output).all() else None


def _differ(one: Array | None, two: Array | None) -> bool:
    """Whether both are outputs, of one shape, and not the same."""
    return one is not None and two is not None and differ(one, two)


def _unusable(runner: LiveModule, found: InputSemantics, name: str, tried: _Tried, num_heads: int) -> UnusableMask:
    if tried.flipped:
        return UnusableMask(argument=name, kind="flipped", form=_form(*tried.flipped[0]))
    if tried.raised:
        return UnusableMask(argument=name, kind="raises", form=_form(*tried.raised[0]))
    if tried.leaking:
        least = min(tried.leaking, key=lambda mask: mask.leakage)
        form = _form(least.dtype, least.axes)
        return UnusableMask(argument=name, kind="leaks", form=form, leakage=least.leakage)
    for dtype, axes in (tried.elsewhere or tried.idle)[:1]:  # the second: one that hides all gives no numbers
        does, shift = effect_of(runner, found, name, np.zeros(shape_at(axes, found, num_heads), np.dtype(dtype)))
        if tried.elsewhere or does is not None:
            return UnusableMask(argument=name, kind="elsewhere", form=_form(dtype, axes), does=does, shift=shift)
    if tried.idle:
        return UnusableMask(argument=name, kind="idle", form=_form(*tried.idle[0]))
    return _refused(runner, found, name, tried.refused, num_heads)


def _refused(
    runner: LiveModule, found: InputSemantics, name: str, refused: Mapping[tuple[str, str], str], num_heads: int
) -> UnusableMask:
    """That it is no array; or the form that is taken at most sizes of the batch, else that of padding, with what it
    raises at that of the probe."""
    if made := class_in_place_of(name, runner, {"x": drawn(found.x_shape(found.B, found.S))}):
        return UnusableMask(argument=name, kind="object", form=made)
    if is_switch(runner, drawn(found.x_shape(found.B, found.S)), name, refused.values()):
        return UnusableMask(argument=name, kind="switch")
    batches = sorted({*_BATCHES, num_heads} - {found.S}) if found.layout != "SD" else [found.B]
    order = [(dtype, axes) for axes in reversed(_USUAL) for dtype in _DTYPES]
    taken = {
        form: tuple(B for B in batches if not _problem(runner, found, name, form, (B, num_heads))) for form in order
    }
    form = max(order, key=lambda each: len(taken[each]))
    problem, where = raised_at(refused[form])
    return UnusableMask(
        argument=name,
        kind="cuda" if needs_cuda(problem) else "refused",
        form=_form(*form),
        problem=problem,
        where=where,
        raising=tuple(B for B in batches if B not in taken[form]),
        taken=taken[form],
    )


def _problem(
    runner: LiveModule, found: InputSemantics, name: str, form: tuple[str, str], sizes: tuple[int, int]
) -> str:
    """What this form of a mask raises, at these sizes of batch and heads, of zeros and of ones, one of which may hide
    every key; without a name, what x alone does."""
    (dtype, axes), (batch, num_heads) = form, sizes
    shape, problems = shape_at(axes, found, num_heads, batch), list[str]()
    for number in (0, 1):
        mask = {name: np.full(shape, number, np.dtype(dtype))} if name else {}
        try:
            runner.run({"x": drawn(found.x_shape(batch, found.S)), **mask})
            return ""
        except ExecutionError as error:
            problems.append(str(error))
    return problems[0]


def _form(dtype: str, axes: str) -> str:
    return MaskForm(dtype=dtype, axes=axes, meanings=()).text

"""What the masks of a whole model hide at its outputs: no layer of it shows whether it is handed a mask."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

import numpy as np

from encoder_conformance.protocol.arguments import MaskForm
from encoder_conformance.protocol.model_masks import ModelMask, ModelMaskEffect
from encoder_conformance.readers.module_target.calling import is_called_mask, may_have_any_name
from encoder_conformance.readers.module_target.differing import differ
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.given_as import Argument, meaning_of, words_of
from encoder_conformance.readers.module_target.rows_beside import of_positions, rows_beside
from encoder_conformance.readers.module_target.whole import WholeModule
from encoder_conformance.readers.onnx_file.interface.mask_semantics import Polarity, polarities_of
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.words import listed

_B, _S = 3, 7
"""A batch and a length that are no usual size of anything else."""
_FLAGGED = 2
"""Positions at one end of each item."""
_SHORTER = _S - _FLAGGED
_BETWEEN = slice(_FLAGGED, _SHORTER)
"""Those that are flagged at neither end."""
_OTHER_LENGTH = 9
"""Of another sequence that a model needs, such as a decoder's: its rows are not taken for those of the first."""
_NEAR = 1e-4
"""Of the output's largest number."""
_ODD = ((13, 11), (13, 11, 5), (13, 11, 5, 4))
"""Shapes of nothing, none of whose sizes is one of the call's."""
_FORMS = tuple(product(("BS", "B11S", "BSS", "B1SS", "SS"), ("int64", "bool", "float32")))
_OF_NO_ATTENTION = (
    *("label", "loss", "lm_", "span", "masked", "global", "special", "time", "indices"),
    *("decoder", "dec_", "tgt", "trg", "target", "out"),
)
"""Words in the names of masks that hide nothing from attention to the first sequence."""
_IDS = (((5, 6), (3, 4)), ((2, 2), (0, 1)))
"""Usual ids, and two of flagged positions, which are less: some models look for the largest. The last are of a model
that knows few."""

_SAYING_NOTHING = {"attention", "attn", "mask", "masks", "padding", "pad", "key", "token", "tokens", "self"}
"""Words in the name of a mask that do not say of which input it is."""

First = Callable[[int, slice | None, bool], Array]
"""(length, flagged positions, whether these hold other values) → the first input."""


def masks_of_model(whole: WholeModule, widths: Callable[[], Iterable[int]]) -> tuple[ModelMask, ...]:
    """Each argument that by its name is a mask of the first sequence. `widths`: the features that x may have, of a
    model that takes no ids. Raises BadTarget where no way to call it is found.

    A model that takes [sequence, batch] may take [batch, sequence] for that, and then refuses every mask."""
    names = [each.name for each in whole.taken if _is_mask(each.name) and not _is_of_another(each.name, whole.taken)]
    if not names:
        return ()
    copied, refused = whole.disturbed("float32", None, 0.0), tuple[ModelMask, ...]()
    for turned in (False, True):
        if (model := _opened(copied, names, widths, turned=turned)) is not None:
            found = tuple(_of_mask(model, name) for name in names)
            if any(each.effect != "refused" for each in found):
                return found
            refused = refused or found
    if not refused:
        raise BadTarget(f"no way was found to call the model twice alike: it has {listed(names)}")
    return refused


def _is_mask(name: str) -> bool:
    other = any(word in name.lower() for word in _OF_NO_ATTENTION)
    return is_called_mask(name) and may_have_any_name(name) and not other


@dataclass(frozen=True)
class _Model:
    """A model that answers to `first`, which is `made`. `beside`: argument → what it is given for a length, of those
    that the model needs beside it."""

    whole: WholeModule
    first: str
    made: First
    beside: Mapping[str, Callable[[int], Array]] = field(default_factory=dict)
    more: Mapping[str, int] = field(default_factory=dict)
    """Output → rows that it has beside those of the positions, where there are some."""

    def with_rows_beside(self) -> "_Model":
        """The same, which knows of those: of a model of one length there are none."""
        try:
            shorter, longer = self.answers({}, _SHORTER), self.answers({}, _S)
        except Exception:  # whatever a model does with what is not its own
            return self
        return replace(self, more=rows_beside(shorter, longer, (_SHORTER, _S)))

    def answers(
        self, mask: Mapping[str, Array], length: int = _S, flagged: slice | None = None, *, other: bool = False
    ) -> dict[str, Array]:
        """Output → array, of those of floating-point numbers that have the batch. Raises whatever the model does.

        Attention's weights, [B, S, S] or [B, heads, S, S], tell nothing that the others do not, and have no row of a
        position alone: they are left out where there are others."""
        beside = {name: make(length) for name, make in self.beside.items() if name not in mask}
        found = self.whole.outputs({self.first: self.made(length, flagged, other), **beside, **mask})
        found = {name: value for name, value in found.items() if value.dtype.kind == "f" and _B in value.shape[:2]}
        rows = {name: of_positions(found[name], self.more[name], length, _BETWEEN) for name in {*self.more} & {*found}}
        found |= rows
        return {name: value for name, value in found.items() if value.shape[-2:] != (length, length)} or found


def _opened(
    whole: WholeModule, masks: Sequence[str], widths: Callable[[], Iterable[int]], *, turned: bool
) -> _Model | None:
    """The model in the first way to call it that it answers to, twice alike; None where there is none. `turned`: it is
    given [sequence, batch]."""
    others = [each for each in whole.taken if not _is_mask(each.name)]
    first = next((each for each in others if meaning_of(each.name) == "ids"), next(iter(others), None))
    if first is None:
        return None
    needed = [each for each in whole.taken if each is not first and (each.needed or _is_of_decoder(each.name))]
    for made in _first_inputs(widths):
        made = partial(_turned, made) if turned else made
        for beside in _needed(needed, masks):
            model = _Model(whole, first.name, made, beside)
            try:
                one, two = model.answers({}), model.answers({})
            except Exception:  # whatever a model does with what is not its own
                continue
            finite = any(np.isfinite(value).any() for value in one.values())
            if finite and not any(differ(one[name], two[name]) for name in one):
                return model.with_rows_beside()
    return None


def _is_of_decoder(name: str) -> bool:
    """Whether it is a second sequence of ids, which some models make of the first where it is not given."""
    return "decoder" in name.lower() and meaning_of(name) == "ids"


def _is_of_another(name: str, taken: Sequence[Argument]) -> bool:
    """Whether a mask is of an input that is not given, as `visual_mask` beside `visual_embeds`."""
    said = words_of(name) - _SAYING_NOTHING
    first, *others = (each for each in taken if not is_called_mask(each.name))
    return not said & words_of(first.name) and any(said & words_of(each.name) for each in others if not each.needed)


def _first_inputs(widths: Callable[[], Iterable[int]]) -> Iterator[First]:
    for usual, low in _IDS:
        yield partial(_ids, usual, low)
    for width in widths():
        yield partial(_numbers, width)


def _turned(made: First, length: int, flagged: slice | None = None, other: bool = False) -> Array:
    """The same first input, [length, 3] or [length, 3, width]."""
    return np.ascontiguousarray(made(length, flagged, other).swapaxes(0, 1))


def _ids(
    usual: Sequence[int], low: Sequence[int], length: int, flagged: slice | None = None, other: bool = False
) -> Array:
    """[3, length], integers."""
    at = np.add.outer(np.arange(_B), np.arange(length)) % 2
    ids: Array = np.asarray(usual)[at]
    if flagged is not None:
        ids[:, flagged] = low[int(other)]  # not the same ones in another order, which a mean would not see
    return ids


def _numbers(width: int, length: int, flagged: slice | None = None, other: bool = False) -> Array:
    """[3, length, width] of normal numbers, of which those of the first positions are the same for any length."""
    drawn = [np.random.default_rng(at).normal(size=(_B, width)) for at in range(length)]
    x = np.stack(drawn, axis=1).astype(np.float32)
    if flagged is not None and other:
        x[:, flagged] = x[:, flagged, ::-1]
    return x


def _needed(needed: Sequence[Argument], masks: Sequence[str]) -> Iterator[dict[str, Callable[[int], Array]]]:
    """What a model needs beside its first input: masks that hide nothing in some usual form, and what the names of the
    others say."""
    beside = {each.name: _of_name(each.name) for each in needed if each.name not in masks}
    required = [each.name for each in needed if each.name in masks]
    for (axes, dtype), number in product(_FORMS, (1, 0)) if required else [(_FORMS[0], 1)]:
        yield beside | {name: partial(_open, axes, dtype, number) for name in required}


def _open(axes: str, dtype: str, number: int, length: int) -> Array:
    """A mask of ones, which hides nothing where one attends, or of zeros."""
    return np.full(_shape(axes, length), number, dtype)


def _of_name(name: str) -> Callable[[int], Array]:
    match meaning_of(name):
        case "types":
            return lambda length: np.zeros((_B, length), np.int64)
        case "positions":
            return lambda length: np.broadcast_to(np.arange(length), (_B, length)).copy()
        case "lengths":
            return lambda length: np.full(_B, length, np.int64)
        case "mask":
            return lambda length: np.ones((_B, _OTHER_LENGTH), np.int64)
    return lambda length: _ids(*_IDS[0], _OTHER_LENGTH)


def _shape(axes: str, length: int) -> tuple[int, ...]:
    sizes = {"B": _B, "S": length}
    return tuple(sizes.get(axis, 1) for axis in axes)


@dataclass(frozen=True)
class _End:
    """Positions at one end of each item that a mask flags, and those that are `left`."""

    flagged: slice
    left: slice


_ENDS = _End(slice(_SHORTER, _S), slice(0, _SHORTER)), _End(slice(0, _FLAGGED), slice(_FLAGGED, _S))
"""The last, as of padding; the first, of a causal model, whose last no other sees: what is of whole items may be taken
of the first."""


def _of_mask(model: _Model, name: str) -> ModelMask:
    """What comes of flagging positions by this mask, in the first form that hides them; else in the first that is
    taken."""
    if _is_unread(model, name):
        return ModelMask(argument=name, effect="idle", form=f"of any shape, as {list(_ODD[0])}")
    seen: list[ModelMask] = []
    for axes, dtype in _FORMS:
        text = MaskForm(dtype=dtype, axes=axes, meanings=()).text
        for polarity in polarities_of(dtype):
            try:
                found = _in_form(model, name, (axes, dtype), polarity)
            except Exception:  # whatever a model does with a mask of another form
                continue
            if found is None:
                continue
            each = found.model_copy(update={"form": text})
            if each.meaning is not None:
                return each
            seen.append(each)
    changing = next((each for each in seen if each.effect == "elsewhere"), None)
    return changing or next(iter(seen), ModelMask(argument=name, effect="refused"))


def _is_unread(model: _Model, name: str) -> bool:
    """Whether masks of shapes that are none change nothing. They hide some and not others, since many models do not
    look at one that hides nothing."""
    try:
        before = model.answers({})
        afters = [model.answers({name: np.indices(shape).sum(axis=0) % 2}) for shape in _ODD]
    except Exception:  # whatever a model does with it
        return False
    return all(
        key in after and after[key].shape == before[key].shape and not differ(before[key], after[key])
        for after in afters
        for key in before
    )


def _in_form(model: _Model, name: str, form: tuple[str, str], polarity: Polarity) -> ModelMask | None:
    """What the mask does in this form, if `polarity` is what its numbers mean; None where nothing tells."""

    def mask(length: int, flagged: slice | None) -> dict[str, Array]:
        made = np.full(_shape(form[0], length), polarity.open).astype(form[1])
        if flagged is not None:
            made[..., flagged] = polarity.shut
        return {name: made}

    for end in _ENDS:
        opened, moved = (model.answers(mask(_S, None), _S, end.flagged, other=other) for other in (False, True))
        reached = [key for key in opened if _apart(opened[key], moved[key], end)]
        by_position = [key for key in reached if _is_by_position(opened[key])]
        if end is not _ENDS[0] or any(map(_is_by_position, opened.values())):
            reached = by_position and (reached if end is _ENDS[0] else by_position)
        if not reached:
            continue
        shut, others = (model.answers(mask(_S, end.flagged), _S, end.flagged, other=other) for other in (False, True))
        reaching = [key for key in reached if _apart(shut[key], others[key], end)]
        pooled = [key for key in reaching if not _is_by_position(shut[key])]
        if reaching and (pooled != reaching or len(pooled) == len(reached)):
            idle = not any(differ(opened[key], shut[key]) for key in opened)
            whole = "" if by_position else pooled[0]
            return ModelMask(argument=name, effect="idle" if idle else "elsewhere", output=whole)
        if any(not np.isfinite(_left(shut[key], end)).any() for key in reached):
            return None
        if pooled:
            return ModelMask(argument=name, effect="pooled", output=pooled[0], meaning=polarity.meaning)
        unlike = _unlike_alone(model, shut, mask, reached) if end is _ENDS[0] else []
        of_items = "" if any(_is_by_position(shut[key]) for key in unlike) else next(iter(unlike), "")
        effect: ModelMaskEffect = "attended" if unlike else "hides"
        return ModelMask(argument=name, effect=effect, meaning=polarity.meaning, output=of_items)
    return None


def _unlike_alone(
    model: _Model, shut: Mapping[str, Array], mask: Callable[[int, slice | None], dict[str, Array]], keys: Sequence[str]
) -> list[str]:
    """The outputs that are others than without the last positions, which the mask flags; none where items are refused
    without."""
    try:
        shorter = model.answers(mask(_SHORTER, None), _SHORTER)
    except Exception:  # as of a model of one length
        return []
    left = {key: _left(shut[key], _ENDS[0]) for key in keys if key in shorter}
    alike = (key for key in left if left[key].shape == shorter[key].shape)
    return [key for key in alike if not _are_near(left[key], shorter[key])]


def _are_near(one: Array, other: Array) -> bool:
    """Whether two outputs of one shape are the same but for the rounding of a deep model, which sums in another order
    at another length."""
    return np.allclose(one, other, rtol=0, atol=_NEAR * np.abs(other).max(initial=0.0), equal_nan=True)


def _is_by_position(output: Array) -> bool:
    """Whether an output [B, S, …] or [S, B, …] has a row for each position, and is not of whole items."""
    return output.shape[:2] in ((_B, _S), (_S, _B))


def _left(output: Array, end: _End) -> Array:
    """The rows of an output [B, S, …] or [S, B, …] that no mask flags; all of one of whole items."""
    if not _is_by_position(output):
        return output
    return output[:, end.left] if output.shape[:2] == (_B, _S) else output[end.left]


def _apart(one: Array, other: Array, end: _End) -> bool:
    """Whether two outputs of one shape differ in a row that no mask flags."""
    return differ(_left(one, end), _left(other, end))

"""The cases that a subject can be asked: at the sizes that it takes, with the masks that it has, each once."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from encoder_conformance.protocol.arguments import MaskInput
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.protocol.tensors import digest_of
from encoder_conformance.spec.case import Case, layer_parameters
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.dtypes import DtypeName, Format, dtype_named
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.masking import Blind, Causal, Drawn, EndPadding, Mask
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.spec.portable import RAISED
from encoder_conformance.spec.situation import Check, Situation, unfit
from encoder_conformance.subjects.beyond import cases_beyond, causal_cases_beyond
from encoder_conformance.subjects.questions import cases_of, question_of

Array = np.ndarray[Any, Any]
OWN = ("no-mask", "padded-item", "causal", "no-mask-16-bit", "padded-item-16-bit")
"""The situations in which a subject's own parameters are judged, too."""
_OF_MODULES: frozenset[Check] = frozenset({"output", "stages", "gradients", "invariant"})
_OF_FILES: frozenset[Check] = frozenset({"output", "stages", "invariant"})
"""A file gives no gradients."""
_NO_INVARIANTS = ("layout", "mask_encoding", "train_without_dropout")
"""Of how inputs are given, which a module has one way of; and of training."""
_AT_ANY_SIZE = (None, "determinism", "padding_content")
"""Invariants, and none, that a smaller batch and sequence show as well; others are made for their sizes."""


@dataclass(frozen=True)
class InputLimits:
    """Limits of a subject: what its masks can say, and the sizes that it is fixed to; None: any.

    `by_item`, `by_head`: attention masks differ between these. `counted`: padding stands on the right alone, of items
    that have a position. `causal`: no mask lets it see later positions.
    """

    padding: bool
    attention: bool
    by_item: bool
    by_head: bool
    bias: bool = False
    causal: bool = False
    counted: bool = False
    batch: int | None = None
    sequence: int | None = None

    @classmethod
    def of_module(cls, described: ModuleDescription) -> "InputLimits":
        limits = cls._of_masks(described.masks)
        bias = any(mask.by_query and mask.by_head and mask.meaning == "additive" for mask in described.masks)
        counted = any(mask.counted or mask.past_first for mask in described.masks)
        return replace(limits, bias=bias, causal=described.always_causal, counted=counted)

    @classmethod
    def of_file(cls, description: FileDescription) -> "InputLimits":
        batch, sequence = description.sizes()
        masks = description.mask_inputs.values()
        limits = cls._of_masks(masks, one_item=batch == 1)
        return replace(limits, counted=any(mask.counted for mask in masks), batch=batch, sequence=sequence)

    @classmethod
    def _of_masks(cls, masks: Collection[MaskInput], *, one_item: bool = False) -> "InputLimits":
        """`one_item`: a batch of one, whose item any mask tells apart."""
        by_query = [mask for mask in masks if mask.by_query]
        return cls(
            padding=any(one_item or mask.by_item for mask in masks),
            attention=bool(by_query),
            by_item=any(one_item or mask.by_item for mask in by_query),
            by_head=any(mask.by_head for mask in by_query),
        )

    def fit(self, batch: int, sequence: int) -> bool:
        return self.batch in (None, batch) and self.sequence in (None, sequence)

    def allow(self, mask: Mask) -> bool:
        """Whether the masks can say it."""
        if mask.padding is not None and not (self.padding and (not self.counted or _is_counted(mask))):
            return False
        if self.causal:
            return isinstance(mask.attention, Causal) and mask.bias is None
        if mask.bias is not None and not self.bias:
            return False
        match mask.attention:
            case None:
                return True
            case Causal():
                return self.attention
            case Drawn(axes=axes):
                return self.attention and (self.by_item or "B" not in axes) and (self.by_head or "H" not in axes)
        return self.by_item

    def ask(self, situation: Situation) -> bool:
        """Whether a check asks it. Padding holds what it was drawn as: 2^100 overflows in PyTorch's own LayerNorm."""
        if situation.mode != "eval" or not _OF_MODULES & {*situation.checks} or situation.invariant in _NO_INVARIANTS:
            return False
        if self.counted and situation.invariant == "permutation" and situation.mask.padding is not None:
            return False  # positions of padding would come to stand among others
        is_plain = situation.given.layout == "batch_first" and situation.input.padding == "as_drawn"
        return is_plain and self.allow(situation.mask)


def _is_counted(mask: Mask) -> bool:
    """Whether the number of positions that it shows, of each item, says all."""
    padding = mask.padding
    return isinstance(padding, EndPadding) and padding.kind == "right" and all(padding.lengths)


def each_once(cases: Iterable[Case], dtype: DtypeName | None = None) -> Iterator[Case]:
    """Each set of tensors once, however a situation would have them given, and every invariant.

    `dtype`: the format that they are asked in; None: the last that each names.
    """
    seen = set[bytes]()
    for case in cases:
        if case.situation.invariant is None:
            format = dtype or case.situation.dtypes[-1]
            content = digest_of(question_of(case, format), f"{case.situation.parameter_exponents} {format}")
            if content in seen:
                continue
            seen.add(content)
        yield case


def neutral(parameters: Mapping[str, Array], absent: Sequence[str]) -> dict[str, Array]:
    """The parameters with those that are absent set to what does nothing: a gain of 1, a bias or shift of 0."""
    without = {name: np.full_like(parameters[name], name.endswith("gain")) for name in absent}
    return {**parameters, **without}


def pool(
    layer: Layer, limits: Sequence[InputLimits], level: Level, dtypes: Collection[str] = ("float32",)
) -> Iterator[Case]:
    """Cases of the level in any of these formats that all of these limits allow, and those beyond. The core of a stack,
    and of a layer that is always causal, is all required ones."""
    causal = any(each.causal for each in limits)
    whole = layer.is_stack or causal
    of_level = (
        case
        for case in cases_of(layer, "required" if level == "core" else level, 0)
        if level != "core" or case.in_core or whole
    )
    padded = all(each.padding for each in limits)
    beyond = causal_cases_beyond(layer, dtypes) if causal else cases_beyond(layer, dtypes, padded=padded)
    for case in (*of_level, *beyond):
        of_format = not set(dtypes).isdisjoint(case.situation.dtypes)
        if of_format and all(each.ask(case.situation) for each in limits):
            yield case


def module_cases(described: ModuleDescription, layer: Layer, level: Level = "core") -> list[Case]:
    """The layer with portable parameters, in the situations that a module's masks can say."""
    of_level = _taken(pool(layer, [InputLimits.of_module(described)], level, described.dtypes), described)
    asked = _at_lengths(of_level, described)
    most_checks_first = sorted(asked, key=lambda case: -len(case.situation.checks))
    return [_with_what_it_has(_in_formats(case, described), described) for case in each_once(most_checks_first)]


def of_other_sizes(layer: Layer, own: Mapping[str, Array]) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Those of a module's own parameters that the layer has in other sizes, as of wider heads, or fewer heads of keys:
    the name, its shape, and the one that is due. Such a module is not asked."""
    for parameter in parameters_of(layer):
        found, due = own.get(parameter.name), parameter.shape(layer)
        if found is not None and found.shape != due:
            yield parameter.name, found.shape, due


def own_cases(
    described: ModuleDescription, layer: Layer, own: Mapping[str, Array], level: Level = "core"
) -> Iterator[Case]:
    """With the module's own parameters; none if it lacks some that the layer has no way to do without."""
    renamed, portable = layer.model_copy(update={"layer": f"{layer.layer}-own"}), layer_parameters(layer, {})
    held = CaseParameters.of({**neutral(portable, described.absent), **own})
    of_level = _taken(pool(renamed, [InputLimits.of_module(described)], level, described.dtypes), described)
    for case in _at_lengths(of_level, described):
        if case.situation.situation in OWN:
            yield replace(_in_formats(case, described), held=held)


def _taken(cases: Iterable[Case], described: ModuleDescription) -> Iterator[Case]:
    """Those that it takes, where it refuses an item that is padding alone."""
    return (case for case in cases if not (described.padded_item_raises and sees_nothing_somewhere(case)))


def _at_lengths(cases: Iterable[Case], described: ModuleDescription) -> Iterator[Case]:
    """The cases at the nearest numbers of positions that a module takes which does not take any.

    Invariants that are made for their sizes are left out, as those of more positions."""
    if not described.lengths:
        yield from cases
        return
    for case in cases:
        situation, length = case.situation, nearest_length(described.lengths, case.situation.sequence)
        if length != situation.sequence and situation.invariant not in _AT_ANY_SIZE:
            continue
        resized = _resized(situation, situation.batch, length, _OF_MODULES)
        if resized is not None and (situation.invariant is None or situation.invariant in _AT_ANY_SIZE):
            yield replace(case, situation=resized)


def nearest_length(lengths: Sequence[int], wanted: int) -> int:
    """The least of these that is no less than so many positions, or else the largest; where all multiples of the least
    are taken, the next multiple."""
    step = lengths[0]
    if step > 1 and len(lengths) > 1 and all(length % step == 0 for length in lengths):
        return -(-wanted // step) * step
    return min((length for length in lengths if length >= wanted), default=lengths[-1])


def _in_formats(case: Case, described: ModuleDescription) -> Case:
    situation = case.situation
    dtypes = tuple(dtype for dtype in situation.dtypes if dtype in described.dtypes)
    checks = tuple(check for check in situation.checks if check in _OF_MODULES)
    if described.padded_item_is_nan and sees_nothing_somewhere(case):
        checks = tuple(check for check in checks if check != "gradients")
    return replace(case, situation=situation.model_copy(update={"dtypes": dtypes, "checks": checks}))


def sees_nothing_somewhere(case: Case) -> bool:
    """Whether a query sees no key: those of an item of padding, and one whose window is padding alone."""
    seen = case.seen()
    return seen is not None and not bool(seen.any(-1).all())


def _with_what_it_has(case: Case, described: ModuleDescription) -> Case:
    """With what the module lacks set to what does nothing, and what is one tensor made equal."""
    if not described.absent and not described.tied:
        return case
    parameters = neutral(case.parameters(), described.absent)
    for first, second in described.tied:
        turned = described.is_turned(first, second)
        parameters[second] = np.ascontiguousarray(parameters[first].T) if turned else parameters[first]
    return replace(case, held=CaseParameters.of(parameters))


def file_cases(
    situations: Iterable[Situation],
    limits: InputLimits,
    layer: Layer,
    format: Format,
    held: CaseParameters,
    at_most: tuple[int, int] | None = None,
) -> Iterator[Case]:
    """Those of the situations that fit the sizes of a file, with `at_most` so many items and positions.

    `format`: the dtype of the file's output, with the roundoff of what it computes in. `held`: the file's parameters.
    """
    for situation in situations:
        B, S = limits.batch, limits.sequence
        if at_most is not None and situation.invariant in _AT_ANY_SIZE:
            B, S = B or min(at_most[0], situation.batch), S or min(at_most[1], situation.sequence)
        resized = _resized(situation, B or situation.batch, S or situation.sequence)
        if resized is not None:
            asked = _varied(resized, format).model_copy(update={"dtypes": (dtype_named(format.name),)})
            yield Case(layer, asked, held=held)


def _resized(situation: Situation, B: int, S: int, of_kind: frozenset[Check] = _OF_FILES) -> Situation | None:
    """The situation of B items and S positions, its padding and blind queries cut or repeated; None if all of it is
    padding, or none is, or if its invariant is of more.

    Fewer items are those first that have both, so that one item alone shows padding."""
    checks = tuple(check for check in situation.checks if check in of_kind)
    if situation.invariant and unfit(situation.invariant, B, S, situation.mask):
        return None
    if (situation.batch, situation.sequence) == (B, S):
        return situation.model_copy(update={"checks": checks})
    changed: dict[str, Any] = {**situation.model_dump(), "checks": checks, "batch": B, "sequence": S, "equals": None}
    if situation.mask.padding is not None:
        valid = situation.mask.valid(situation.batch, situation.sequence)
        items = [[item[s * situation.sequence // S] for s in range(S)] for item in valid]
        if situation.batch > B:
            items.sort(key=lambda item: all(item) or not any(item))
        rows = [items[b % situation.batch] for b in range(B)]
        if not any(map(any, rows)) or all(map(all, rows)):
            return None
        holes = tuple(tuple(s for s in range(S) if not row[s]) for row in rows)
        changed["mask"] = {**changed["mask"], "padding": {"kind": "holes", "positions": holes}}
    if isinstance(situation.mask.attention, Blind):
        blind = [{q * S // situation.sequence for q in item} for item in situation.mask.attention.queries]
        queries = tuple(tuple(sorted(blind[b % situation.batch])) for b in range(B))
        changed["mask"] = {**changed["mask"], "attention": {"kind": "blind", "queries": queries}}
    return Situation.model_validate(changed)


def _varied(situation: Situation, format: Format) -> Situation:
    """The situation with as large a mean and more than two values of x, where the format holds them (P-4)."""
    given = situation.input
    if given.pattern != "offset" or format.roundoff * RAISED > 0.25:
        return situation
    raised = given.model_copy(update={"pattern": "raised", "exponent": given.exponent - 9})
    return situation.model_copy(update={"input": raised})

"""Compares how two subjects are called: the layout of x, what no mask means, and what each mask means and takes.

Each is asked in the way that it wants, so their numbers say nothing of this.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from encoder_conformance.protocol.arguments import MEANINGS, MaskForm, MaskMeaning
from encoder_conformance.protocol.description import Description, FileDescription
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding, Severity
from encoder_conformance.protocol.module_description import ModuleDescription

Sides = tuple[str, str]
"""The names of both in a sentence."""
_BY_PLACE = "a call by place means another thing in each; both were called by name, and so the numbers do not show it"
_OF_DATA = re.compile(r"(is_?)?valid(_?mask)?|keep(_?mask)?|(non|not)_?(pad|padded|padding)(_?mask)?")
"""Names that say that a position is one of data."""
_OPPOSITE = frozenset[MaskMeaning](("attend", "ignore"))


def usual_meaning(name: str) -> MaskMeaning | None:
    """The meaning of true in a mask of this name that everybody knows; None where libraries differ."""
    if name == "attention_mask" or _OF_DATA.fullmatch(name):
        return "attend"
    return "ignore" if name.endswith("key_padding_mask") else None


def conventional_meaning(name: str, framework: str) -> MaskMeaning | None:
    """The meaning of true in a mask of this name in the framework; None where its libraries differ.

    Keras' layers attend where a mask is true, whatever its name; so do Flax' and JAX' attention masks. PyTorch's
    padding masks are true where padding is, and its libraries differ about the rest.
    """
    if (usual := usual_meaning(name)) is not None:
        return usual
    if framework == "PyTorch":
        return "ignore" if name.endswith("padding_mask") else None
    attends = bool(framework) and "mask" in name and (framework == "Keras" or "pad" not in name)
    return "attend" if attends else None


def is_of_padding(name: str) -> bool:
    """Whether everybody knows a mask of this name as one of keys alone, [batch, sequence], and none of queries."""
    return name.endswith("padding_mask")


def compared(one: Description, two: Description, sides: Sides) -> Iterator[Finding]:
    """An error where the same call means another thing, a warning where one of them cannot be called so, and a note
    where it is called by another name or in fewer forms."""
    if one.x_layout != two.x_layout and one.x_layout and two.x_layout:
        message = f"x: {one.x_layout} in {sides[0]}, {two.x_layout} in {sides[1]}"
        yield _finding("error", "x-layout-differs", message, layouts=[one.x_layout, two.x_layout])
    yield from _place_of_x(one, two, sides)
    yield from _without_masks(one, two, sides)
    ours, theirs = _masks(one), _masks(two)
    pairs = list(_pairs(ours, theirs))
    for pair in pairs:
        yield from pair.findings(sides)
    yield from _exchanged(pairs, sides)
    matched = {mask.name for pair in pairs for mask in (pair.one, pair.two)}
    for masks, side, other in ((ours, *sides), (theirs, *sides[::-1])):
        for mask in masks:
            if mask.name not in matched:
                message = f"{mask.name} of {side} ({MEANINGS[mask.meaning]}) is like no argument of {other}"
                message = f"{message}: it was not compared"
                yield _finding("warning", "mask-unmatched", message, mask=mask.name, side=side)


def _place_of_x(one: Description, two: Description, sides: Sides) -> Iterator[Finding]:
    """Whether x is the first argument of both."""
    if isinstance(one, ModuleDescription) and isinstance(two, ModuleDescription):
        behind = [bool(each.x.before) for each in (one, two)]
        if behind[0] != behind[1]:
            x, (side, other) = (one.x, sides) if behind[0] else (two.x, sides[::-1])
            message = f"x: behind {x.before} in {side}, the first argument in {other}"
            yield _finding("error", "x-place-differs", message, _BY_PLACE, before=x.before, side=side)


def _without_masks(one: Description, two: Description, sides: Sides) -> Iterator[Finding]:
    """Whether positions see later ones where no mask is given."""
    if isinstance(one, ModuleDescription) and isinstance(two, ModuleDescription) and one.causal != two.causal:
        causal, other = sides if one.causal else sides[::-1]
        message = f"without a mask: no position sees a later one in {causal}, each sees all others in {other}"
        yield _finding("error", "causality-differs", message, causal=causal)


@dataclass(frozen=True)
class _Mask:
    """A mask of one side. `framework`: "" of a file. `place`: how many arguments stand before it, where it needs no
    name. `forms`: (dtype, axes) → what may be meant by it; nothing: it is taken and hides nothing. `whole`: whether
    these are all usual ones."""

    framework: str
    name: str
    meaning: MaskMeaning
    by_query: bool
    place: int | None
    forms: Mapping[tuple[str, str], frozenset[MaskMeaning]]
    whole: bool

    def text(self, form: tuple[str, str]) -> str:
        meanings = [meaning for meaning in MEANINGS if meaning in self.forms[form]]
        return " or ".join(map(MEANINGS.__getitem__, meanings)) or "it hides nothing"

    @property
    def is_conventional(self) -> bool:
        known = conventional_meaning(self.name, self.framework)
        return known is not None and self.meaning in (known, "additive")

    @property
    def misleads(self) -> bool:
        """Whether everybody knows its name as that of the opposite."""
        known = usual_meaning(self.name)
        return known is not None and self.meaning not in (known, "additive")

    @property
    def own(self) -> tuple[str, str]:
        """The form in which it is given."""
        return next(iter(self.forms))


def _masks(description: Description) -> list[_Mask]:
    match description:
        case ModuleDescription():
            return [
                _Mask(
                    *(description.framework, mask.argument, mask.meaning, mask.by_query, mask.place),
                    {(form.dtype, form.axes): frozenset(form.meanings) for form in mask.forms},
                    whole=True,
                )
                for mask in description.masks
            ]
        case FileDescription():
            return [
                _Mask(
                    *("", name, mask.meaning, mask.by_query, None),
                    {(description.port(name).dtype, mask.axes): frozenset((mask.meaning,))},
                    whole=False,
                )
                for name, mask in description.mask_inputs.items()
                if mask.meaning
            ]
    return []


@dataclass(frozen=True)
class _Pair:
    """A mask of each side that stands for the other's."""

    one: _Mask
    two: _Mask

    def findings(self, sides: Sides) -> Iterator[Finding]:
        """What differs in meaning; else what is taken by one alone, and the names."""
        name, (first, second) = self._name(sides), sides
        shared = [form for form in self.one.forms if form in self.two.forms]
        alike = [form for form in shared if self.one.forms[form] & self.two.forms[form]]
        apart = [form for form in shared if form not in alike and (self.one.forms[form] or self.two.forms[form])]
        opposite = [form for form in apart if self.one.forms[form] | self.two.forms[form] >= _OPPOSITE]
        if opposite or (apart and not alike):
            form = (opposite or apart)[0]
            meanings = f"{self.one.text(form)} in {first}, {self.two.text(form)} in {second}"
            about = self._about | {"form": _form(form)}
            yield _finding(self._severity, "mask-meaning-differs", f"{name}: {meanings}", _given(form), **about)
        elif not alike:
            yield self._disjoint(name, sides)
        else:
            yield from self._narrowed(name, sides, apart)

    @property
    def _about(self) -> dict[str, object]:
        return {"masks": [self.one.name, self.two.name], "meanings": [self.one.meaning, self.two.meaning]}

    @property
    def is_placed(self) -> bool:
        """Whether both need no name, within one framework."""
        return None not in (self.one.place, self.two.place) and self.one.framework == self.two.framework

    def _name(self, sides: Sides) -> str:
        same = self.one.name == self.two.name
        return self.one.name if same else f"{self.one.name} of {sides[0]} and {self.two.name} of {sides[1]}"

    @property
    def _severity(self) -> Severity:
        """Of opposite meanings: an error where one call reaches both, and less where each name says what it means.

        One name reaches both, and one place does within a framework. From one framework to another a call is written
        anew, by the conventions of that: a note. A name that everybody knows, used the other way round, says the
        opposite of what is meant.
        """
        if self.one.name == self.two.name or self.one.misleads or self.two.misleads:
            return "error"
        within = self.one.framework == self.two.framework
        if self.one.is_conventional and self.two.is_conventional:
            return "warning" if within else "note"
        by_place = self.one.place is not None and self.one.place == self.two.place
        return "error" if by_place and within else "warning"

    def _disjoint(self, name: str, sides: Sides) -> Finding:
        """No form is taken by both: a call of one raises in the other. By one name it is expected not to."""
        opposite, same = {self.one.meaning, self.two.meaning} == _OPPOSITE, self.one.name == self.two.name
        severity: Severity = "error" if opposite and same else "warning" if opposite or same else "note"
        first, second = (f"{mask.text(mask.own)} ({_form(mask.own)})" for mask in (self.one, self.two))
        meanings = f"{first} in {sides[0]}, {second} in {sides[1]}"
        message = f"{name}: {meanings}; no form is taken by both"
        return _finding(severity, "mask-forms-disjoint", message, "", **self._about)

    def _narrowed(self, name: str, sides: Sides, apart: list[tuple[str, str]]) -> Iterator[Finding]:
        if apart:
            meanings = f"{self.one.text(apart[0])} in {sides[0]}, {self.two.text(apart[0])} in {sides[1]}"
            message, about = f"{name}, as {_form(apart[0])}: {meanings}", self._about | {"form": _form(apart[0])}
            yield _finding("warning", "mask-meaning-differs", message, "", **about)
        if self.one.name != self.two.name:
            yield _finding("note", "mask-renamed", f"{name} are the same mask", "", **self._about)
        if self.one.whole and self.two.whole:
            for mask, other, side in ((self.one, self.two, sides[0]), (self.two, self.one, sides[1])):
                alone = [_form(form) for form, meanings in mask.forms.items() if meanings and form not in other.forms]
                if alone:
                    message, about = f"{name}: {side} alone takes {', '.join(alone)}", {"side": side, "forms": alone}
                    yield _finding("note", "mask-form-one-sided", message, "", **self._about, **about)


def _pairs(ours: list[_Mask], theirs: list[_Mask]) -> Iterator[_Pair]:
    """Those of one name, then those that both tell queries apart or both do not, then the rest in order."""
    ours, theirs = list(ours), list(theirs)
    for fits in (
        lambda one, two: one.name == two.name,
        lambda one, two: one.by_query == two.by_query,
        lambda one, two: True,
    ):
        for one in list(ours):
            two = next((each for each in theirs if fits(one, each)), None)
            if two is not None:
                ours.remove(one)
                theirs.remove(two)
                yield _Pair(one, two)


def _exchanged(pairs: list[_Pair], sides: Sides) -> Iterator[Finding]:
    """Masks that stand in one another's places: a call by place gives each as the other. Of one framework: from one to
    another a call is written anew."""
    placed = [pair for pair in pairs if pair.is_placed]
    for first, second in combinations(placed, 2):
        if (first.one.place, second.one.place) == (second.two.place, first.two.place):
            ours, theirs = (_in_order(masks) for masks in ((first.one, second.one), (first.two, second.two)))
            message = f"masks are in another order: {ours} in {sides[0]}, {theirs} in {sides[1]}"
            masks = [[first.one.name, second.one.name], [first.two.name, second.two.name]]
            yield _finding("error", "masks-order-differs", message, _BY_PLACE, masks=masks)


def _in_order(masks: tuple[_Mask, _Mask]) -> str:
    return ", ".join(mask.name for mask in sorted(masks, key=lambda mask: mask.place or 0))


def _form(form: tuple[str, str]) -> str:
    return MaskForm(dtype=form[0], axes=form[1], meanings=()).text


def _given(form: tuple[str, str]) -> str:
    return f"given as {_form(form)}; each was asked in its own way, and so the numbers do not show it"


def _finding(severity: Severity, kind: FindingKind, message: str, hint: str = "", **about: object) -> Finding:
    return Finding(severity=severity, kind=kind, message=message, hint=hint, about=about)

"""Inputs of a whole file, whatever it takes: values, token ids, positions and masks, by size, mask and range."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, count
from math import ceil, prod, sqrt

import ml_dtypes  # noqa: F401  bfloat16, in NumPy
import numpy as np

from encoder_conformance.blackbox.asked_shapes import AskedShape, Kind
from encoder_conformance.blackbox.input_roles import InputRoles
from encoder_conformance.blackbox.masks import hidden_positions, laid_out, seen_by_each_query
from encoder_conformance.protocol.description import FileDescription, Size, WholeFile, WholeInput
from encoder_conformance.spec.axes import Array, Bools
from encoder_conformance.spec.dtypes import FORMATS

_SIZES = ((1, 1), (1, 7), (3, 1), (2, 20), (5, 33))
"""Batch and sequence: one item, one position, and sizes that no example of an exporter is likely to have."""
_MASKED, _WIDE = (3, 20), (2, 20)
_LONG = (300, 128, 64)
"""Beyond windows of 256 to either side, of 64 and of 32; of the last two a large file is asked, and an image."""
_LONGEST, _SKIPPED = 1024, 2
"""The most positions that are asked for the last row of a table; and rows that models leave before the first."""
_MOST_ROWS, _OF_ROWS = 4096, (64, 16, 4)
"""The most ids that are all asked, and the lengths of the items that they are asked in."""
_LONGER = 7
"""What stands beside x, than x."""
_FAR, _FAR_IN_HALF = 512.0, 16.0
"""Of the values, beside a spread of 1: a variance as E[x²] − E[x]² is lost in float32, and in a half format, in which
scores of values further out have no numbers."""
_FEW_ROWS = 64
"""Of a table: any numbers below are all of them, soon."""
_ENDS = 4
"""Rows at either end of a table, where those of padding and of what was added last are."""
_ANY = 2
"""Values of an integer input of which nothing is known lie below: no table of the source has fewer rows."""


@dataclass(frozen=True)
class WholeCase:
    """Inputs by name. `is_padded`: a mask among them hides positions. `values`: inputs of which each number counts."""

    name: str
    batch: int
    sequence: int
    is_padded: bool
    inputs: Mapping[str, Array]
    values: tuple[str, ...]
    kind: Kind = "ordinary"
    hidden: Bools | None = None
    """The positions [B, S] that are hidden, where a mask among the inputs hides some."""
    is_causal: bool = False
    """Whether no position sees a later one in what is asked."""

    @property
    def undefined(self) -> Bools | None:
        """The positions [B, S] that see hidden ones alone: all of an item of padding alone, and, where none sees a
        later one, what stands before the first that is not hidden."""
        if self.hidden is None:
            return None
        if self.is_causal:
            return np.asarray(np.logical_and.accumulate(self.hidden, axis=-1))
        return np.broadcast_to(self.hidden.all(-1, keepdims=True), self.hidden.shape)


@dataclass(frozen=True)
class WholeInputs:
    """Draws the inputs of a file. `meaning`: that of true in each mask, as far as it is known. `baked`: the sizes that
    it declares free, and runs at alone. `least`: the fewest samples, frames or pixels that its source takes, as many as
    a window of its first convolution; and `rest`: whether it takes numbers of them that are no multiples."""

    file: WholeFile
    meaning: Mapping[str, str] = field(default_factory=dict)
    baked: Mapping[Size, int] = field(default_factory=dict)
    least: int = 1
    rest: bool = False

    @classmethod
    def of(cls, description: FileDescription) -> "WholeInputs":
        """Those of the file as it is described. Its `whole` is known."""
        assert description.whole is not None
        masks = description.roles.masks if description.roles else ()
        meaning = {mask.name: mask.meaning for mask in masks if mask.meaning}
        return cls(description.whole, meaning, description.baked)

    @cached_property
    def roles(self) -> InputRoles:
        return InputRoles(self.file, self.meaning)

    def cases(self, *, few: bool = False) -> list[WholeCase]:
        """Sizes, masks where it takes any, and values far out of the ordinary range. `few`: for a large file."""
        shapes = list(self._shapes(few=few))
        before = accumulate((shape.batch * shape.sequence for shape in shapes), initial=0)
        return [self._drawn(*each) for each in zip(shapes, count(), before, strict=False)]

    def long_cases(self, *, few: bool = False) -> list[WholeCase]:
        """One item at lengths beyond what a window shows, the longest first, for the first that the source takes: a
        table of positions may be short. None where the file fixes its length."""
        lengths = self._long_lengths(few=few) if self.roles.lengths_are_free else ()
        shapes = [AskedShape(f"{B} x {S}", B, S) for length in lengths for B, S in (self._fitting(1, length),)]
        before = sum(each.batch * each.sequence for each in self._shapes(few=few))
        free = {self._stretched(length) for length in lengths}
        asked = (each for each in shapes if each.sequence in free and each.batch < 8)
        return [self._drawn(each, each.sequence, before) for each in asked]

    def _long_lengths(self, *, few: bool) -> tuple[int, ...]:
        """Those beyond windows; before them, of what is no image, as many as a table of positions has rows, or two
        less: RoBERTa's begins at the third."""
        tables = [n - skipped for n in sorted(self.file.places, reverse=True) for skipped in (0, _SKIPPED)]
        without = few or self.roles.is_image or self.least > 1
        whole = () if without else tuple(n for n in tables if _LONG[0] < n <= _LONGEST)
        return (*whole, *_LONG[few or self.roles.is_image :])

    def places_asked(self, cases: Iterable[WholeCase]) -> Iterator[tuple[int, int]]:
        """How many rows of a table of positions these cases take, and how many there are, where that is not all."""
        longest = max((case.sequence for case in cases), default=0)
        free = self.roles.lengths_are_free and self.least == 1 and not self.roles.is_image
        return ((longest, rows) for rows in self.file.places if free and longest + _SKIPPED < rows)

    def uneven_cases(self) -> list[WholeCase]:
        """Axes that have names of their own at a length of their own, as a memory beside x, or an image's width: all of
        them, then each by itself, for the first that the source takes. None where one name stands for all."""
        free = [size for port in self.file.inputs for role, size in self.roles.axes(port) if role == "sequence"]
        _, *others = dict.fromkeys(size for size in free if isinstance(size, str)) or [""]
        if self.baked or self.roles.is_square or not others:
            return []
        (batch, sequence), longer = self._fitting(*_WIDE), self._stretched(_WIDE[1] + _LONGER)
        chosen = dict.fromkeys([tuple(others), *((each,) for each in others)])
        named = {f"{batch} x {sequence}, {', '.join(names)} {longer}": names for names in chosen}
        shapes = (AskedShape(name, batch, sequence, others=dict.fromkeys(named[name], longer)) for name in named)
        return [self._drawn(each, longer) for each in shapes]

    def row_cases(self, cases: Iterable[WholeCase]) -> list[WholeCase]:
        """All ids at once, where these cases leave some and there are not too many: items of a length, the longest
        first, for the first that the source takes."""
        rows = max((rows for _, _, rows in self.rows_asked(cases)), default=0)
        if self.baked or not 0 < rows <= _MOST_ROWS:
            return []
        sizes = [(ceil(rows / length), length) for length in _OF_ROWS]
        shapes = [AskedShape(f"{B} x {S}, every id", B, S) for B, S in sizes if self._fitting(B, S) == (B, S)]
        return [self._drawn(each, each.sequence) for each in shapes]

    def _stretched(self, sequence: int) -> int:
        """So many windows; of an image, as many in all."""
        windows = ceil(sqrt(sequence)) if self.roles.is_image and self.least > 1 else sequence
        return windows * self.least + (windows // 3 if self.rest else 0)

    def padded_case(self) -> WholeCase | None:
        """One in which positions are hidden, though no input says so; None where the file has one position alone."""
        batch, sequence = self._fitting(*_MASKED)
        hidden = next((each for _, each in hidden_positions(batch, sequence)), None) if sequence > 1 else None
        return None if hidden is None else self._drawn(AskedShape("padded", batch, sequence, hidden), sequence)

    def far_case(self) -> WholeCase | None:
        """One in which a variance as E[x²] − E[x]² is lost; None for a file without values."""
        batch, sequence = self._fitting(*_WIDE)
        offset = _FAR_IN_HALF if self.file.held in ("bfloat16", "float16") else _FAR
        shape = AskedShape(f"{batch} x {sequence}, values far from zero", batch, sequence, offset=offset)
        return self._drawn(shape, sequence) if self.roles.values else None

    def rows_asked(self, cases: Iterable[WholeCase]) -> Iterator[tuple[str, int, int]]:
        """An input of ids of which these cases give not every one: how many they do, where nothing hides it, and how
        many there are."""
        for port in self.file.inputs:
            if port.rows is not None and port.name not in self.roles.masks and not self.roles.is_position(port):
                given = (_seen(case.inputs[port.name], case.hidden) for case in cases)
                asked = len(set[int]().union(*(map(int, each) for each in given)))
                if asked < port.rows:
                    yield port.name, asked, port.rows

    def _shapes(self, *, few: bool) -> Iterator[AskedShape]:
        sizes = _SIZES[1::2] if few else _SIZES
        for batch, sequence in dict.fromkeys(self._fitting(*size) for size in sizes):
            yield AskedShape(f"{batch} x {sequence}", batch, sequence)
        batch, sequence = self._fitting(*_MASKED)
        for name, hidden in hidden_positions(batch, sequence) if self.roles.say_padding and sequence > 1 else ():
            if not few or name in ("padding on the right", "lengths that are not in order"):
                yield AskedShape(f"{batch} x {sequence}, {name}", batch, sequence, hidden)
        if sequence > 1 and any(self.roles.is_by_query(each) for each in self.file.inputs):
            yield AskedShape(f"{batch} x {sequence}, another mask for each query", batch, sequence, by_query=True)
        if self.roles.values:
            batch, sequence = self._fitting(*_WIDE)
            yield AskedShape(f"{batch} x {sequence}, values 8 times as large", batch, sequence, scale=8.0)
            if not few:
                yield AskedShape(f"{batch} x {sequence}, values 1000 times as small", batch, sequence, scale=1e-3)

    def _fitting(self, batch: int, sequence: int) -> tuple[int, int]:
        """The size, where the file fixes none."""
        sizes = {role: size for role, size in self.roles.all_axes if isinstance(size, int)}
        batch, sequence = sizes.get("batch", batch), sizes.get("sequence", self._stretched(sequence))
        batch, sequence = self.baked.get("batch", batch), self.baked.get("sequence", sequence)
        return (sequence, sequence) if self.roles.is_square and "batch" not in sizes else (batch, sequence)

    def _drawn(self, shape: AskedShape, number: int, before: int = 0) -> WholeCase:
        """`before`: so many positions were drawn before it: their ids are others."""
        rng = np.random.default_rng((7, number))
        inputs = {port.name: self._value(port, shape, rng, before) for port in self.file.inputs}
        return WholeCase(
            name=shape.name,
            batch=shape.batch,
            sequence=shape.sequence,
            is_padded=shape.is_padded,
            inputs=inputs,
            values=self.roles.values,
            kind=shape.kind,
            hidden=shape.hidden,
        )

    def unmasked(self, case: WholeCase) -> Mapping[str, Array]:
        """Each mask of a case that hides something → a value in its place that hides nothing."""
        visible, masks = np.ones((case.batch, case.sequence), np.bool_), set(self.roles.masks)
        whole = {
            port.name: laid_out(visible, given.shape, given.dtype, self.roles.meaning_of(port))
            for port in self.file.inputs
            if port.name in masks
            for given in (case.inputs[port.name],)
        }
        return {name: value for name, value in whole.items() if not np.array_equal(value, case.inputs[name])}

    def alone(self, case: WholeCase, item: int = 0) -> Mapping[str, Array]:
        """The inputs of one item of a case by itself."""
        return {port.name: self._of_item(port, case.inputs[port.name], item) for port in self.file.inputs}

    def _of_item(self, port: WholeInput, value: Array, item: int) -> Array:
        """An item of [B, ...], as a batch of one; the value itself where it is one for all items."""
        axes = [place for place, (role, size) in enumerate(self.roles.axes(port)) if role == "batch" and size != 1]
        return value.take([item], axis=axes[0]) if axes else value

    def refilled(self, case: WholeCase) -> Mapping[str, Array]:
        """The inputs of a case with other ids and other values where positions are hidden."""
        if case.hidden is None:
            return case.inputs
        rng = np.random.default_rng(8)
        told = (
            *self.roles.masks,
            *(each.name for each in self.file.inputs if self.roles.is_length(each) or self.roles.is_position(each)),
        )
        return {
            port.name: value if port.name in told else self._other_where(port, value, case.hidden, rng)
            for port in self.file.inputs
            for value in (case.inputs[port.name],)
        }

    def _other_where(self, port: WholeInput, value: Array, hidden: Bools, rng: np.random.Generator) -> Array:
        """The value of an input, exchanged within its batch where a position [B, S] is hidden."""
        if [role for role, _ in self.roles.axes(port)][:2] != ["batch", "sequence"] or value.shape[:2] != hidden.shape:
            return value
        other = value.copy()
        other[hidden] = rng.permutation(value.reshape(-1, *value.shape[2:]))[: int(hidden.sum())]
        return other

    def _value(self, port: WholeInput, asked: AskedShape, rng: np.random.Generator, before: int) -> Array:
        axes = self.roles.axes(port)
        shape = tuple(size if isinstance(size, int) else asked.size(role, size) for role, size in axes)
        kind = np.dtype(port.dtype)
        if port.name in self.roles.masks:
            by_query = asked.by_query and self.roles.is_by_query(port)
            visible = seen_by_each_query(asked.batch, asked.sequence, rng) if by_query else self._visible(asked)
            if asked.others:
                keys = [size for size, (role, _) in zip(shape, axes, strict=True) if role == "sequence"]
                visible = np.ones((asked.batch, keys[-1] if keys else asked.sequence), np.bool_)
            return laid_out(visible, shape, kind, self.roles.meaning_of(port))
        if port.dtype in FORMATS:
            return np.asarray(asked.offset + rng.standard_normal(shape) * asked.scale).astype(kind)
        if self.roles.is_length(port):
            return np.broadcast_to(self._visible(asked).sum(-1), shape).astype(kind)
        if self.roles.is_position(port):
            places = np.arange(asked.sequence) % (port.rows or asked.sequence)
            return np.broadcast_to(places, shape).astype(kind)
        if port.rows is not None and port.rows > _FEW_ROWS:
            return _ids(port.rows, before, shape).astype(kind)
        return rng.integers(0, port.rows or _ANY, shape).astype(kind)

    def _visible(self, asked: AskedShape) -> Bools:
        everywhere = np.ones((asked.batch, asked.sequence), np.bool_)
        return everywhere if asked.hidden is None else ~asked.hidden


def _ids(rows: int, before: int, shape: tuple[int, ...]) -> Array:
    """Rows of a table [*shape], the first and the last before the others, and each before one is there again."""
    ends = [*range(_ENDS), *range(rows - _ENDS, rows)]
    others = np.random.default_rng(9).permutation(np.arange(_ENDS, rows - _ENDS))
    return np.concatenate([ends, others])[(before + np.arange(prod(shape))) % rows].reshape(shape)


def _seen(ids: Array, hidden: Bools | None) -> Array:
    """The ids [*shape] where nothing hides them; `hidden` [B, S]."""
    return ids[~hidden] if hidden is not None and hidden.shape == ids.shape else ids.ravel()

"""The arguments of a module and the inputs of a file, as a reader found them: x, masks, and what was not given."""

from typing import Literal

from encoder_conformance.protocol.findings import Plain
from encoder_conformance.spec.strict import Frozen

MaskMeaning = Literal["attend", "ignore", "additive"]
MEANINGS: dict[MaskMeaning, str] = {
    "attend": "true = attend", "ignore": "true = ignore", "additive": "added to the scores"
}  # fmt: skip
"""The meaning of true in a mask, or that its numbers are added to the scores; and in words."""
Layout = Literal["BSD", "SBD", "SD"]
"""The order of batch, sequence and features in x, as runs show it: attention goes along S."""
LAYOUTS: dict[Layout, str] = {
    "BSD": "[batch, sequence, d_model]", "SBD": "[sequence, batch, d_model]", "SD": "[sequence, d_model]"
}  # fmt: skip
PACKED = "[positions of all items, d_model]"
PACKED_IN_ONE = "[1, positions of all items, d_model]"
"""The layout of x in rows of all items, one after the other, with the number of each item's."""
_AXES = {
    **{
        "B": "batch",
        "H": "heads",
        "S": "sequence",
        "X": "batch · heads",
        "D": "d_model",
        "T": "positions of all items",
    },
    **{"d": "d_head", "e": "d_head / 2", "f": "2 · d_head"},
}


def axes_text(axes: str) -> str:
    """`[batch, 1, 1, sequence]` of "B11S"; D is d_model, T the positions of all items, d the size of a head, e half
    of it and f twice."""
    return f"[{', '.join(_AXES.get(axis, axis) for axis in axes)}]"


class MaskInput(Frozen):
    """`axes`: a letter for each axis: B, H, S, 1, X for batch and heads in one; as "BS", "B11S", "BHSS", "SS".
    `meaning` None: it hides no position."""

    axes: str
    meaning: MaskMeaning | None

    @property
    def by_query(self) -> bool:
        """Whether it tells queries apart, as an attention mask does."""
        return self.axes.count("S") == 2

    @property
    def by_item(self) -> bool:
        return "B" in self.axes or "X" in self.axes

    @property
    def by_head(self) -> bool:
        return "H" in self.axes or "X" in self.axes


class GraphMask(MaskInput):
    """An input of a file's graph. `counted`: only how many positions it shows counts, and they are taken for the
    first."""

    name: Plain
    counted: bool = False


class MaskForm(Frozen):
    """A form in which a mask is taken, and what may be meant by it: each of the `meanings` hides the same; none: it
    hides nothing."""

    axes: str
    dtype: str
    meanings: tuple[MaskMeaning, ...]

    @property
    def text(self) -> str:
        return f"{self.dtype} {axes_text(self.axes)}"


class MaskArgument(MaskInput):
    """An argument of a module's call. `place`: how many stand before it; None: it is given by its name alone. `forms`:
    those of the usual ones in which it is taken. `keys_first`: whether its axis of keys is before that of queries.
    `counted`: only how many positions it shows counts: lengths. `past_first`: it has no place for the first position.
    """

    argument: str
    meaning: MaskMeaning
    dtype: str
    shape: str
    evidence: str
    place: int | None = None
    forms: tuple[MaskForm, ...] = ()
    keys_first: bool = False
    counted: bool = False
    past_first: bool = False


MaskEffect = Literal["queries", "shifted", "part", "attended"]


class UnusableMask(Frozen):
    """An argument that is named as a mask, and by which none can be given.

    It takes an `object` of the class `form`, and no array; or it is a `switch`, true or false; or it is `refused` in
    every form, of which `form` raises `problem`, in the frame `where`, at the batches `raising` and is taken at
    `taken`; or so since it needs `cuda`; or it `leaks`: what it hides keeps this share of its influence; or it is
    `flipped`: it hides at +1e9 what −1e9 should; or it `raises` the scores that it leaves, by a large number; or it is
    `idle`: it is taken and hides nothing; or `elsewhere`: it hides nothing and changes the output; or it is taken
    `alone`, and refused beside another. One that is refused at some batches (`sized`) is given at the others. One that
    in this form `replaces` the layer's window is given in another form. One that is `overridden` hides what it flags,
    and nothing beside another mask that hides nothing.

    Of one that is `elsewhere`, `does` says what: a position that it flags attends to others otherwise, or to none
    (`queries`); or the position `shift` further is hidden (`shifted`); or the one that it flags is, in a `part` of
    attention; or what others get of it changes, and it is still `attended` to. None: it is none of these.
    """

    argument: str
    kind: Literal[
        "refused",
        "cuda",
        "sized",
        "leaks",
        "flipped",
        "raises",
        "idle",
        "elsewhere",
        "alone",
        "replaces",
        "overridden",
        "object",
        "switch",
    ]
    does: MaskEffect | None = None
    shift: int = 0
    form: str = ""
    problem: str = ""
    where: str = ""
    raising: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    leakage: float = 0.0


class UngivenArgument(Frozen):
    """An argument that takes an array, and was left at its default, or was `given` what the words say. `changes`:
    whether the output does, given as `form`; None: it is taken in no form that was tried. `cache`: its name is that of
    what earlier calls left."""

    argument: str
    changes: bool | None
    form: str
    cache: bool
    given: str = ""

    @property
    def matters(self) -> bool:
        """Whether it is not known that the output stays as it is. No layer is without a cache that has none."""
        return self.changes or (self.changes is None and not self.cache)


class XArgument(Frozen):
    """The argument of a module's call that is x. `before`: the one that stands first in its place; "": x does."""

    argument: str
    layout: str
    d_model: int
    evidence: str
    before: str = ""

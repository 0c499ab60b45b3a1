"""A reader's description of a module, as a worker sends it in JSON."""

from collections.abc import Mapping

from pydantic import Field

from encoder_conformance.protocol.arguments import (
    MaskArgument,
    UngivenArgument,
    UnusableMask,
    XArgument,
)
from encoder_conformance.protocol.description import Description
from encoder_conformance.protocol.findings import Finding, NotRead, Plain
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.strict import Frozen


def read_for(place: str) -> str:
    """The key, among `lines`, of the line that makes what a parameter of the specification is for: of a query what its
    map gives, whatever it is a map of."""
    return f"read for {place}"


def instead_of(part: str) -> str:
    """The key, among `lines`, of the line that calls another part in the place of this one, which no call reaches."""
    return f"instead of {part}"


class ModuleSource(Frozen):
    """The own parameters of a module that one of the specification's is, and in which form, `times` a number and with
    `more` added. `shape`: of the own parameter, where it is one; `at`: the number of its first element that is held."""

    own: str
    form: str
    more: float = 0.0
    times: float = 1.0
    shape: tuple[int, ...] = ()
    at: int = 0


class LiveProof(Frozen):
    """`rms`: of the live output, in σ; `moved`: parameters that were moved alone, `of` all; `inert`: those that change
    nothing, in the module and in the oracle; `wrong`: those that change something else."""

    holds: bool
    dtype: DtypeName
    rms: float | None
    moved: int
    of: int
    wrong: tuple[str, ...]
    inert: tuple[str, ...]
    problem: str


class Chance(Frozen):
    """Two answers of a module to one question that differ, by `apart` of their largest number. `seen`: where first;
    `drawn`: whether of the framework's random numbers; `where`: the line that draws them, if it is known."""

    apart: float
    seen: str
    drawn: bool
    where: Plain = ""


class Kept(Frozen):
    """What a call leaves behind in a module: the paths of buffers and attributes that are others after it. `by`: what
    changes the first of them, and where; "" where that is not known. `once`: the first call alone does; `masked`: and
    of those with masks. `apart`: how far two outputs for one x are apart that other calls lie between, by their largest
    number; 0: they are the same."""

    names: tuple[str, ...]
    by: str
    once: bool
    apart: float
    masked: bool = False


class OtherAnswer(Frozen):
    """A way to call a module in which it answers otherwise: by `apart` of its output, where these masks are given."""

    way: str
    masks: tuple[str, ...]
    apart: float


class MapSearch(Frozen):
    """The best of `maps` with each of `deviations`. `deviation`: with which it matches; "" without any, None: none. It
    is `near` where that is not exact, and no other map comes near: something else in the module is a little different.

    `head_counts`: how many numbers of heads were tried, each without a deviation.
    """

    deviation: str | None
    distance: float
    near: bool = False
    maps: int
    deviations: int
    head_counts: int


def argument_key(name: str) -> str:
    """The key of an argument among the lines of a description, which has those of parameters and choices, too."""
    return f"argument {name}"


def fill_key(name: str) -> str:
    """The key of the line that has the number by which a mask hides."""
    return f"fill by {name}"


class ModuleDescription(Description):
    """`layer`: what the module is, read off it. `stated`: what it should be, at its sizes.

    `given`: the arguments that the model `given_by` makes and gives it beside x, for each length and batch.
    `attention`: which of transformers' implementations it computes with. `absent`: parameters that it has not.
    `unused`: own parameters that the layer has no place for; `of_no_step`: those of them that change the output.
    `tied`: pairs that are one tensor. `read_twice`: own parameter, the place that reads it too, the one that this place
    should read; `wrong_by_that_alone`: it is wrong by nothing else. `unread`: own parameter that the graph does not
    read, and as what it is judged. `untrained`: own parameters, of its model, of which that makes what it gives without
    a gradient. `misnamed`: own parameter, as what it was read, what its name says. `heads_known`: whether its number of
    heads is more than a guess; without, it is not judged. `heads_denied`: another number, which its attributes say.
    `chance`: None where it answers again as before. `kept`: what a call leaves behind in it; where its answers depend
    on that each is of it as it was before its first. `unregistered`, `loose_tensors`: weights, and tensors that are
    none, that it computes with and does not register, by attribute path. `wrappers`: what it was given and asked in;
    `left_out`: what the whole that it is a part of was given in. `other_answers`: ways to call it that are not like
    that. `formats`: format → the own parameters that were given in it. `as_given`: the format in which it was asked
    with these; None: they were given in one wide format. `lengths`: the numbers of positions, up to 65, that it takes;
    (): any. `called`: how it is called, where x alone is not what it takes. `same_as`: the part of its model whose
    description this is, since with that one's parameters it gives the same bits.
    """

    type: str
    framework: str
    versions: dict[str, str]
    x: XArgument
    masks: tuple[MaskArgument, ...]
    unusable_masks: tuple[UnusableMask, ...]
    ungiven_arguments: tuple[UngivenArgument, ...]
    given: tuple[Plain, ...] = ()
    given_by: Plain = ""
    attention: Plain = ""
    causal: bool
    always_causal: bool
    causal_unless: Plain = ""
    """The argument that is true unless it is given, and makes it causal."""
    across_batch: bool
    stated: Layer | None
    notes: tuple[Finding, ...]
    not_read: NotRead | None
    unplaced: tuple[str, ...]
    parameters: dict[str, ModuleSource]
    absent: tuple[str, ...]
    unused: tuple[str, ...]
    idle_parts: tuple[tuple[str, str], ...] = ()
    """Parts that would hold parameters and made none, since no call reaches them; beside each the own parameter of one
    of its name, but for numbers, that is read in two places, or ""."""
    of_no_step: tuple[str, ...] = ()
    aliases: dict[str, str]
    tied: tuple[tuple[str, str], ...]
    read_twice: tuple[tuple[str, str, str], ...]
    wrong_by_that_alone: bool = False
    unread: tuple[tuple[str, str], ...]
    untrained: tuple[str, ...] = ()
    misnamed: tuple[tuple[str, str, str], ...]
    proof: LiveProof | None
    searched: MapSearch | None
    heads_known: bool
    heads_denied: int | None
    chance: Chance | None
    kept: Kept | None = None
    unregistered: tuple[str, ...]
    loose_tensors: tuple[str, ...]
    wrappers: tuple[str, ...]
    left_out: tuple[str, ...]
    other_answers: tuple[OtherAnswer, ...]
    stages: dict[str, str]
    dtypes: tuple[DtypeName, ...]
    formats: dict[str, tuple[str, ...]]
    as_given: DtypeName | None
    narrow_inside: bool
    epsilon_of_format: bool = False
    trains_unless_told: bool = False
    padded_item_is_nan: bool
    padded_item_raises: Plain = ""
    """What it raises for an item that is padding alone, where one that shows a position is taken."""
    padding_moves_rows: bool = False
    lengths: tuple[int, ...] = ()
    called: tuple[Plain, ...] = ()
    same_as: Plain = ""
    lines: Mapping[str, Plain] = Field(default_factory=dict)
    """Own parameter, or key of the layer, or `argument NAME` of a mask → the line of source that reads it, or makes it
    so."""
    adapter: str
    """The source of an adapter that does the same; "" if there is none, for the reason `no_adapter`."""
    no_adapter: Plain = ""

    def line_of_argument(self, name: str) -> str:
        """The line of source that reads a mask, or what may be one; "" where it is not known."""
        return self.lines.get(argument_key(name), "")

    def line_of_fill(self, name: str) -> str:
        """The line of source that has the number by which a mask hides, or else the one that reads it."""
        return self.lines.get(fill_key(name), "") or self.line_of_argument(name)

    @property
    def is_two_answers(self) -> bool:
        """Whether it answers one question in two ways: as no layer does, whatever it is."""
        return self.chance is not None or (self.kept is not None and self.kept.apart > 0)

    def line_of_reading(self, own: str, place: str) -> str:
        """The line that reads an own parameter for this place; where that is not known, the last of those that read it;
        "" where there is none."""
        return self.lines.get(read_for(place)) or self.lines.get(own, "")

    @property
    def judged_as(self) -> Layer | None:
        """The stated layer if there is one, else that which was read; None where its number of heads is not known."""
        return (self.stated or self.layer) if self.heads_known else None

    @property
    def mask_inputs(self) -> Mapping[str, MaskArgument]:
        return {mask.argument: mask for mask in self.masks}

    @property
    def x_layout(self) -> str:
        return self.x.layout

    @property
    def own_names(self) -> Mapping[str, str]:
        return {name: source.own for name, source in self.parameters.items()}

    def is_turned(self, first: str, second: str) -> bool:
        """Whether one of two that are tied is the other transposed."""
        one, two = self.parameters[first], self.parameters[second]
        return one.own == two.own and ("transposed" in one.form) != ("transposed" in two.form)

    @property
    def judged_without(self) -> tuple[str, ...]:
        """The arguments that it was not given, and which change its output, as far as is known."""
        ungiven = (each.argument for each in self.ungiven_arguments if each.matters)
        refused = (each.argument for each in self.unusable_masks if each.kind not in ("sized", "replaces"))
        return (*refused, *ungiven)

    @property
    def idle_here(self) -> tuple[str, ...]:
        """Own parameters of its model, of which that makes something that changes nothing as it was called."""
        return tuple(own for own in self.unused if own in self.untrained)

    @property
    def ungiven(self) -> frozenset[str]:
        """Parameters whose gradients it cannot give: those that it lacks, each half of a tied tensor, and those of its
        model that get none."""
        kept = (name for name, source in self.parameters.items() if source.own in self.untrained)
        return frozenset({*self.absent, *kept, *(name for pair in self.tied for name in pair)})

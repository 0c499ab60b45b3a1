"""What a worker found of a module, as it describes it."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer

Severity = Literal["error", "warning", "note"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def as_text(value: Any) -> str:
    """A choice's value: float32's 9.99999974e-06 as the decimal 1e-05 that it stands for."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


class Problem(_Frozen):
    """Why nothing could be examined, and what to do."""

    message: str
    hint: str


class Input(_Frozen):
    argument: str
    layout: str
    d_model: int
    evidence: str


class MaskArgument(_Frozen):
    """`axes`: a letter for each axis: B, H, S, 1, X for batch and heads in one."""

    argument: str
    dtype: str
    axes: str
    shape: str
    meaning: Literal["attend", "ignore", "additive"]
    evidence: str

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


class Choice(_Frozen):
    """One choice of the layer, and the evidence for it in the graph."""

    key: str
    value: Any
    evidence: str


class NotRead(_Frozen):
    """Why the graph is no layer's; `where`: the line of source, if it is known."""

    problem: str
    where: str


class Source(_Frozen):
    """The own parameters that one of the specification's is, and in which form; `more` is added to them."""

    own: str
    form: str
    more: float = 0.0


class Proof(_Frozen):
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


class Search(_Frozen):
    """The best of `maps` with each of `deviations`. `deviation`: with which it matches; "" without any, None: none."""

    deviation: str | None
    distance: float
    maps: int
    deviations: int


class Described(_Frozen):
    """`layer`: what the module is, read off it. `stated`: what it should be, at its sizes.

    `absent`: parameters that it has not. `unused`: own parameters that the layer has no place for. `tied`: pairs that
    are one tensor. `read_twice`: own parameter, the place that reads it too, the one that this place should read.
    `unread`: own parameter that the graph does not read, and as what it is judged. `misnamed`: own parameter, as what
    it was read, what its name says.
    """

    type: str
    framework: str
    versions: dict[str, str]
    x: Input
    masks: tuple[MaskArgument, ...]
    causal: bool
    always_causal: bool
    across_batch: bool
    layer: Layer | None
    stated: Layer | None
    facts: tuple[Choice, ...]
    notes: tuple[str, ...]
    not_read: NotRead | None
    unplaced: tuple[str, ...]
    parameters: dict[str, Source]
    absent: tuple[str, ...]
    unused: tuple[str, ...]
    aliases: dict[str, str]
    tied: tuple[tuple[str, str], ...]
    read_twice: tuple[tuple[str, str, str], ...]
    unread: tuple[tuple[str, str], ...]
    misnamed: tuple[tuple[str, str, str], ...]
    proof: Proof | None
    searched: Search | None
    stages: dict[str, str]
    dtypes: tuple[DtypeName, ...]
    narrow_inside: bool
    padded_item_is_nan: bool
    adapter: str
    """The source of an adapter that does the same; "" if the map is none that an adapter says."""

    @property
    def judged_as(self) -> Layer | None:
        """The stated layer if there is one, else that which was read."""
        return self.stated or self.layer


class Finding(_Frozen):
    """What is wrong or worth knowing. An error: it does not do what it is judged as."""

    severity: Severity
    message: str
    hint: str = ""

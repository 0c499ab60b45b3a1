"""The data of a validation: its phases, their findings, and a worker's description of the file."""

from collections.abc import Collection
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.plain import Plain

Phase = Literal[
    "file",
    "checker",
    "operators",
    "interface",
    "dimensions",
    "loads",
    "layer",
    "shapes",
    "masks",
    "numbers",
    "source",
    "levels",
    "properties",
    "history",
    "reduction",
    "cost",
]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""In the order in which a file goes through them."""

Severity = Literal["error", "warning", "note"]
"""An error: the file is wrong. A warning: somebody will stumble, or it is unusual. A note: a fact."""
MaskMeaning = Literal["attend", "ignore", "additive"]
"""The meaning of true in a mask, or that its numbers are added to the scores."""
Form = Literal[
    "as_is",
    "transposed",
    "reshaped",
    "reshaped, transposed",
    "slice",
    "slice, transposed",
    "rearranged",
    "joined",
    "computed",
    "absent",
]
"""How initializers hold a parameter. Joined: several hold it. Absent: none does; 0, or a gain of 1, is meant."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(_Frozen):
    """One problem or fact: what and where it is, and what to do about it. `runtimes`: the runs that alone show it.
    `out_of_line`: their numbers are. `deviation`: the one of the catalogue that it is."""

    phase: Phase
    severity: Severity
    message: Plain
    hint: Plain = ""
    runtimes: tuple[str, ...] = ()
    out_of_line: bool = False
    deviation: str | None = None

    def is_of(self, runtimes: Collection[str]) -> bool:
        """Whether it is of these runs alone, and says nothing of the file."""
        return bool(self.runtimes) and set(self.runtimes) <= set(runtimes)


class FileFacts(_Frozen):
    bytes: int
    external: tuple[Plain, ...]
    ir_version: int
    opsets: dict[Plain, int]
    producer: Plain
    metadata: dict[Plain, Plain]


class Port(_Frozen):
    """An input or output of the graph. A dimension is a size, a symbol or None; `shape` None: of any rank."""

    name: Plain
    dtype: Plain
    shape: tuple[int | Plain | None, ...] | None

    @property
    def shape_text(self) -> str:
        """`[batch, ?, 24]`; "" for any rank."""
        return "" if self.shape is None else f"[{', '.join('?' if d is None else str(d) for d in self.shape)}]"

    def __str__(self) -> str:
        return f"{self.name!r} {self.dtype} {self.shape_text}".rstrip()


class MaskInput(_Frozen):
    """`axes`: "BS", "B11S", "B1SS", "BHSS", "SS", …; `meaning` None: it hides no position. `counted`: only how many
    positions it shows counts, and they are taken for the first."""

    name: Plain
    axes: str
    meaning: MaskMeaning | None
    counted: bool = False


Layout = Literal["BSD", "SBD", "SD"]
"""The order of batch, sequence and features in x, as runs show it: attention goes along S."""


class Roles(_Frozen):
    """The names of x, of the layer's output and of the masks. `layout` None: the file did not run."""

    x: Plain
    output: Plain
    masks: tuple[MaskInput, ...]
    layout: Layout | None = None


class Fact(_Frozen):
    """One choice of the layer, and the evidence for it in the graph."""

    key: str
    value: Any
    evidence: Plain


class Anchor(_Frozen):
    """The graph value that is a stage of the layer, and the node that computes it."""

    tensor: Plain
    node: Plain


class ParameterSource(_Frozen):
    """The initializers of a parameter; `stored` is their format, where the file widens it before it computes. `step` is
    the largest distance of the numbers that two neighbouring integers stand for."""

    initializer: Plain
    form: Form
    stored: str | None = None
    step: float | None = None


class Description(_Frozen):
    """A worker's description of the file. A field is None where the file did not get so far, and a finding says why.
    `quantised`: activations are rounded to integers. `cut`: the value of a whole model that the layers take, which is
    judged as x. `fixed`: what was mended in a new file. `deviations`: what it does, exactly, by one of the catalogue,
    since the layer language has no word for what a published encoder does."""

    findings: tuple[Finding, ...]
    file: FileFacts | None = None
    nodes: int | None = None
    quantised: bool = False
    operators: dict[Plain, int] = {}
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    roles: Roles | None = None
    cut: Plain | None = None
    fixed: tuple[Plain, ...] = ()
    layer: Layer | None = None
    deviations: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    stages: dict[str, Anchor] = {}
    parameters: dict[str, ParameterSource] = {}

    def port(self, name: str) -> Port:
        return next(port for port in (*self.inputs, *self.outputs) if port.name == name)

    def fact(self, key: str) -> Fact | None:
        return next((fact for fact in self.facts if fact.key == key), None)

    def stored(self) -> dict[str, str]:
        """Parameter → the format that it is stored in, of those that the file widens before it computes with them."""
        return {name: source.stored for name, source in self.parameters.items() if source.stored}

    def sizes(self) -> tuple[int | None, int | None]:
        """The batch and the sequence that the file is fixed to; None where it is free."""
        assert self.roles is not None
        shape = next(port.shape for port in self.inputs if port.name == self.roles.x) or (None, None)
        batch, sequence = (size if isinstance(size, int) else None for size in shape[:2])
        return batch, sequence

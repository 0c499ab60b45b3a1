"""What was found of a file, stage by stage, and what a worker says of the file when it is asked to look into it."""

from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict

from encoder_conformance.spec.layer import Layer

Stage = Literal[
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
    "levels",
    "properties",
    "reduction",
    "cost",
]
STAGES: tuple[Stage, ...] = get_args(Stage)
"""In the order in which a file goes through them."""

Severity = Literal["error", "warning", "note"]
"""An error: the file does not do what it should. A warning: it does, and somebody will stumble. A note: a fact."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(_Frozen):
    """One thing that was found: what, where in the file, and what to do about it."""

    stage: Stage
    severity: Severity
    message: str
    hint: str = ""


class FileFacts(_Frozen):
    bytes: int
    external: tuple[str, ...]
    ir_version: int
    opsets: dict[str, int]
    producer: str
    metadata: dict[str, str]


class Value(_Frozen):
    """An input or output of the graph; a dimension is a size, a symbol, or nothing."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None


class MaskInput(_Frozen):
    """`axes`: "BS", "B11S", "B1SS", "BHSS", "SS", …; `meaning`: of true, or of the numbers that are added."""

    name: str
    axes: str
    meaning: Literal["attend", "ignore", "additive"] | None


class Roles(_Frozen):
    x: str
    output: str
    masks: tuple[MaskInput, ...]


class Fact(_Frozen):
    """One choice of the layer, and what in the graph says so."""

    key: str
    value: Any
    evidence: str


class Anchor(_Frozen):
    """The graph value that is a stage of the layer, and the node that makes it."""

    tensor: str
    node: str


class HeldAs(_Frozen):
    """The initializer that holds a parameter, and in what form; the format of it, where the file widens it exactly."""

    initializer: str
    form: str
    stored: str | None = None


class Description(_Frozen):
    """What a worker says of a file. What could not be told is None, and a finding says why."""

    findings: tuple[Finding, ...]
    file: FileFacts | None = None
    nodes: int | None = None
    operators: dict[str, int] = {}
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    roles: Roles | None = None
    layer: Layer | None = None
    facts: tuple[Fact, ...] = ()
    stages: dict[str, Anchor] = {}
    parameters: dict[str, HeldAs] = {}

    def dtype_of(self, name: str) -> str:
        return next(value.dtype for value in (*self.inputs, *self.outputs) if value.name == name)

    def stored(self) -> dict[str, str]:
        """Parameter → the format that it is stored in, of those that the file widens before it computes with them."""
        return {name: held.stored for name, held in self.parameters.items() if held.stored}

    def sizes(self) -> tuple[int | None, int | None]:
        """The batch and the sequence that the file is fixed to; None where it is free."""
        assert self.roles is not None
        shape = next(value.shape for value in self.inputs if value.name == self.roles.x) or (None, None)
        batch, sequence = (size if isinstance(size, int) else None for size in shape[:2])
        return batch, sequence

"""A reader's description of what it was given, as a worker sends it in JSON: of an ONNX file, and what that of a module
has, too: the layer that was read with the evidence for each choice, the masks, the parameters and the stages."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from encoder_conformance.protocol.arguments import (
    LAYOUTS,
    GraphMask,
    Layout,
    MaskInput,
)
from encoder_conformance.protocol.findings import PhaseFinding, Plain
from encoder_conformance.protocol.quantised import Quantisation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.strict import Frozen

Form = Literal[
    "as_is", "transposed", "reshaped", "reshaped, transposed", "slice", "slice, transposed", "rearranged", "joined",
    "computed", "absent",
]  # fmt: skip
"""How initializers hold a parameter. Joined: several hold it. Absent: none does; 0, or a gain of 1, is meant."""


def as_text(value: Any) -> str:
    """A choice's value: float32's 9.99999974e-06 as the decimal 1e-05 that it stands for."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def decimal(value: Any) -> Any:
    """A choice's value for programs: the number that `as_text` shows; what is none as it is."""
    return float(as_text(value)) if isinstance(value, float) else value


NORM_FORM = "norm.form"
"""The key of a fact that is none of a layer: which of the wrong forms of a norm it has."""


class Fact(Frozen):
    """One choice of the layer, and the evidence for it in the graph."""

    key: str
    value: Any
    evidence: Plain


class Description(Frozen):
    """The findings of both readers: `layer`, read off the subject; None where it is none; and the evidence for it."""

    layer: Layer | None = None
    facts: tuple[Fact, ...] = ()

    def fact(self, key: str) -> Fact | None:
        return next((fact for fact in self.facts if fact.key == key), None)

    @property
    @abstractmethod
    def mask_inputs(self) -> Mapping[str, MaskInput]:
        """Name → mask, of those that hide positions."""

    @property
    @abstractmethod
    def x_layout(self) -> str:
        """The axes of x in words; "" where they are not known."""

    @property
    @abstractmethod
    def own_names(self) -> Mapping[str, str]:
        """The specification's name of a parameter → the subject's own."""


class FileFacts(Frozen):
    """`bytes`: of the file; `beside`: of the files beside it that it names, `external`."""

    bytes: int
    external: tuple[Plain, ...]
    beside: int = 0
    ir_version: int
    opsets: dict[Plain, int]
    producer: Plain
    metadata: dict[Plain, Plain]


class Port(Frozen):
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


Size = Literal["batch", "sequence"]


class WholeInput(Port):
    """An input of a whole file. `rows`: of the table that it indexes; None: it is no index of a constant table."""

    rows: int | None = None


class WholeFile(Frozen):
    """A file from its first input to its last output, whatever is in it.

    `held`: the format of most of its constants' numbers, "int8" for one of integers; None: it has none. `places`: the
    rows of tables that no input indexes, as of positions.
    """

    inputs: tuple[WholeInput, ...]
    outputs: tuple[Port, ...]
    held: str | None = None
    places: tuple[int, ...] = ()


class Roles(Frozen):
    """The names of x, of the layer's output and of the masks. `layout` None: the file did not run."""

    x: Plain
    output: Plain
    masks: tuple[GraphMask, ...]
    layout: Layout | None = None


class Anchor(Frozen):
    """The graph value that is a stage of the layer, and the node that computes it."""

    tensor: Plain
    node: Plain


class InitializerSource(Frozen):
    """The initializers of a parameter; `stored` is their format, where the file widens it before it computes. `step` is
    the largest distance of the numbers that two neighbouring integers stand for."""

    initializer: Plain
    form: Form
    stored: str | None = None
    step: float | None = None


class FileDescription(Description):
    """A worker's description of the file. A field is None where the file did not get so far, and a finding says why.

    `quantised`: activations are rounded to integers; `quantisation`: how, and its weights. `cut`: the value of a whole
    model that the layers take, which is judged as x. `whole`: from the first input to the last output. `unjudged`: what
    stands before the cut, where it was not judged. `fixed`: what was mended in a new file. `baked`: the sizes that it
    declares free, and runs at alone.
    """

    findings: tuple[PhaseFinding, ...]
    file: FileFacts | None = None
    nodes: int | None = None
    quantised: bool = False
    quantisation: Quantisation | None = None
    operators: dict[Plain, int] = Field(default_factory=dict)
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    roles: Roles | None = None
    cut: Plain | None = None
    whole: WholeFile | None = None
    unjudged: Plain = ""
    fixed: tuple[Plain, ...] = ()
    baked: dict[Size, int] = Field(default_factory=dict)
    stages: dict[str, Anchor] = Field(default_factory=dict)
    parameters: dict[str, InitializerSource] = Field(default_factory=dict)

    @property
    def mask_inputs(self) -> Mapping[str, GraphMask]:
        return {mask.name: mask for mask in (self.roles.masks if self.roles else ()) if mask.meaning}

    @property
    def x_layout(self) -> str:
        return LAYOUTS[self.roles.layout] if self.roles and self.roles.layout else ""

    @property
    def own_names(self) -> Mapping[str, str]:
        return {name: source.initializer for name, source in self.parameters.items()}

    def port(self, name: str) -> Port:
        return next(port for port in (*self.inputs, *self.outputs) if port.name == name)

    def stored(self) -> dict[str, str]:
        """Parameter → the format that it is stored in, of those that the file widens before it computes with them."""
        return {name: source.stored for name, source in self.parameters.items() if source.stored}

    def sizes(self) -> tuple[int | None, int | None]:
        """The batch and the sequence at which alone the file runs; None where it is free."""
        batch, sequence = self.declared_sizes()
        return self.baked.get("batch", batch), self.baked.get("sequence", sequence)

    def declared_sizes(self) -> tuple[int | None, int | None]:
        """The batch and the sequence that the file says that it is fixed to; None where it says that it is free."""
        assert self.roles is not None
        shape = next(port.shape for port in self.inputs if port.name == self.roles.x) or (None, None)
        axes = {"SBD": shape[1::-1], "SD": (1, *shape[:1])}.get(self.roles.layout or "BSD", shape[:2])
        batch, sequence = (size if isinstance(size, int) else None for size in axes)
        return batch, sequence

"""The deviation language: a named defect, as a patch on a layer's inputs, parameters and computation (rules V-*)."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.parameters import PARAMETER_NAMES
from encoder_conformance.spec.stages import SHAPES
from encoder_conformance.spec.strict import Identifier, Link, Sentence, Strict

Kind = Literal["numerics", "mask", "wiring", "parameters", "layout", "training", "precision"]
MaskEdit = Literal[
    "inverted", "ignored", "shifted", "first-item", "reversed", "causal", "on-queries", "padding-only",
    "attention-only", "transposed", "without-diagonal", "one-ahead",
]  # fmt: skip
ParameterEdit = Literal["zero", "one", "transposed"] | Annotated[str, StringConstraints(pattern=r"^from [a-z0-9_.]+$")]


class NormPatch(Strict):
    placement: Literal["pre", "post"] | None = None
    epsilon: Annotated[float, Field(gt=0)] | None = None


Rate = Annotated[float, Field(ge=0, lt=1)]


class DropoutPatch(Strict):
    attention_weights: Rate | None = None
    attention_output: Rate | None = None
    ffn_activation: Rate | None = None
    ffn_output: Rate | None = None
    embedded: Rate | None = None


class LayerPatch(Strict):
    """A JSON merge patch (RFC 7396) on the layer: other values of its choices."""

    norm: NormPatch | None = None
    dropout: DropoutPatch | None = Field(default=None, description="rates in training; excludes every other edit")


class Patch(Strict):
    """The edits of a deviation. `steps` names defective variants of the oracle's steps.

    Edits of parameters and mask are applied first.
    """

    layer: LayerPatch | None = None
    steps: dict[str, str] = Field(default_factory=dict, description="step → its defective variant")
    replaces: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="step → its right forms in the layers that can have the defect; by default any",
    )
    parameters: dict[str, ParameterEdit] = Field(default_factory=dict, description="parameter → its edit")
    mask: MaskEdit | None = None
    stages: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="stage → its specified equation → the equation in its place (V-12)"
    )

    @model_validator(mode="after")
    def _is_not_empty(self) -> "Patch":
        if not (self.layer or self.steps or self.parameters or self.mask or self.stages):
            raise ValueError("changes nothing")
        sources = [edit.removeprefix("from ") for edit in self.parameters.values() if edit.startswith("from ")]
        unknown = sorted({*self.parameters, *sources} - set(PARAMETER_NAMES))
        if unknown:
            raise ValueError(f"parameters names none of the specification's: {', '.join(unknown)}")
        if unknown := sorted({*self.stages} - {*SHAPES}):
            raise ValueError(f"stages names none of the specification's: {', '.join(unknown)}")
        for stage, equations in self.stages.items():
            for text in (*equations.keys(), *equations.values()):
                try:
                    Equation(text)
                except ValueError as error:
                    raise ValueError(f"stages.{stage}: {error}") from None
        return self

    @model_validator(mode="after")
    def _edits_dropout_alone(self) -> "Patch":
        others = self.steps or self.parameters or self.mask or self.stages or (self.layer and self.layer.norm)
        if self.in_training and others:
            raise ValueError("edits dropout together with something else: dropout is active in training only")
        return self

    @property
    def in_training(self) -> bool:
        """Whether the patch edits dropout. Then only the check `dropout` can detect it (rule V-10)."""
        return self.layer is not None and self.layer.dropout is not None


class Deviation(Strict):
    """One named defect. `unseen` explains why no output can show it; null if one can."""

    deviation: Identifier = Field(description="the id, equal to the file's name, stable for ever")
    sentence: Sentence = Field(description="what the implementation does, in one sentence")
    kind: Kind
    patch: Patch
    unseen: Sentence | None = Field(description="why no output can show it, or null; a stage may still")
    links: tuple[Link, ...] = Field(description="public reports of the defect; [] for a textbook mistake")


class Measured(Deviation):
    """A deviation with a measured epsilon, which no catalogue lists.

    `epsilons`: norm → epsilon, if some norms have their own; otherwise the patch sets the epsilon of all norms. `value`
    and `uncertainty`: the measured number and its standard uncertainty.
    """

    epsilons: dict[str, float]
    value: float
    uncertainty: float

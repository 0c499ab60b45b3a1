"""The walk through one layer: the plan, taken back step by step from a layer's output to its x.

Every step of the plan has to be found. Steps that the layer language has no key for may stand between any two: each is
taken off, and is a difference with a name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Activation,
    Context,
    Gain,
    Gate,
    Linear,
    Operation,
    OtherRotation,
    Rotation,
    RowMap,
    Scores,
    Sum,
    TracedInput,
    TracedNorm,
    UnsupportedPattern,
    Weights,
)
from encoder_conformance.readers.onnx_file.tracing.row_maps import map_text
from encoder_conformance.readers.onnx_file.tracing.unsupported import Feature
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.plan import Step, plan, stage_of, with_attributes

PLANS: Mapping[str, tuple[Step, ...]] = {
    placement: plan(
        with_attributes({
            "d_model": 1, "norm": {"placement": placement}, "attention": {"num_heads": 1, "masked_score": 0},
            "feed_forward": {}, "dropout": {},
        })
    )
    for placement in ("post", "pre")
}  # fmt: skip
"""Placement of the norms → the steps of a layer. Nothing else that a layer chooses moves a step."""
STAGES = [stage_of(step.step) for step in PLANS["pre"]]
KINDS: Mapping[str, tuple[type[Operation], str]] = {
    "norm": (TracedNorm, "a norm"),
    "projection": (Linear, "a linear map"),
    "linear": (Linear, "a linear map"),
    "scores": (Scores, "the product of queries and keys"),
    "softmax": (Weights, "a softmax"),
    "attend": (Context, "attention"),
    "activation": (Activation, "an activation"),
    "sum": (Sum, "a residual sum"),
}
"""Form of a step → the operation that takes it, and what to call it. A step of another form leaves its value as it
is."""
FEATURES: Mapping[tuple[type, str], Feature] = {
    (Rotation, "projection"): "rope",
    (OtherRotation, "projection"): "rope",
    (TracedNorm, "projection"): "qk_norm",
    (TracedNorm, "linear"): "sandwich",
    (Gain, "linear"): "layer_scale",
    (Gate, "activation"): "gated",
}
"""What is found on the way to a step of this form, and is known by a name."""


@dataclass(frozen=True)
class Difference:
    """`what`, with its preposition, is found at `stage` and is not of the plan; the graph value `name` shows it."""

    what: str
    stage: str
    name: str
    feature: Feature | None = None


@dataclass
class Walk:
    """The way back through one layer: the operation `at` each value of the plan, and what was found beside it."""

    at: dict[str, Operation]
    columns: dict[str, Array] = field(default_factory=dict)
    query_first: bool = True
    steps: dict[str, Operation] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)

    def take(self, step: Step) -> None:
        """Takes one step back; raises UnsupportedPattern where the file has none."""
        if step.form not in KINDS:
            self.reach(step.reads[0], self.at[step.makes], step)
            if step.makes in self.columns:
                self.columns[step.reads[0]] = self.columns.pop(step.makes)
            return
        kind, called = KINDS[step.form]
        found = self.strip(self.at[step.makes], kind, step)
        if isinstance(found, kind):
            self.steps[stage_of(step.step)] = found
            if isinstance(found, TracedNorm) and found.width:
                self.differ(f"{_norm_text(found)} in place of one over all features as", step, found)
            SOURCES[step.form](self, step, found)
        elif step.form == "norm":
            self.differ("no norm as", step, found)
            self.reach(step.reads[0], found, step)
        else:
            stage = stage_of(step.step)
            raise UnsupportedPattern(f"{stage} is missing: {called} was looked for, and there is {formula(found)}")

    def strip(self, operation: Operation, kind: type[Operation], step: Step) -> Operation:
        """The operation under what the plan does not have there."""
        normed = False
        while not isinstance(operation, kind):
            if isinstance(operation, Gate) and kind is Activation:
                sides = operation.one.operation, operation.other.operation
                if not any(isinstance(side, kind) for side in sides):
                    raise UnsupportedPattern(f"{operation.name!r} is {formula(operation)}", FEATURES[Gate, step.form])
                self.differ("a product with another linear map after", step, operation, FEATURES[Gate, step.form])
                operation = next(side for side in sides if isinstance(side, kind))
            elif isinstance(operation, TracedNorm):
                self.differ(f"{_norm_text(operation)} after", step, operation, FEATURES.get((TracedNorm, step.form)))
                normed, operation = True, operation.of.operation
            elif isinstance(operation, RowMap):
                after = " before the norm, after" if normed else " after"
                feature = FEATURES.get((type(operation.form), step.form))
                self.differ(map_text(operation) + after, step, operation, feature)
                operation = operation.of.operation
            else:
                break
        return operation

    def differ(self, what: str, step: Step, shown: Operation, feature: Feature | None = None) -> None:
        self.differences.append(Difference(what, stage_of(step.step), shown.name, feature))

    def reach(self, value: str, operation: Operation, step: Step) -> None:
        """Puts the operation at a value of the plan, or finds another one there."""
        known = self.at.setdefault(value, operation)
        if known is not operation:
            beside = isinstance(known, Sum) and operation in known.sides
            what = f"{formula(operation)} in place of {formula(known)}, taken for"
            self.differ(what, step, operation, "parallel" if beside else None)


def _norm_text(norm: TracedNorm) -> str:
    over = f", over each {norm.width} features" if norm.width else ""
    return f"a norm ({norm.form.kind}{over})"


def _of(walk: Walk, step: Step, found: TracedNorm | Linear | Activation) -> None:
    walk.reach(step.reads[0], found.of.operation, step)


def _projected(walk: Walk, step: Step, found: Linear) -> None:
    """The linear map of which query, key or value are columns."""
    columns = walk.columns[step.makes]
    if len(set(columns.tolist())) < len(columns):
        walk.differ("heads that several share, in", step, found, "grouped_queries")
    _of(walk, step, found)


def _attended(walk: Walk, step: Step, found: Context) -> None:
    walk.at[step.beside["weights"]] = found.of
    walk.at[step.reads[1]], walk.columns[step.reads[1]] = found.value.operation, found.value_heads.reshape(-1)


def _weighed(walk: Walk, step: Step, found: Weights) -> None:
    walk.at[step.reads[0]], walk.query_first = found.of, found.query_first


def _scored(walk: Walk, step: Step, found: Scores) -> None:
    sides = [(found.first, found.first_heads), (found.second, found.second_heads)]
    for name, (side, heads) in zip(step.reads, sides if walk.query_first else sides[::-1], strict=True):
        walk.at[name], walk.columns[name] = side.operation, heads.reshape(-1)


def _added(walk: Walk, step: Step, found: Sum) -> None:
    """What is skipped, and what the sub-layer gives."""
    skip, branch = step.reads
    kinds = _kind_of_body(branch), Gate
    sides = sorted(found.sides, key=lambda side: (isinstance(_body(side), kinds), isinstance(side, Linear)))
    walk.reach(branch, sides[1], step)
    walk.reach(skip, sides[0], step)


def _kind_of_body(value: str) -> type[Operation]:
    """The operation of the plan that makes a sub-layer what it is: attention, or an activation."""
    step = next(step for step in PLANS["pre"] if step.makes == value)
    kind, _ = KINDS.get(step.form, (Linear, ""))
    return _kind_of_body(step.reads[0]) if kind is Linear else kind


def _body(side: Operation) -> Operation:
    """The operation of a sub-layer that is more than norms and maps."""
    while isinstance(side, TracedNorm | Linear | RowMap):
        side = side.of.operation
    return side


SOURCES: Mapping[str, Callable[..., None]] = {
    "norm": _of,
    "projection": _projected,
    "linear": _of,
    "activation": _of,
    "scores": _scored,
    "softmax": _weighed,
    "attend": _attended,
    "sum": _added,
}
"""Form of a step → what it reads, out of its operation."""


def formula(operation: Operation, depth: int = 3) -> str:
    """An operation as a formula, abbreviated."""
    if depth == 0:
        return "…"

    inner = partial(formula, depth=depth - 1)
    match operation:
        case TracedInput():
            return f"the input {operation.name!r}"
        case TracedNorm():
            return f"{operation.form.kind}({inner(operation.of.operation)})"
        case Linear():
            return f"linear({inner(operation.of.operation)})"
        case Activation():
            return f"{operation.function}({inner(operation.of.operation)})"
        case Scores():
            return "scores of attention"
        case Weights():
            return "weights of attention"
        case Context():
            return f"attention({inner(operation.value.operation)})"
        case Sum():
            return f"({inner(operation.one.operation)} + {inner(operation.other.operation)})"
        case Gate():
            return f"({inner(operation.one.operation)} · {inner(operation.other.operation)})"
        case RowMap():
            return f"mapped({inner(operation.of.operation)})"
    return repr(operation.name)

"""The walk through one layer: the plan, taken back step by step from a layer's output to its x.

Every step of the plan has to be found, but for those that a layer may leave out. What the layer language has no key for
may stand between any two: each is taken off, and is a difference with a name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from encoder_conformance.readers.onnx_file.layer.known_instead import (
    beside,
    body,
    instead,
    is_side_by_side,
    side_by_side,
)
from encoder_conformance.readers.onnx_file.layer.plans import PLANS
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Activation,
    Appended,
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
    Weighed,
    Weights,
    whole,
)
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.row_maps import map_text
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.plan import Step
from encoder_conformance.spec.steps import stage_of

KINDS: Mapping[str, tuple[type[Operation], str]] = {
    "norm": (TracedNorm, "a norm"),
    "projection": (Linear, "a linear map"),
    "linear": (Linear, "a linear map"),
    "scores": (Scores, "the product of queries and keys"),
    "softmax": (Weights, "a softmax"),
    "attend": (Context, "attention"),
    "activation": (Activation, "an activation"),
    "product": (Gate, "a product of two maps"),
    "sum": (Sum, "a residual sum"),
}
"""Form of a step that is never left out → the operation that takes it, and what to call it."""
OPTIONAL: Mapping[str, Callable[[Operation], bool]] = {
    "rotation": lambda found: isinstance(found, RowMap) and isinstance(found.form, Rotation) and found.form.is_plain,
    "by_feature": lambda found: isinstance(found, RowMap) and isinstance(found.form, Gain) and found.form.is_whole,
    "times": lambda found: isinstance(found, Weighed),
    "append": lambda found: isinstance(found, Appended),
    "norm": lambda found: isinstance(found, TracedNorm),
}
"""Form of a step that a layer may leave out → whether an operation is it. A step of another form leaves its value as it
is: what it does is read off the operation that takes the next one."""
PROJECTED = ("query", "key", "value")
QK_NORMS = {"query_heads_norm": "query", "key_heads_norm": "key"}
"""The norm of queries and that of keys, by head → what it is of. Over all heads the same step stands before the heads
are split, and only its width tells (E-27)."""


def recorded(step: Step) -> str:
    """The name by which a step of a layer is found: the stage that shows it, or its own where it may be left out."""
    return stage_of(step.step) if step.form in KINDS and step.makes not in QK_NORMS else step.makes


STAGES = [*dict.fromkeys(recorded(step) for steps in PLANS.values() for step in steps)]
"""The names of all steps, in an order in which they may be taken."""
FEATURES: Mapping[tuple[type, str], Feature] = {
    (Rotation, "projection"): "rope",
    (OtherRotation, "projection"): "rope",
    (TracedNorm, "projection"): "qk_norm",
    (TracedNorm, "linear"): "sandwich",
    (Gain, "linear"): "layer_scale",
    (Gate, "activation"): "gated",
}
"""What is found on the way to a step of this form, and is known by a name."""


NORMED_SKIP = "what skips is normed by"


@dataclass(frozen=True)
class Difference:
    """`what`, with its preposition, is found at `stage` and is not of the plan; the graph value `name` shows it."""

    what: str
    stage: str
    name: str
    feature: Feature | None = None


@dataclass
class Walk:
    """The way back through one layer: the operation `at` each value of the plan, and what was found beside it.

    `columns`: value → the features that it is in its operation, head by head where it has heads.
    """

    at: dict[str, Operation]
    parallel: bool = False
    """Whether its last sum is of x and of what two sub-layers give, in any order (E-41)."""
    columns: dict[str, Array] = field(default_factory=dict)
    query_first: bool = True
    steps: dict[str, Operation] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    absent: dict[str, Difference] = field(default_factory=dict)
    """The norms of the plan that are not there, among the differences."""
    readers: dict[str, str] = field(default_factory=dict)
    """Value of the plan → the graph value that is made of it, by which it was reached first."""

    def take(self, step: Step) -> None:
        """Takes one step back; raises UnsupportedPattern where the file has none."""
        if step.form not in KINDS or step.makes in QK_NORMS:
            self.take_if_there(step)
            return
        kind, called = KINDS[step.form]
        found = self.strip(self.at[step.makes], kind, step)
        if isinstance(found, kind):
            self.steps[recorded(step)] = found
            if isinstance(found, TracedNorm) and found.width:
                self.differ(f"{_norm_text(found)} in place of one over all features as", step, found)
            SOURCES[step.form](self, step, found)
        elif step.form == "norm":
            self.differ("no norm as", step, found)
            self.absent[step.makes] = self.differences[-1]
            self.reach(step.reads[0], found, step)
        else:
            stage = stage_of(step.step)
            at = "" if isinstance(found, TracedInput) else f" at '{found.name}'"  # an input is of no line
            reader = self.readers.get(step.makes)
            there = formula(found) + at + (f", read for '{reader}'" if reader else "")
            message = f"{stage} is missing: {called} was looked for, and there is {there}"
            sums = [each for each in self.steps.values() if isinstance(each, Sum)]
            if (feature := instead(found, step, sums)) == "one_map" and reader:
                message = f"at '{reader}'"  # its norm is before the one map, and behind no activation
                self.differences = [each for each in self.differences if each.stage != stage]
            if feature == "parallel" and step.form == "sum":  # what was read for one behind the other is neither
                self.differences = []
            raise UnsupportedPattern(message, feature)

    def take_if_there(self, step: Step) -> None:
        """Takes a step that a layer may leave out, or that no operation shows by itself."""
        found, source = self.at[step.makes], step.reads[0]
        if step.makes in self.columns:
            self.columns[source] = self.columns[step.makes]
        if step.form == "repeat_heads":
            self.columns[source] = self.shared_heads(self.columns[step.makes], step, found)
        if step.form in OPTIONAL and OPTIONAL[step.form](found):
            self.steps[recorded(step)] = found
            found = found.of.operation  # type: ignore[attr-defined]
        self.reach(source, found, step)

    def shared_heads(self, columns: Array, step: Step, found: Operation) -> Array:
        """The columns [K · d] of the heads of key or value that queries share, of those of each head [H · d]."""
        by_head = columns.reshape(self.heads, -1)
        if not by_head.size or len(own := list(dict.fromkeys(map(bytes, by_head)))) == self.heads:
            return columns
        K, times = len(own), self.heads // len(own)
        number = [own.index(bytes(head)) for head in by_head]
        if self.heads % K or number != [head // times for head in range(self.heads)]:
            what = f"{K} heads for {self.heads} of queries, and not one for each {times} neighbours ({number}), in"
            self.differ(what, step, found, "grouped_queries")
        return np.stack([by_head[number.index(head)] for head in range(K)]).reshape(-1)

    @property
    def heads(self) -> int:
        return next(step for step in self.steps.values() if isinstance(step, Scores)).shape[1]

    def sum_of_attention(self, x: Operation) -> Operation | None:
        """The first residual sum, where what was taken for `x` there is attention's own; None where it is not."""
        taken = isinstance(x, Context) and any(each is x for each in self.steps.values())
        return self.steps["residual1"] if taken else None

    def strip(self, operation: Operation, kind: type[Operation], step: Step) -> Operation:
        """The operation under what the plan does not have there."""
        normed = step.makes in {QK_NORMS[made] for made in QK_NORMS if made in self.steps}
        turned = False  # what is normed before it is turned is as qk-norm has it, whatever turns it
        while not isinstance(operation, kind):
            if isinstance(operation, Gate) and kind is Activation:
                sides = operation.one.operation, operation.other.operation
                if not any(isinstance(side, kind) for side in sides):
                    raise UnsupportedPattern(f"{operation.name!r} is {formula(operation)}", FEATURES[Gate, step.form])
                self.differ("a product with another linear map after", step, operation, FEATURES[Gate, step.form])
                operation = next(side for side in sides if isinstance(side, kind))
            elif isinstance(operation, TracedNorm):
                if not turned:
                    self.differ(f"{_norm_text(operation)} after", step, operation, _feature(TracedNorm, step))
                normed, operation = True, operation.of.operation
            elif isinstance(operation, Weighed):
                self.differ(f"a factor of {operation.factor:.6g} after", step, operation, "residual_scale")
                operation = operation.of.operation
            elif isinstance(operation, RowMap) and _is_gain_of_a_norm_of_heads(operation):
                self.differ("a norm after", step, operation, "head_gains")
                normed, operation = True, operation.of.operation.of.operation  # type: ignore[attr-defined]
            elif isinstance(operation, RowMap):
                after = " before the norm, after" if normed else " after"
                feature = _feature(type(operation.form), step)
                feature = "turned_first" if normed and feature == "rope" else feature
                self.differ(map_text(operation) + after, step, operation, feature)
                turned, operation = turned or feature == "rope", operation.of.operation
            else:
                break
        return operation

    def differ(self, what: str, step: Step, shown: Operation, feature: Feature | None = None) -> None:
        self.differences.append(Difference(what, stage_of(step.step), shown.name, feature))

    def reach(self, value: str, operation: Operation, step: Step) -> None:
        """Puts the operation at a value of the plan, or finds another one there."""
        known = self.at.setdefault(value, operation)
        taken = self.steps.get(recorded(step))  # a step that no operation shows hands on who reads it
        self.readers.setdefault(value, self.readers.get(step.makes, "") if taken is None else taken.name)
        norm = next((one for one, of in ((known, operation), (operation, known)) if _is_norm_of(one, of)), None)
        if step.form == "projection" and isinstance(norm, TracedNorm):
            what = "the norm is read for" if norm is operation else "x itself is read for"
            self.differences.append(Difference(what, stage_of(step.step), norm.made, "some_norm"))
            self.at[value] = norm if value != "x" else known  # what skips attention is x already
        elif step.form == "projection" and known is not operation and _are_norms_of_one(known, operation):
            self.differ("another norm of it is read for", step, operation, "some_norm")
        elif isinstance(known, TracedNorm) and known.of.operation is operation:
            self.differences.append(Difference(NORMED_SKIP, stage_of(step.step), known.made, "normed_skip"))
            self.at[value] = operation
        elif known is not operation:
            what = f"{formula(operation)} in place of {formula(known)}, taken for"
            feature = beside(known, operation)
            shown = known if feature else operation  # an input of the layer is of no line
            shown = self.steps.get(recorded(step), shown) if feature == "of_a_branch" else shown
            self.differ(what, step, shown, feature)


def _is_norm_of(norm: Operation, of: Operation) -> bool:
    return isinstance(norm, TracedNorm) and norm.of.operation is of


def _are_norms_of_one(one: Operation, other: Operation) -> bool:
    norms = [each for each in (one, other) if isinstance(each, TracedNorm)]
    return len(norms) == 2 and norms[0].of.operation is norms[1].of.operation


def _is_gain_of_a_norm_of_heads(operation: RowMap) -> bool:
    """Whether a norm of each head's features is multiplied by numbers that differ from one head to the next."""
    norm, form = operation.of.operation, operation.form
    return isinstance(norm, TracedNorm) and norm.width > 0 and isinstance(form, Gain)


def _feature(kind: type, step: Step) -> Feature | None:
    """What it is known by. Of values there is none: rotations and norms of heads are of queries and keys."""
    return None if step.makes == "value" else FEATURES.get((kind, step.form))


def _norm_text(norm: TracedNorm) -> str:
    over = f", over each {norm.width} features" if norm.width else ""
    return f"a norm ({norm.form.kind}{over})"


def _of(walk: Walk, step: Step, found: TracedNorm | Linear | Activation) -> None:
    if isinstance(found, Linear) and found.taken is not None:
        walk.columns[step.reads[0]] = found.taken
    walk.reach(step.reads[0], found.of.operation, step)


def _projected(walk: Walk, step: Step, found: Linear) -> None:
    """What a query, key or value is a map of. Of another map, or of the norm of one, that map is a difference."""
    source = found.of.operation
    under = source.of.operation if isinstance(source, TracedNorm) else source
    if not isinstance(under, Linear):
        _of(walk, step, found)
        return
    walk.differ("one more map before that of", step, under, "latent")
    walk.reach(step.reads[0], under.of.operation, step)


def _of_part(walk: Walk, step: Step, found: Activation) -> None:
    """An activation, which may be of some columns of a linear map: a gate's of one map with what it gates."""
    if step.makes in walk.columns:
        walk.columns[step.reads[0]] = walk.columns[step.makes]
    _of(walk, step, found)


def _multiplied(walk: Walk, step: Step, found: Gate) -> None:
    """What is activated, and what is not: of a gate with two activations, or none, nothing tells them apart."""
    sides = sorted(
        ((view.operation, columns) for view, columns in found.sides),
        key=lambda side: not isinstance(side[0], Activation),
    )
    for name, (operation, columns) in zip(step.reads, sides, strict=True):
        walk.columns[name] = columns
        walk.reach(name, operation, step)


def _attended(walk: Walk, step: Step, found: Context) -> None:
    walk.at[step.beside["weights"]] = found.of
    walk.at[step.reads[1]], walk.columns[step.reads[1]] = found.value.operation, found.value_heads.reshape(-1)
    walk.readers.setdefault(step.reads[1], found.name)


def _weighed(walk: Walk, step: Step, found: Weights) -> None:
    walk.at[step.reads[0]], walk.query_first = found.of, found.query_first


def _scored(walk: Walk, step: Step, found: Scores) -> None:
    sides = [(found.first, found.first_heads), (found.second, found.second_heads)]
    for name, (side, heads) in zip(step.reads, sides if walk.query_first else sides[::-1], strict=True):
        walk.at[name], walk.columns[name] = side.operation, heads.reshape(-1)
        walk.readers.setdefault(name, found.name)


def _added(walk: Walk, step: Step, found: Sum) -> None:
    """What is skipped, and what the sub-layer gives."""
    skip, branch = step.reads
    if walk.parallel and skip != "x" and (terms := side_by_side(found)):
        x, attention, network = map(whole, terms)
        walk.reach(branch, network.operation, step)
        walk.reach(skip, Sum(found.shape, found.name, x, attention), step)
        return
    kinds = _kind_of_body(branch), Gate
    made = {side: isinstance(body(side), kinds) or is_side_by_side(side) for side in found.sides}
    sides = sorted(found.sides, key=lambda side: (made[side], isinstance(side, Linear)))
    walk.reach(branch, sides[1], step)
    skipping = sides[0]
    if isinstance(skipping, Weighed):
        feature: Feature = "skip_twice" if skipping.factor == 2 else "skip_scaled"
        walk.differ(f"what skips is multiplied by {skipping.factor:.6g} in", step, found, feature)
        skipping = skipping.of.operation
    walk.reach(skip, skipping, step)


def _kind_of_body(value: str) -> type[Operation]:
    """The operation of the plan that makes a sub-layer what it is: attention, or an activation."""
    step = next(step for step in PLANS["pre", False] if step.makes == value)
    kind, _ = KINDS.get(step.form, (Linear, ""))
    return _kind_of_body(step.reads[0]) if kind is Linear else kind


SOURCES: Mapping[str, Callable[..., None]] = {
    "norm": _of,
    "projection": _projected,
    "linear": _of,
    "activation": _of_part,
    "product": _multiplied,
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
        case Appended():
            return inner(operation.of.operation)
        case RowMap() | Weighed():
            return f"mapped({inner(operation.of.operation)})"
    return repr(operation.name)

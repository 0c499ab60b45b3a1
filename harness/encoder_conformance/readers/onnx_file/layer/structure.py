"""Matches encoder layers, or a stack of them, in the operations that the output is computed from."""

from dataclasses import dataclass
from typing import TypeVar

from encoder_conformance.readers.onnx_file.layer.walk import PLANS, STAGES, Difference, Walk
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Operation,
    Sum,
    TracedInput,
    TracedNorm,
    UnsupportedPattern,
)
from encoder_conformance.readers.onnx_file.tracing.unsupported import Feature
from encoder_conformance.spec.axes import Array

Kind = TypeVar("Kind", bound=Operation)


@dataclass(frozen=True)
class EncoderLayer:
    """One encoder layer: stage → the operation that shows it, in the order of the specification.

    `input` is the operation before it, `columns` those of the linear maps that are query, key and value, head by head.
    """

    placement: str
    input: Operation
    steps: dict[str, Operation]
    columns: dict[str, Array]

    def of(self, kind: type[Kind]) -> dict[str, Kind]:
        """The steps of one kind, by stage."""
        return {stage: step for stage, step in self.steps.items() if isinstance(step, kind)}

    def first(self, kind: type[Kind]) -> Kind:
        return next(iter(self.of(kind).values()))

    @property
    def output(self) -> Operation:
        return self.steps[PLANS[self.placement][-1].reads[0]]


@dataclass(frozen=True)
class Encoder:
    layers: list[EncoderLayer]
    final_norm: TracedNorm | None


def match_encoder(output: Operation) -> Encoder:
    """Raises UnsupportedPattern, which names every difference from a stack of the specification's layers."""
    ends: list[tuple[Operation, TracedNorm | None]] = [(output, None)]
    if isinstance(output, TracedNorm):
        ends.append((output.of.operation, output))
    ways, reasons = [], []
    for last, final in ends:
        try:
            layers, differences = _stack(last)
            ways.append((differences, Encoder(layers, final)))
        except UnsupportedPattern as reason:
            reasons.append(reason)
    if not ways:
        raise reasons[0] if _is_post(output) else reasons[-1]
    differences, encoder = min(ways, key=lambda way: len(way[0]))
    if differences:
        first, *others = _named(differences)
        first.others = others
        raise first
    return encoder


def _is_post(output: Operation) -> bool:
    """Whether it is a norm, and one side of the residual sum under it is a norm, too: a post-norm layer's."""
    total = output.of.operation if isinstance(output, TracedNorm) else None
    return isinstance(total, Sum) and any(isinstance(side, TracedNorm) for side in total.sides)


def _stack(last: Operation) -> tuple[list[EncoderLayer], list[Difference]]:
    """The layers that lead from x to this operation, the first one first."""
    layers: list[EncoderLayer] = []
    differences: list[Difference] = []
    while not layers or not isinstance(last, TracedInput):
        ways, reasons = {}, {}
        for placement, steps in PLANS.items():
            walk = Walk({"output": last})
            try:
                for step in reversed(steps):
                    walk.take(step)
                ways[placement] = walk
            except UnsupportedPattern as reason:
                reason.others = _named(walk.differences)
                reasons[placement] = reason
        if not ways:
            raise reasons["post" if isinstance(last, TracedNorm) else "pre"]
        placement = min(ways, key=lambda way: len(ways[way].differences))
        walk = ways[placement]
        found = {stage: walk.steps[stage] for stage in STAGES if stage in walk.steps}
        last = walk.at["x"]
        layers.insert(0, EncoderLayer(placement, last, found, walk.columns))
        differences += walk.differences
    return layers, differences


def _named(differences: list[Difference]) -> list[UnsupportedPattern]:
    """One sentence for each kind of difference, with the stages after which it is found."""
    stages: dict[tuple[str, Feature | None], list[Difference]] = {}
    for each in reversed(differences):
        stages.setdefault((each.what, each.feature), []).append(each)
    found = []
    for (what, feature), places in stages.items():
        where = " and ".join(dict.fromkeys(each.stage for each in places))
        unknown = "" if feature else ": the layer language has no key for it"
        found.append(UnsupportedPattern(f"{what} {where}, first at {places[0].name!r}{unknown}", feature))
    return found

"""Matches encoder layers, or a stack of them, in the operations that the output is computed from."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from encoder_conformance.readers.onnx_file.layer.known_instead import adds_attention_alone, skips_attention
from encoder_conformance.readers.onnx_file.layer.plans import PLANS, Arranged, parallel_of, placement_of
from encoder_conformance.readers.onnx_file.layer.walk import NORMED_SKIP, QK_NORMS, STAGES, Difference, Walk
from encoder_conformance.readers.onnx_file.tracing.expressions import (
    Appended,
    Context,
    Operation,
    Scores,
    Sum,
    TracedInput,
    TracedNorm,
    UnsupportedPattern,
)
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import AppendedKey, Parallel, Placement

Kind = TypeVar("Kind", bound=Operation)
_WITH_FIRST_NORM: tuple[Arranged, ...] = ("pre", "sandwich")


@dataclass(frozen=True)
class EncoderLayer:
    """One encoder layer: stage → the operation that shows it, in the order of the specification.

    `input` is the operation before it, `columns` the features that a stage is in its operation, head by head where it
    has heads.
    """

    arranged: Arranged
    gated: bool
    input: Operation
    steps: dict[str, Operation]
    columns: dict[str, Array]

    @property
    def placement(self) -> Placement:
        return placement_of(self.arranged)

    @property
    def parallel(self) -> Parallel | None:
        return parallel_of(self.arranged)

    @property
    def may_lack_first_norm(self) -> bool:
        """Whether a norm stands before its first sub-layer, and may be left out (E-24)."""
        return self.arranged in _WITH_FIRST_NORM

    def of(self, kind: type[Kind]) -> dict[str, Kind]:
        """The steps of one kind, by stage."""
        return {stage: step for stage, step in self.steps.items() if isinstance(step, kind)}

    def first(self, kind: type[Kind]) -> Kind:
        return next(iter(self.of(kind).values()))

    @property
    def norms(self) -> dict[str, TracedNorm]:
        """The norms over all features of a row, and not those of queries and keys."""
        return {stage: norm for stage, norm in self.of(TracedNorm).items() if stage not in QK_NORMS}

    @property
    def head_norms(self) -> dict[str, TracedNorm]:
        """The norms of queries and of keys."""
        return {stage: norm for stage, norm in self.of(TracedNorm).items() if stage in QK_NORMS}

    @property
    def normed_over(self) -> str:
        """What the norms of queries and of keys are over, `head` or `all` (E-27); "" without them.

        The first of them tells, which is that of queries: keys may have one head alone, of which both are true.
        """
        first = next(iter(self.head_norms.values()), None)
        return "" if first is None else "head" if first.features == self.head_dim else "all"

    @property
    def heads(self) -> int:
        return self.first(Scores).shape[1]

    @property
    def appended_key(self) -> AppendedKey | None:
        """The key and the value of each head that no position has (E-44): numbers of the file's own, or 0."""
        own = [step.vector.take(self.columns[name]) for name, step in self.of(Appended).items()]
        return None if not own else "learned" if any(each.value.any() for each in own) else "zero"

    @property
    def leads(self) -> bool:
        """Whether that key stands before those of the positions: scores then are in another order than stages are."""
        return any(step.leads for step in self.of(Appended).values())

    @property
    def head_dim(self) -> int:
        return self.columns["query"].size // self.heads

    @property
    def value_dim(self) -> int:
        """The features of value of each head."""
        return int(self.first(Context).value_heads.shape[-1])

    @property
    def kv_heads(self) -> int:
        """The heads of key and of value."""
        return self.columns["key"].size // self.head_dim

    @property
    def output(self) -> Operation:
        return self.steps[PLANS[self.arranged, self.gated][-1].reads[0]]


@dataclass(frozen=True)
class Encoder:
    layers: list[EncoderLayer]
    final_norm: TracedNorm | None

    @property
    def shifted(self) -> list[TracedNorm]:
        """Those of its norms that have a shift (E-21)."""
        norms = [norm for layer in self.layers for norm in layer.norms.values()] + [self.final_norm]
        return [norm for norm in norms if norm is not None and norm.form.shift is not None]


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
    if encoder.final_norm is not None and len(encoder.layers) == 1:
        differences = _with_norms_behind_sums(differences, encoder.layers[0], encoder.final_norm)
    if differences:
        first, *others = _named(differences)
        first.others = others
        raise first
    for norm in encoder.shifted:
        if norm.form.kind == "rms_norm":
            raise UnsupportedPattern(f"at {norm.name!r}", "shifted")
    return encoder


def _is_post(output: Operation) -> bool:
    """Whether it is a norm, and one side of the residual sum under it is a norm, too: a post-norm layer's."""
    total = output.of.operation if isinstance(output, TracedNorm) else None
    return isinstance(total, Sum) and any(isinstance(side, TracedNorm) for side in total.sides)


def _stack(last: Operation) -> tuple[list[EncoderLayer], list[Difference]]:
    """The layers that lead from x to this operation, the first one first."""
    walks: list[tuple[tuple[Arranged, bool], Walk]] = []
    while not walks or (not isinstance(last, TracedInput) and not _is_norm_of_x(last)):
        ways, reasons, places = {}, {}, {}
        for chosen, steps in PLANS.items():
            walk = Walk({"output": last}, parallel=parallel_of(chosen[0]) is not None)
            try:
                for step in reversed(steps):
                    places[chosen] = step.step, walk.at.get(step.makes)
                    walk.take(step)
                ways[chosen] = walk
            except UnsupportedPattern as reason:
                reason.others = _named(walk.differences)
                reasons[chosen] = reason
        if not ways:
            raise _likeliest(last, walks[0][1] if walks else None, reasons, places)
        chosen = min(ways, key=lambda way: (len(ways[way].differences), _is_one_norm_read_by_half(way, ways[way])))
        walks.insert(0, (chosen, ways[chosen]))
        last = ways[chosen].at["x"]
    differences = [each for _, walk in walks for each in walk.differences]
    first = walks[0][1]
    if walks[0][0][0] in _WITH_FIRST_NORM and first.absent.get(FIRST_NORM) in differences:
        differences.remove(first.absent[FIRST_NORM])  # a choice of the language's (E-24)
    if isinstance(last, TracedNorm):
        differences = _with_norm_of_x(last, walks[-1][1], differences)
    missing = [each for _, walk in walks for each in walk.absent.values()]
    if all(each in missing for each in differences):
        none: Feature = "parallel" if all(map(_is_side_by_side_without_norms, walks)) else "no_norm"
        differences = [replace(each, feature=none) for each in differences]
    return [_layer(*way) for way in walks], differences


def _is_one_norm_read_by_half(way: tuple[Arranged, bool], walk: Walk) -> bool:
    """Whether one norm is not read by both sub-layers: where each has its own, it is known which of them reads x."""
    return way[0] == "one_norm" and bool(walk.differences)


def _is_side_by_side_without_norms(way: tuple[tuple[Arranged, bool], Walk]) -> bool:
    """Whether sub-layers stand side by side, and no norm before them: one may stand behind their sum."""
    (arranged, _), walk = way
    return parallel_of(arranged) is not None and not any(name in walk.steps for name in (FIRST_NORM, LAST_NORM))


def _likeliest(
    last: Operation,
    behind: Walk | None,
    reasons: Mapping[tuple[Arranged, bool], UnsupportedPattern],
    places: Mapping[tuple[Arranged, bool], tuple[str, Operation | None]],
) -> UnsupportedPattern:
    """Why no layer leads to this operation, `behind` it the walk through the next one: of the ways in which one may be
    placed, and gated or not, the reason of that which is likely meant."""
    totals: dict[Feature, Operation | None] = {
        "skip_of_attention": None if behind is None else behind.sum_of_attention(last),
        "skip_of_branch": adds_attention_alone(last),
    }
    for feature, total in totals.items():
        if total is not None:
            return UnsupportedPattern(f"at {total.name!r}", feature)
    usual: Arranged = "post" if isinstance(last, TracedNorm) else "pre"
    plain, gated = (usual, False), (usual, True)
    at_one_place = places[plain] == places[gated]
    fewer = len(reasons[gated].others) < len(reasons[plain].others)
    likeliest = reasons[gated if at_one_place and fewer else plain]
    if behind is not None and likeliest.feature == "network_alone":
        likeliest.feature = "sums"
    elif likeliest.feature == "network_alone" and skips_attention(last):
        likeliest.feature = "skip_of_first"
    return likeliest


def _is_norm_of_x(operation: Operation) -> bool:
    return isinstance(operation, TracedNorm) and isinstance(operation.of.operation, TracedInput)


def _with_norm_of_x(norm: TracedNorm, last: Walk, differences: list[Difference]) -> list[Difference]:
    """The differences of a stack before which x itself is normed, `last` being the walk through its last layer.

    Where that has no norm at its end, each norm stands before its sub-layer, and what skips is normed with what is
    read.
    """
    missing = last.absent.get(LAST_NORM)
    if missing not in differences:
        return [*differences, Difference("a norm of x before", "the first layer", norm.made, "normed_first")]
    kept = [each for each in differences if each is not missing]
    skips = [Difference(NORMED_SKIP, name, norm.made, "normed_skip") for name in (LAST_NORM, FIRST_NORM)]
    return [*skips, *kept]


def _with_norms_behind_sums(differences: list[Difference], layer: EncoderLayer, final: TracedNorm) -> list[Difference]:
    """The differences of a layer whose last sum is normed by `final`: where its second skip is normed, too, and its
    first is not, its norms stand behind the sums, and one more before attention. Where nothing but its second norm is
    missing, it stands there."""
    if [(each.stage, each.feature) for each in differences] == [(LAST_NORM, "no_norm")]:
        return [Difference("a norm behind", "residual2", final.made, "norm_behind_sum")]
    skips = [each for each in differences if each.feature == "normed_skip"]
    if [each.stage for each in skips] != [LAST_NORM] or FIRST_NORM not in layer.norms:
        return differences
    first = Difference("a norm of x before", "attention", layer.norms[FIRST_NORM].name, "normed_first_branch")
    return [first, *(each for each in differences if each not in skips)]


FIRST_NORM, LAST_NORM = "norm1", "norm2"


def _layer(chosen: tuple[Arranged, bool], walk: Walk) -> EncoderLayer:
    found = {stage: walk.steps[stage] for stage in STAGES if stage in walk.steps}
    return EncoderLayer(*chosen, walk.at["x"], found, walk.columns)


def _named(differences: list[Difference]) -> list[UnsupportedPattern]:
    """One sentence for each kind of difference, with the stages after which it is found."""
    stages: dict[tuple[str, Feature | None], list[Difference]] = {}
    for each in reversed(differences):
        stages.setdefault((each.what, each.feature), []).append(each)
    found = []
    for (what, feature), places in stages.items():
        where = " and ".join(dict.fromkeys(each.stage for each in places))
        found.append(UnsupportedPattern(f"{what} {where}, first at {places[0].name!r}", feature or "unkeyed"))
    return found

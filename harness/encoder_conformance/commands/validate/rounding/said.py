"""The rounding of a file in words, and what of it is an error."""

import math
from collections.abc import Iterator

from encoder_conformance.blackbox.asked_shapes import Kind
from encoder_conformance.commands.validate.rounding.results import RankedPlace, Ranking, Rounding, far, shown
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import PhaseFinding, Severity

_KINDS: dict[Kind, str] = {
    "own": "your data", "ordinary": "ordinary inputs", "padded": "padded inputs", "out of range": "inputs out of range",
}  # fmt: skip
_SHOWN = 5
_WORTH = 0.9
"""A place is worth naming where leaving it in float takes the error to this share of what it was, or less."""
_HINT = "nodes_to_exclude of onnxruntime.quantization leaves them out; --limit NUMBER --fix NEW.onnx writes that file"


def summary(rounding: Rounding) -> str:
    """`relative error against bert.onnx: ordinary inputs 0.011 (1 x 7), padded inputs 0.012 (holes); …`."""
    parts = []
    for kind, name in _KINDS.items():
        if (found := rounding.largest(kind)) is not None:
            parts.append(f"{name} {shown(found[0])} ({found[1].name})")
    split = _split(rounding)
    same = [by for by in rounding.related if by not in {each.by for each in rounding.changed}]
    related = f"; {', '.join(same)}: the same within its rounding" if same else ""
    return f"relative error against {rounding.reference}: {', '.join(parts)}{split}{related}"


def _split(rounding: Rounding) -> str:
    """How much of the largest error of what is judged its weights make, and how much its activations."""
    worst = max(rounding.judged, key=lambda each: far(each.errors.values()), default=None)
    if worst is None or worst.weights is None:
        return ""
    parts = f"the weights alone make {shown(worst.weights)}, and the activations {shown(worst.activations)}"
    return f"; in {worst.name} {parts}"


def findings(rounding: Rounding, limit: float | None) -> Iterator[PhaseFinding]:
    yield from _held(rounding, limit)
    for each in rounding.away:
        message = f"{each.node} {each.problem}"
        hint = f"its scale is {each.scale!r}: calibrate it on what is not hidden, or leave it in float"
        yield rounding_finding("error", "rounded-away", message, hint, node=each.node, scale=each.scale)
    yield from _by_case(rounding)
    yield from _ranked(rounding.ranking, limit)
    if rounding.not_ranked:
        yield rounding_finding("note", "not-ranked", rounding.not_ranked, "--limit ranks them")
    for change in rounding.changed:
        far_off = f"by {change.apart:.2g}, where its rounding makes {change.rounding:.2g}"
        message = f"{change.by}: it gives something else, {far_off}"
        hint = "the file itself was asked, not the numbers that its integers stand for"
        about = {"by": change.by, "apart": change.apart, "rounding": change.rounding}
        yield rounding_finding("error", "relation-broken-by-rounding", message, hint, **about)
    for why in rounding.not_asked:
        yield rounding_finding("warning", "not-compared", f"not compared: {why}")


def _held(rounding: Rounding, limit: float | None) -> Iterator[PhaseFinding]:
    """What the limit says of the largest error of what is judged; where there is no number, none is needed."""
    pairs = [(each.name, run) for each in rounding.cases for run, error in each.errors.items() if error is None]
    lacking = [f"{name}, {run}" for name, run in pairs]
    if lacking:
        more = f" and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        where = f"{'; '.join(lacking[:_SHOWN])}{more}"
        message = f"it gives no numbers where {rounding.reference} gives some: {where}"
        about = [{"case": name, "run": run} for name, run in pairs]
        yield rounding_finding("error", "no-numbers", message, places=about)
    errors = {run: found for run, found in rounding.errors().items() if math.isfinite(found[0])}
    run = max(errors, key=lambda name: errors[name][0], default=None)
    if run is None:
        return
    worst, where = errors[run]
    if limit is None:
        message = "no limit was given: any relative error passes"
        yield rounding_finding("note", "no-limit", message, "--limit makes a larger one an error", error=worst)
    elif worst > limit:
        text = f"relative error {shown(worst)} against {rounding.reference} (rms, {where}, {run})"
        message = f"{text}, over the limit of {limit:g}"
        yield rounding_finding("error", "over-limit", message, error=worst, limit=limit, case=where, run=run)
    elif beyond := [*_beyond(rounding, limit)]:
        message = f"the limit of {limit:g} does not hold {' and '.join(beyond)}"
        yield rounding_finding("note", "limit-not-held", message, limit=limit)


def _beyond(rounding: Rounding, limit: float) -> Iterator[str]:
    """The kinds of inputs that are over the limit, and that it is not asked of."""
    judged = {each.kind for each in rounding.judged}
    for kind, name in _KINDS.items():
        found = rounding.largest(kind)
        if kind not in judged and found is not None and found[0] > limit:
            yield f"{name}, at {shown(found[0])}"


def _by_case(rounding: Rounding) -> Iterator[PhaseFinding]:
    """The largest error of any run in each case, by situation and length."""
    if any(each.kind == "ordinary" for each in rounding.cases):
        each_case = "; ".join(f"{each.name} {shown(far(each.errors.values()))}" for each in rounding.cases)
        yield rounding_finding("note", "errors-by-case", f"by case: {each_case}")


def _ranked(ranking: Ranking | None, limit: float | None) -> Iterator[PhaseFinding]:
    if ranking is None or ranking.as_it_is is None:
        return
    worth = [each for each in ranking.places if far([each.error]) <= _WORTH * ranking.as_it_is]
    where = f"of {shown(ranking.as_it_is)} in {', '.join(ranking.cases)}"
    if not worth:
        if ranking.as_it_is:
            message = f"no one of its {ranking.found} operators of integers makes much of its error, {where}"
            if lost := [each.node for each in ranking.places if each.weight == "rounded"]:
                message += f", as far as their weights are the source's: {', '.join(lost[:_SHOWN])} has one of its own"
            yield rounding_finding("note", "no-place-to-leave", message, operators=ranking.found)
        return
    best = ", ".join(f"{_place(each)} {shown(each.error)}" for each in worth[:_SHOWN])
    together = [f"{each.count} {shown(each.error)}" for each in ranking.left if each.count > 1]
    more = f"; the first of them together: {', '.join(together)}" if together else ""
    reached = [each for each in ranking.left if limit is not None and far([each.error]) <= limit]
    within = f"; {reached[0].count} of them keep it within {limit:g}" if reached else ""
    message = f"left in float, each alone, the whole error {where} becomes: {best}{more}{within}"
    yield rounding_finding("note", "places-left-in-float", message, _HINT, nodes=[each.node for each in worth])


def _place(place: RankedPlace) -> str:
    return f"{place.node} (its weight still rounded)" if place.weight == "rounded" else place.node


def rounding_finding(
    severity: Severity, kind: FindingKind, message: str, hint: str = "", **about: object
) -> PhaseFinding:
    """A finding of the phase `reduction`."""
    return PhaseFinding(phase="reduction", severity=severity, kind=kind, message=message, hint=hint, about=about)

"""Sentences on one kind of step whose equation was not found: an activation, a linear map, weights, a norm, a sum.

Each is tested on every case; "" where it is not so."""

from collections.abc import Iterator, Sequence

import numpy as np

from encoder_conformance.diagnosis.identify.edits import parsed
from encoder_conformance.diagnosis.identify.samples import Sample
from encoder_conformance.diagnosis.identify.suggested import WEIGHT_TOLERANCE, LinearMap, is_linear, solved
from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.plan import MAKING, form_of

IN_LINE = constants().rms_limit
"""rms, in σ, as of every comparison."""
SMOOTH = 1e-3
"""Of the range of a curve: what is left of a smooth one, between neighbours of some thousand values."""
_BARS = "▁▂▃▄▅▆▇█"
_PLOTTED = 24


def curve(stage: str, of: str, given: Array, seen: Array) -> str:
    """Describe, with a small plot, the curve that the `seen` values [n] are of those `given` [n], if neighbours in
    order of the given say that there is one."""
    order = np.argsort(given)
    given, seen = given[order], seen[order]
    span = max(float(np.ptp(seen)), 1e-300)
    between = np.interp(given[1:-1:2], given[::2], seen[::2])
    distance = float(np.median(np.abs(seen[1:-1:2] - between))) / span
    if distance > SMOOTH:
        return ""
    points = ", ".join(f"f({at:g}) = {float(np.interp(at, given, seen)):.3g}" for at in _points(given))
    plotted = np.interp(np.linspace(given[0], given[-1], _PLOTTED), given, seen)
    levels = ((plotted - plotted.min()) / max(float(np.ptp(plotted)), 1e-300) * (len(_BARS) - 1)).round().astype(int)
    plot = "".join(_BARS[level] for level in levels)
    return (
        f"{stage} follows one curve of {of}, to {distance:.1g} of its range: {points}{_shape(given, seen, span)}; "
        f"from {given[0]:.3g} to {given[-1]:.3g} {plot} (from {plotted.min():.3g} to {plotted.max():.3g})."
    )


def _points(given: Array) -> Iterator[float]:
    return (at for at in (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0) if given[0] <= at <= given[-1])


def _shape(given: Array, seen: Array, span: float) -> str:
    """Describe whether f is odd or even, flat at an end, and where f(x) = x; all arrays are [n]."""
    traits = []
    reach = min(-given[0], given[-1])
    if reach > 0:
        at = np.linspace(0, reach, 101)
        there, mirrored = np.interp(at, given, seen), np.interp(-at, given, seen)
        if np.abs(there - mirrored).max() < 0.01 * span:
            traits.append("even")
        elif np.abs(there + mirrored).max() < 0.01 * span:
            traits.append("odd")
    tenth = max(len(seen) // 10, 2)
    for name, end in (("left", seen[:tenth]), ("right", seen[-tenth:])):
        if float(np.ptp(end)) < 1e-3 * span:
            traits.append(f"constant at the {name}, {float(np.median(end)):.4g}")
    same = np.abs(seen - given) < 1e-5 * np.maximum(np.abs(given), 1e-3)
    if same.mean() > 0.05:
        traits.append(f"f(x) = x for {same.mean():.0%} of x, from {given[same].min():.3g} to {given[same].max():.3g}")
    return f"; {', '.join(traits)}" if traits else ""


def activation(stage: str, samples: Sequence[Sample]) -> str:
    """Describe the curve of an activation, or that there is none."""
    if form_of(stage) != "activation":
        return ""
    [source] = MAKING[stage].reads
    parts = [(s.operands[source].reshape(-1)[s.positions], s.observed) for s in samples]
    given, seen = (np.concatenate(values) for values in zip(*parts, strict=True))
    return curve(stage, source, given, seen) or f"{stage} follows no smooth curve of {source}."


def linear(stage: str, samples: Sequence[Sample]) -> str:
    """Describe the weight and the bias that give all cases with the same parameters, or that none do."""
    if not is_linear(samples[0].specified.tree):
        return ""
    found = solved(samples)
    if found is None:
        return ""
    if found.error > 2 * IN_LINE:
        return f"{stage} is no linear map of {found.source} ({found.error:.2g} σ from the nearest)."
    parameters = {name: value for name, value in samples[0].operands.values.items() if "." in name}
    weight = _described("weight", found.weight, {n: v for n, v in parameters.items() if v.ndim == 2})
    bias = _described("bias", found.bias, {n: v for n, v in parameters.items() if v.ndim == 1})
    return f"{stage} is a linear map of {found.source}{_rank(found)}: {weight}; {bias}."


def _rank(found: LinearMap) -> str:
    size = np.linalg.svd(found.weight, compute_uv=False)
    rank = int(np.sum(size > 1e-4 * max(float(size[0]), 1e-300)))
    return f", of rank {rank} of {len(size)}" if rank < len(size) else ""


def _described(kind: str, found: Array, parameters: dict[str, Array]) -> str:
    """Describe the parameter that `found` [K, M] or [M] is nearest to, by a factor or but for some entries."""
    if not np.abs(found).max() > 1e-6:
        return f"its {kind} is 0"
    distance: list[tuple[float, str]] = []
    for name, value in parameters.items():
        forms = {name: value, f"the transpose of {name}": value.T} if value.ndim == 2 else {name: value}
        for text, form in forms.items():
            size = float(np.linalg.norm(form))
            if form.shape != found.shape or not size:
                continue
            factor = float((form * found).sum()) / size**2
            away = float(np.linalg.norm(found - factor * form)) / max(float(np.linalg.norm(found)), 1e-300)
            if away < WEIGHT_TOLERANCE:
                return f"its {kind} is {text if abs(factor - 1) < 1e-3 else f'{factor:.6g} times {text}'}"
            differs = np.abs(found - form) > WEIGHT_TOLERANCE * max(float(np.sqrt(np.mean(form**2))), 1e-300)
            if differs.mean() <= 0.5:
                where = " and ".join(f"{axis} {_range(np.flatnonzero(_any(differs, at)))}" for at, axis in _axes(form))
                return f"its {kind} is {text} but for {int(differs.sum())} of {differs.size} entries ({where})"
            distance.append((away, text))
    if not distance:
        return f"its {kind} is like no parameter"
    away, text = min(distance)
    return f"its {kind} is like no parameter, nearest {text}, {away:.2g} of its size away"


def _axes(form: Array) -> tuple[tuple[int, str], ...]:
    return ((0, "rows"), (1, "columns")) if form.ndim == 2 else ((0, "entries"),)


def _any(differs: Array, axis: int) -> Array:
    """Return which rows, columns or entries of [K, M] or [M] differ anywhere."""
    return np.asarray(differs.any(axis=1 - axis)) if differs.ndim == 2 else differs


def _range(at: Array) -> str:
    if len(at) == at[-1] - at[0] + 1:
        return f"{at[0]} to {at[-1]}" if len(at) > 1 else f"{at[0]}"
    return ", ".join(map(str, at[:8])) + (" …" if len(at) > 8 else "")


def weights(stage: str, samples: Sequence[Sample]) -> Iterator[str]:
    """Describe what the keys' axis sums to, and where weights are 0, against the mask."""
    if form_of(stage) != "softmax":
        return
    sums, hidden, leaked, most, compared = list[Array](), 0, 0, 0.0, 0
    for sample in samples:
        whole = sample.at_all_positions().observed_whole()
        rows = np.asarray(np.isfinite(whole).all(axis=-1))
        mask = np.broadcast_to(sample.operands["mask"].astype(bool), whole.shape)
        has_key = mask.any(axis=-1)
        sums.append(whole.sum(axis=-1)[rows & has_key])
        inside = rows[..., None] & np.isfinite(whole)
        hidden += int((inside & mask & (whole == 0)).sum())
        leaks = inside & ~mask & (whole != 0)
        leaked, compared = leaked + int(leaks.sum()), compared + int(inside.sum())
        most = max(most, float(np.abs(whole[leaks]).max(initial=0.0)))
    total = np.concatenate(sums)
    if total.size and np.abs(total - 1).max() > 1e-3:
        yield f"{stage} sum to {total.min():.4g} up to {total.max():.4g} over the keys, and not to 1."
    elif total.size:
        yield f"{stage} sum to 1 over the keys of every query."
    if hidden:
        yield f"{hidden} of {compared} weights are 0 where the mask allows the key."
    if leaked:
        yield f"{leaked} of {compared} weights are not 0 where the mask hides the key: up to {most:.3g}."


def norm(stage: str, samples: Sequence[Sample]) -> str:
    """Describe centre and divisor, where each row is (x − centre) / divisor · gain + shift."""
    if form_of(stage) != "norm":
        return ""
    divisors, centres, worst = list[Array](), list[Array](), 0.0
    for sample in samples:
        [source] = (name for name in sample.specified.names if "." not in name and name != "epsilon")
        x, seen, sigma = sample.at_all_positions().rows(source)
        gain = np.asarray(sample.operands[f"{stage}.gain"])
        shift = np.broadcast_to(sample.operands[f"{stage}.shift"], gain.shape)
        weight = (np.abs(gain) / sigma) ** 2
        target = np.divide(seen - shift, gain, out=np.zeros_like(seen), where=gain != 0)
        if not len(x) or not np.isfinite(target).all():
            return ""
        total = weight.sum(-1, keepdims=True)
        mean_x, mean_t = ((weight * each).sum(-1, keepdims=True) / total for each in (x, target))
        along = (weight * (x - mean_x) * (target - mean_t)).sum(-1, keepdims=True)
        slope = along / np.maximum((weight * (x - mean_x) ** 2).sum(-1, keepdims=True), 1e-300)
        worst = max(worst, rms((target - mean_t - slope * (x - mean_x)) * np.sqrt(weight)))
        with np.errstate(all="ignore"):
            deviation = np.sqrt(x.var(-1) + sample.evidence.case.layer.norm.epsilon)
            divisors.append(1 / (slope[:, 0] * deviation))
            centres.append((mean_x - mean_t / slope)[:, 0] - x.mean(-1))
    if worst > 2 * IN_LINE:
        return f"{stage} is not (input - centre) / divisor * gain + shift in each row ({worst:.2g} σ from the nearest)."
    divisor, centre = np.concatenate(divisors), np.concatenate(centres)
    return (
        f"Each row of {stage} is (input - centre) / divisor * gain + shift: the centre is the mean plus "
        f"{_span(centre)}, and the divisor {_span(divisor)} times the specified one."
    )


def _span(values: Array) -> str:
    low, high = (0.0 if abs(each) < 1e-5 else float(each) for each in (np.fmin.reduce(values), np.fmax.reduce(values)))
    return f"{low:.4g}" if np.isclose(low, high, rtol=1e-3, atol=1e-5) else f"{low:.4g} to {high:.4g}"


def sum_by_feature(stage: str, samples: Sequence[Sample]) -> str:
    """Describe the factors of each feature in a sum of two, the same in every row of one layer's cases."""
    if form_of(stage) != "sum":
        return ""
    names = sorted(name for name in samples[0].specified.names if "." not in name)
    layer = samples[0].evidence.case.layer.layer
    parts = [s.at_all_positions().rows(names[0]) for s in samples if s.evidence.case.layer.layer == layer]
    others = [s.at_all_positions().rows(names[1])[0] for s in samples if s.evidence.case.layer.layer == layer]
    one, seen, sigma = (np.concatenate(each) for each in zip(*parts, strict=True))
    other = np.concatenate(others)
    if len(one) < 8 or not np.isfinite([one, other, seen]).all():
        return ""
    found = np.stack(
        [
            np.linalg.lstsq(np.stack([one[:, at], other[:, at]], axis=1), seen[:, at], rcond=None)[0]
            for at in range(one.shape[1])
        ],
        axis=1,
    )
    if rms((seen - found[0] * one - found[1] * other) / sigma) > 2 * IN_LINE:
        return f"{stage} is not {names[0]} and {names[1]}, each times a factor of each feature, and summed."
    return f"{stage} is {names[0]} times {_span(found[0])} plus {names[1]} times {_span(found[1])}, by feature."


def scores(stage: str, samples: Sequence[Sample]) -> str:
    """Describe scores that are a function of the specified score, or wrong by what positions alone decide."""
    if form_of(stage) != "scores":
        return ""
    specified = parsed(samples[0].specified.form)
    given, seen, alone = list[Array](), list[Array](), True
    for sample in samples:
        whole = sample.at_all_positions()
        computed = whole.whole(specified)
        assert computed is not None
        given.append(computed.reshape(-1)[whole.positions])
        seen.append(whole.observed)
        distance = whole.observed_whole() - computed
        with np.errstate(all="ignore"):
            spread = np.fmax.reduce(distance, axis=(0, 1)) - np.fmin.reduce(
                distance, axis=(0, 1)
            )  # no warning of NaN alone
            several, most = distance.shape[0] * distance.shape[1] > 1, np.fmax.reduce(np.abs(distance), axis=None)
            alone = alone and several and bool(np.fmax.reduce(spread, axis=None) < 1e-5 * most)
    if alone:
        return f"What is added to {stage} depends on the positions of query and key alone."
    of_score = curve(stage, "the specified score", np.concatenate(given), np.concatenate(seen))
    return of_score or f"{stage} are no function of the specified score alone."

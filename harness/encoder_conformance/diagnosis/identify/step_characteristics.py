"""Claims about one kind of step whose equation was not found: a linear map, weights, a norm, a sum.

Each is held to every case, in σ; none is made where it is not so, nor of a step that is right.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from encoder_conformance.diagnosis.claims import claim
from encoder_conformance.diagnosis.identify.samples import Sample
from encoder_conformance.diagnosis.identify.suggested import (
    WEIGHT_TOLERANCE,
    LinearMap,
    is_linear,
    solved,
)
from encoder_conformance.diagnosis.in_sigma import conforms, held, rms
from encoder_conformance.judging.records import Claim
from encoder_conformance.spec.axes import KM, Array, M, P, Rows
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.steps import form_of

IN_LINE = constants().rms_limit
"""rms, in σ, as of every comparison."""
_OUT = 2 * IN_LINE
"""rms, in σ, from which the nearest of a kind is not what was observed."""
_FEWEST_ROWS = 8
_NO_NOISE = 1e-6
"""A weight that no format makes 0."""
_UNLIKE = "like no parameter"


class _Build(NamedTuple):
    """The cases with the same parameters, row by row: the linear map that is nearest, and what it was solved from."""

    found: LinearMap
    rows: Rows
    results: Rows
    noise: Rows
    parameters: dict[str, Array]

    def free_bias(self, weight: KM) -> M:
        """Return the bias that leaves least beside a weight."""
        sure = 1 / self.noise**2
        return np.asarray((sure * (self.results - self.rows @ weight)).sum(0) / sure.sum(0))

    def errors(self, weight: KM, bias: M) -> Rows:
        return np.asarray((self.results - self.rows @ weight - bias) / self.noise)


def linear(stage: str, samples: Sequence[Sample]) -> Claim | None:
    """Describe the weight and the bias that give all cases, or that none do."""
    if not is_linear(samples[0].specified.tree):
        return None
    builds = [build for of_build in _by_parameters(samples) if (build := _build(of_build))]
    worst = max((build.found.error for build in builds), default=0.0)
    if worst > _OUT:
        return claim("not-linear", worst, stage=stage, of=builds[0].found.source)
    if worst > IN_LINE or not builds:
        return None
    said = [_described_map(build, samples[0].specified.names) for build in builds]
    if None in said or len({each.kinds for each in said if each}) > 1:
        return None
    words = {name: getattr(said[0], name) for name in ("rank", "weight", "bias")}
    return claim("linear", worst, cases=len(samples), stage=stage, of=builds[0].found.source, **words)


class _Words(NamedTuple):
    """The words for a map, of the first parameters that it was seen with, and what is the same with all of them."""

    rank: str
    weight: str
    bias: str
    kinds: tuple[str, str]


def _by_parameters(samples: Sequence[Sample]) -> list[list[Sample]]:
    groups: dict[str, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(repr(sample.built_with), []).append(sample)
    return list(groups.values())


def _build(samples: Sequence[Sample]) -> _Build | None:
    found = solved(samples)
    if found is None:
        return None
    parts = [sample.at_all_positions().rows(found.source) for sample in samples]
    rows, results, noise = (np.concatenate(each) for each in zip(*parts, strict=True))
    finite = np.isfinite(rows).all(axis=1) & np.isfinite(results).all(axis=1)
    parameters = {name: value for name, value in samples[0].operands.values.items() if "." in name}
    return _Build(found, rows[finite], results[finite], np.maximum(noise[finite], 1e-300), parameters)


def _described_map(build: _Build, specified: frozenset[str]) -> _Words | None:
    """Return the words for rank, weight and bias; None where both are as specified, which is no news."""
    (kind, weight_text), weight = _weight(build)
    kind_of_bias, bias_text = _bias(build, weight)
    due = [name for name in specified if (value := build.parameters.get(name)) is not None and value.ndim == 1] or ["0"]
    if weight_text in specified and bias_text in due:
        return None
    return _Words(_rank(build.found), weight_text, bias_text, (kind, kind_of_bias))


def _rank(found: LinearMap) -> str:
    size = np.linalg.svd(found.weight, compute_uv=False)
    rank = int(np.sum(size > 1e-4 * max(float(size[0]), 1e-300)))
    return f", of rank {rank} of {len(size)}" if rank < len(size) else ""


def _weight(build: _Build) -> tuple[tuple[str, str], KM]:
    """Return the kind of weight and the words for it, and the weight that they mean: a parameter, by a factor or but
    for some entries, if that gives every row with some bias; else what was solved for."""
    found, nearest = build.found.weight, list[tuple[float, str]]()
    forms = {"0": np.zeros_like(found)}
    for name, value in build.parameters.items():
        if value.ndim == 2:
            forms |= {name: value, f"the transpose of {name}": value.T}
    for text, form in forms.items():
        if form.shape != found.shape:
            continue
        for words, weight in _near(text, form, found):
            errors = build.errors(weight, build.free_bias(weight))
            if conforms(errors):
                return (text, words), weight
            nearest.append((rms(errors), words))
    least, words = min(nearest)
    return (_UNLIKE, f"{_UNLIKE}, nearest {words}, which leaves {least:.2g} σ"), found


def _near(text: str, form: KM, found: KM) -> Iterator[tuple[str, KM]]:
    """Yield the form as it is, by the factor that is nearest, and but for the entries that differ."""
    yield text, form
    size = float((form * form).sum())
    if not size:
        return
    factor = float((form * found).sum()) / size
    yield f"{factor:.6g} times {text}", factor * form
    differs = np.abs(found - form) > WEIGHT_TOLERANCE * float(np.sqrt(np.mean(form**2)))
    if 0 < differs.mean() <= 0.5:
        where = " and ".join(
            f"{axis} {_range(np.flatnonzero(differs.any(axis=1 - at)))}" for at, axis in ((0, "rows"), (1, "columns"))
        )
        entries = f"{int(differs.sum())} of {differs.size} entries ({where})"
        yield f"{text} but for {entries}", np.where(differs, found, form)


def _bias(build: _Build, weight: KM) -> tuple[str, str]:
    """Return the kind of bias beside this weight, and the words for it: a parameter, or one but for some entries."""
    found, unsure = build.free_bias(weight), np.sqrt(1 / (1 / build.noise**2).sum(0))
    forms = {name: value for name, value in build.parameters.items() if value.shape == found.shape}
    for text, form in (*forms.items(), ("0", np.zeros_like(found))):
        if conforms(build.errors(weight, form)):
            return text, text
    for text, form in forms.items():
        differs = np.abs(found - form) > constants().max_limit * unsure
        if differs.mean() <= 0.5 and conforms(build.errors(weight, np.where(differs, found, form))):
            entries = f"{int(differs.sum())} of {differs.size} entries ({_range(np.flatnonzero(differs))})"
            return text, f"{text} but for {entries}"
    return _UNLIKE, _UNLIKE


def _range(at: Array) -> str:
    if len(at) == at[-1] - at[0] + 1:
        return f"{at[0]} to {at[-1]}" if len(at) > 1 else f"{at[0]}"
    return ", ".join(map(str, at[:8])) + (" …" if len(at) > 8 else "")


def weights(stage: str, samples: Sequence[Sample]) -> Iterator[Claim]:
    """Describe what the keys' axis sums to, and where weights are 0, against the mask."""
    if form_of(stage) != "softmax":
        return
    every = [_Weights.of(sample) for sample in samples]
    sums = np.concatenate([each.sums for each in every])
    off = [np.abs(each.sums - 1) / each.unsure for each in every if each.sums.size]
    furthest = max((float(each.max()) for each in off), default=0.0)
    if sums.size and furthest <= constants().max_limit:
        yield claim("sum-to-one", furthest, cases=len(off), stage=stage)
    elif sums.size and furthest > _OUT * constants().max_limit:
        yield claim("sums", furthest, stage=stage, low=f"{sums.min():.4g}", high=f"{sums.max():.4g}")
    size = sum(each.size for each in every)
    if hidden := sum(each.zeros for each in every):
        yield claim("zeros", max(each.least for each in every if each.zeros), count=hidden, size=size)
    if leaked := sum(each.leaks for each in every):
        yield claim("leaks", count=leaked, size=size, most=f"{max(each.most for each in every):.3g}")


def repeated_masks(stage: str, samples: Sequence[Sample]) -> Iterator[Claim]:
    """Say that heads have the masks of other items, where each case that could tell shows it."""
    if form_of(stage) != "softmax":
        return
    held_to = [found for sample in samples if (found := _masked_by_others(sample)) is not None]
    if held_to and all(held_to):
        yield claim("others-masks", cases=len(held_to))


def _masked_by_others(sample: Sample) -> bool | None:
    """Whether weights [B, H, S, S] are 0 where masks that are repeated, and not interleaved, hide the key: None where
    nothing tells that from what is specified."""
    sample = sample.at_all_positions()
    whole = sample.observed_whole()
    B, H, S, T = whole.shape
    mask = np.broadcast_to(sample.operands["mask"].astype(bool), whole.shape)
    repeated = np.tile(mask[:, 0], (H, 1, 1)).reshape(B, H, S, T)
    if (mask != mask[:, :1]).any() or not (mask != repeated).any():
        return None
    right, inside = sample.whole(sample.specified.tree), np.isfinite(whole).all(axis=-1, keepdims=True)
    none = inside & repeated & mask & (whole == 0) & (np.zeros_like(whole) if right is None else right > _NO_NOISE)
    return not (none.any() or (inside & ~repeated & (whole != 0)).any())


class _Weights(NamedTuple):
    """The weights of one case: what rows with a key sum to, and σ of that, [rows]; how many are compared; how many are
    0 where the mask allows the key and the specified weight is no noise, and the least of these in σ; how many are not
    0 where it hides it, and the largest of these."""

    sums: P
    unsure: P
    size: int
    zeros: int
    least: float
    leaks: int
    most: float

    @classmethod
    def of(cls, sample: Sample) -> "_Weights":
        sample = sample.at_all_positions()
        whole, sigma = sample.observed_whole(), np.zeros(sample.shape)
        sigma.reshape(-1)[sample.positions] = sample.sigma
        mask = np.broadcast_to(sample.operands["mask"].astype(bool), whole.shape)
        rows = np.isfinite(whole).all(axis=-1) & mask.any(axis=-1)
        rounding = 4 * sample.evidence.dtype.roundoff
        unsure = np.sqrt((sigma**2).sum(axis=-1) + rounding**2)[rows]
        right, inside = sample.whole(sample.specified.tree), np.isfinite(whole)
        far = np.zeros_like(whole) if right is None else np.abs(right) / np.maximum(sigma, 1e-300)
        zeros = inside & mask & (whole == 0) & (far > constants().max_limit)
        leaks = inside & ~mask & (whole != 0)
        largest = float(np.abs(whole[leaks]).max(initial=0.0))
        least = float(far[zeros].min(initial=np.inf))
        count = int(inside.sum()), int(zeros.sum())
        return cls(whole.sum(axis=-1)[rows], unsure, *count, least, int(leaks.sum()), largest)


def norm(stage: str, samples: Sequence[Sample]) -> Claim | None:
    """Describe centre and divisor, where each row is (x − centre) / divisor · gain + shift."""
    if form_of(stage) != "norm":
        return None
    rows = [_NormRows.of(stage, sample) for sample in samples]
    known = [each for each in rows if each is not None and each.errors.size]
    if len(known) < len(rows):
        return None
    worst = max(rms(each.errors) for each in known)
    if worst > _OUT:
        return claim("not-rows", worst, stage=stage)
    divisor, centre = (np.concatenate(each) for each in ([r.divisor for r in known], [r.centre for r in known]))
    if held(each.errors for each in known) is None or not np.isfinite([*divisor, *centre]).all():
        return None
    said = {"centre": _span(centre), "divisor": _span(divisor)}
    if said == {"centre": "0", "divisor": "1"}:  # then it is another thing that is wrong
        return None
    return claim("rows", worst, cases=len(known), stage=stage, **said)


class _NormRows(NamedTuple):
    """How far the rows of a norm are from the nearest (x − centre) / divisor, in σ, [rows · D]; the divisor over the
    specified one, and the centre less the mean, [rows]."""

    errors: P
    divisor: P
    centre: P

    @classmethod
    def of(cls, stage: str, sample: Sample) -> "_NormRows | None":
        [source] = (name for name in sample.specified.names if "." not in name and name != "epsilon")
        x, seen, sigma = sample.at_all_positions().rows(source)
        gain = np.asarray(sample.operands[f"{stage}.gain"])
        shift = np.broadcast_to(sample.operands[f"{stage}.shift"], gain.shape)
        weight = (np.abs(gain) / sigma) ** 2
        target = np.divide(seen - shift, gain, out=np.zeros_like(seen), where=gain != 0)
        if not len(x) or not np.isfinite(target).all():
            return None
        total = weight.sum(-1, keepdims=True)
        mean_x, mean_t = ((weight * each).sum(-1, keepdims=True) / total for each in (x, target))
        along = (weight * (x - mean_x) * (target - mean_t)).sum(-1, keepdims=True)
        slope = along / np.maximum((weight * (x - mean_x) ** 2).sum(-1, keepdims=True), 1e-300)
        errors = (target - mean_t - slope * (x - mean_x)) * np.sqrt(weight)
        with np.errstate(all="ignore"):
            deviation = np.sqrt(x.var(-1) + sample.evidence.case.layer.norm.epsilon)
            return cls(errors.reshape(-1), 1 / (slope[:, 0] * deviation), (mean_x - mean_t / slope)[:, 0] - x.mean(-1))


def _span(values: Array) -> str:
    low, high = (0.0 if abs(each) < 1e-5 else float(each) for each in (np.fmin.reduce(values), np.fmax.reduce(values)))
    return f"{low:.4g}" if np.isclose(low, high, rtol=1e-3, atol=1e-5) else f"{low:.4g} to {high:.4g}"


def sum_by_feature(stage: str, samples: Sequence[Sample]) -> Claim | None:
    """Describe the factors of each feature in a sum of two, the same in every row of all cases of as many features."""
    if form_of(stage) != "sum":
        return None
    names = sorted(name for name in samples[0].specified.names if "." not in name)
    of_width: dict[int, list[Sample]] = {}
    for sample in samples:
        of_width.setdefault(sample.shape[-1], []).append(sample)
    fits = [fit for group in of_width.values() if (fit := _fitted_sum(names, group))]
    if len(fits) < len(of_width):
        return None
    worst = max(rms(errors) for _, errors in fits)
    if worst > _OUT:
        return claim("not-by-feature", worst, stage=stage, one=names[0], other=names[1])
    factors = np.concatenate([found for found, _ in fits], axis=1)
    said = {"factor": _span(factors[0]), "factor_of_other": _span(factors[1])}
    if held(errors for _, errors in fits) is None or said == {"factor": "1", "factor_of_other": "1"}:
        return None
    return claim("by-feature", worst, cases=len(samples), stage=stage, one=names[0], other=names[1], **said)


def _fitted_sum(names: Sequence[str], samples: Sequence[Sample]) -> tuple[Array, P] | None:
    """Return the factors [2, D] that leave least of the sum in all rows, and what they leave, in σ, [rows · D]; None
    where there are few rows, or a number that is not finite."""
    parts = [sample.at_all_positions().rows(names[0]) for sample in samples]
    one, seen, sigma = (np.concatenate(each) for each in zip(*parts, strict=True))
    other = np.concatenate([sample.at_all_positions().rows(names[1])[0] for sample in samples])
    if len(one) < _FEWEST_ROWS or not all(np.isfinite(each).all() for each in (one, other, seen)):
        return None
    weight = 1 / np.maximum(sigma, 1e-300)
    columns = [np.stack([one[:, at], other[:, at]], axis=1) * weight[:, at, None] for at in range(one.shape[1])]
    solved = [np.linalg.lstsq(each, seen[:, at] * weight[:, at], rcond=None)[0] for at, each in enumerate(columns)]
    found = np.stack(solved, axis=1)
    return found, ((seen - found[0] * one - found[1] * other) * weight).reshape(-1)

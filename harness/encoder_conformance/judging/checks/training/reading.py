"""Recovers each placement's dropout mask and scale from a probe's output (rule Q-2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from encoder_conformance.judging.checks.training.probe import BIAS, HIGH, LOW, UNIT, Probe
from encoder_conformance.judging.checks.training.statistics import HIDDEN, KEPT, Masks
from encoder_conformance.protocol.streamed import PART
from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.portable import Floats

Floating = npt.NDArray[np.floating]


class NoReading(Exception):
    """No dropout mask can give this output of the probe."""


@dataclass(frozen=True)
class Reading:
    """The dropout masks and scales of one answer.

    `kept`: placement → mask, [B, H, S, S], [B, S, D] or [B, S, F]. A byte an element, since several readings of a large
    layer are compared.
    `scales`: placement → the smallest and the largest factor of the kept elements; none where none can be measured.
    """

    kept: dict[str, Masks]
    scales: dict[str, Floats]


def read(probe: Probe, output: Floating) -> Reading:
    """The reading of `output` [B, S, D] in any format. Raises NoReading.

    A few items at a time: arrays of a whole batch are mapped and unmapped for each operation (memory.py), and that
    takes longer than the operation.
    """
    _check_shows_norm(probe, output)
    added = np.empty(output.shape)
    for part in _parts(output.shape):
        added[part] = _invert_norm(probe, output[part].astype(np.float64)) - probe.x[part]
    bias = _read_bias(probe, added)
    ffn_output, active, ffn_scales = _take_feed_forward(probe, added, bias)
    attention_output, plain_scales = _read_attention_output(probe, added)
    weights, weight_scales = _read_weights(probe, added, attention_output, _median(plain_scales))
    bias_scales = bias.values / (probe.ffn_scale * _norm_spread(probe, added, bias))
    kept = {
        "attention_weights": _by_head(probe, weights),
        "attention_output": attention_output,
        "ffn_activation": _by_unit(probe, active),
        "ffn_output": ffn_output,
    }
    scales = (weight_scales, plain_scales, ffn_scales, bias_scales[bias.kept])
    return Reading(kept, dict(zip(kept, map(smallest_and_largest, scales), strict=True)))


@dataclass(frozen=True)
class _Bias:
    """The feed-forward network's bias as each row shows it, [B, S]: its value, and whether it was kept."""

    values: Floats
    kept: Bools
    typical: float
    """The median of the kept values."""


def _read_bias(probe: Probe, added: Floats) -> _Bias:
    """The bias alone, of [B, S, D] that attention and feed-forward network added to x."""
    values = added[..., BIAS].copy()
    kept = values > probe.ffn_scale * probe.ffn_unit / 2
    if not kept.any():
        raise NoReading("ffn_output: feature D − 3 is dropped at every position, or nothing is added to it")
    least, typical, most = (float(value) for value in np.quantile(values[kept], (0, 0.5, 1)))
    if most > least * (3 if probe.is_post_norm else 1.01):  # with a norm in between the rows differ a little
        raise NoReading(
            f"ffn_output: one number is kept as {least / probe.ffn_scale:.4g} to {most / probe.ffn_scale:.4g} of itself"
        )
    return _Bias(values, kept, typical)


def _take_feed_forward(probe: Probe, added: Floats, bias: _Bias) -> tuple[Masks, Masks, Floats]:
    """The masks [B, S, D] of `ffn_output` and `ffn_activation`, and the factors [n] of kept hidden units.

    It takes the feed-forward network's share out of `added` [B, S, D]: what is left is attention's, or NaN.
    """
    # Rows whose bias was dropped do not show the size of a feed-forward unit.
    unit = added[..., UNIT] / np.where(bias.kept, bias.values, np.nan) - 1
    scales = unit[(unit > 0.5) & (added[..., UNIT] > bias.typical / 2)]
    scale, shows_unit = _median(scales), probe.units >= 0
    output, active = np.empty(added.shape, np.uint8), np.empty(added.shape, np.uint8)
    for part in _parts(added.shape):
        sums = added[part]
        kept = sums > bias.typical / 2
        output[part] = kept
        kept[..., LOW:] = False
        is_active = sums > 1.5 * bias.typical
        active[part] = _as_mask(is_active, shows_unit & kept)
        from_ffn = bias.values[part][..., None] * np.where(kept, 1 + scale * (shows_unit & is_active), 0.0)
        sums[:] = np.where(bias.kept[part][..., None] & probe.ordinary, sums - from_ffn, np.nan)
    output[..., LOW:] = HIDDEN
    return output, active, scales


def _read_attention_output(probe: Probe, attended: Floats) -> tuple[Masks, Floats]:
    """The mask of what attention added, [B, S, D], and the factors [n] of kept elements that show no weight."""
    mask, plain = np.empty(attended.shape, np.uint8), []
    for part in _parts(attended.shape):
        is_kept = attended[part] > 0.5
        mask[part] = _as_mask(is_kept, ~np.isnan(attended[part]))
        plain.append(attended[part][is_kept & ~probe.shows_weight])
    return mask, np.concatenate(plain)


def _read_weights(probe: Probe, attended: Floats, output: Masks, scale: float) -> tuple[Masks, Floats]:
    """The mask of the attention weights by feature, [B, S, D], and the extreme factors [n] of the kept ones.

    `output` is the mask of what attention added, `scale` the factor of its kept elements.
    """
    mask, scales = np.empty(attended.shape, np.uint8), []
    for part in _parts(attended.shape):
        weight = np.where(probe.shows_weight & (output[part] == KEPT), attended[part] / scale - 1, np.nan)
        is_kept = weight > 0.5
        mask[part] = _as_mask(is_kept, ~np.isnan(weight))
        scales.append(smallest_and_largest(weight[is_kept]))
    return mask, np.concatenate(scales)


def _norm_spread(probe: Probe, attended: Floats, bias: _Bias) -> Floats:
    """[B, S], the denominator of the norm after attention; 1 in a pre-norm layer."""
    spread = np.ones_like(bias.values)
    for part in _parts(attended.shape) if probe.is_post_norm else ():
        ordinary = probe.ordinary & bias.kept[part][..., None]
        normed = np.where(ordinary, probe.x[part] + attended[part], probe.x[part])
        spread[part] = probe.norm_denominator(normed)[..., 0]
    return spread


def _median(scales: Floats) -> float:
    """The median of scales [n]; 1 of none."""
    return float(np.median(scales)) if scales.size else 1.0


def _parts(shape: tuple[int, ...]) -> Iterator[slice]:
    """Items of a batch of this shape, as many at a time as fit a processor's cache."""
    step = max(1, PART // prod(shape[1:]))
    return (slice(begin, begin + step) for begin in range(0, shape[0], step))


def _as_mask(kept: Bools, visible: Bools) -> Masks:
    """KEPT or DROPPED where visible, else HIDDEN; all of one shape."""
    return np.where(visible, kept, HIDDEN)


def smallest_and_largest(scales: Floats) -> Floats:
    """[2], the smallest and the largest of some scales [n]; [0] of none."""
    return np.array([scales.min(), scales.max()]) if scales.size else scales


def _check_shows_norm(probe: Probe, output: Floating) -> None:
    """Raise NoReading unless the last norm can be inverted."""
    if not np.isfinite(output).all():
        raise NoReading(f"{int((~np.isfinite(output)).sum())} of {output.size} elements are not finite")
    if not (output[..., HIGH] > output[..., LOW]).all():
        raise NoReading(f"feature D − 1 is not above feature D − 2, which is {2 * probe.offset:g} below it in x")


def _invert_norm(probe: Probe, output: Floats) -> Floats:
    """[..., S, D], the sums before the last norm: an affine map of each row, fixed by two known features."""
    low, high = output[..., LOW, None], output[..., HIGH, None]
    return np.asarray(probe.offset * (2 * (output - low) / (high - low) - 1))


def _by_head(probe: Probe, by_feature: Masks) -> Masks:
    """[B, S, D] to [B, H, S, S]: feature k of head h shows the weight of key k."""
    B, S, _ = by_feature.shape
    heads = by_feature.reshape(B, S, -1, probe.original.head_dim)[..., :S]
    return np.ascontiguousarray(heads.swapaxes(1, 2))


def _by_unit(probe: Probe, by_feature: Masks) -> Masks:
    """[B, S, D] to [B, S, F], HIDDEN at the units that are not shown."""
    units = np.full((*by_feature.shape[:2], probe.original.feed_forward.d_ff), HIDDEN)
    shown = np.flatnonzero(probe.units >= 0)
    units[..., probe.units[shown]] = by_feature[..., shown]
    return units

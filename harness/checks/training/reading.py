"""Recovers each placement's dropout mask and scale from a probe's output (rule Q-2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from encoder_conformance.checks.training.probe import BIAS, HIGH, LOW, UNIT, Probe
from encoder_conformance.checks.training.statistics import HIDDEN, KEPT, Masks
from encoder_conformance.portable import Floats
from encoder_conformance.wire.streamed import PART

Floating = npt.NDArray[np.floating]
Bools = npt.NDArray[np.bool_]


class Unreadable(Exception):
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
    """The reading of `output` [B, S, D] in any format. Raises Unreadable.

    A few items at a time: arrays of a whole batch are mapped and unmapped for each operation (memory.py), and that
    takes longer than the operation.
    """
    _check_shows_norm(probe, output)
    added, parts = np.empty(output.shape), tuple(_parts(output.shape))
    for part in parts:
        added[part] = _invert_norm(probe, output[part].astype(np.float64)) - probe.x[part]
    ffn_bias = added[..., BIAS].copy()  # [B, S], the feed-forward network's bias alone in each row
    bias_kept = ffn_bias > probe.ffn_scale * probe.ffn_unit / 2
    if not bias_kept.any():
        raise Unreadable("ffn_output: feature D − 3 is dropped at every position, or nothing is added to it")
    least, typical, most = (float(value) for value in np.quantile(ffn_bias[bias_kept], (0, 0.5, 1)))
    if most > least * (3 if probe.is_post_norm else 1.01):  # with a norm in between the rows differ a little
        raise Unreadable(
            f"ffn_output: one number is kept as {least / probe.ffn_scale:.4g} to {most / probe.ffn_scale:.4g} of itself"
        )

    # Rows whose `ffn_bias` was dropped do not show the size of a feed-forward unit.
    unit = added[..., UNIT] / np.where(bias_kept, ffn_bias, np.nan) - 1
    ffn_scales = unit[(unit > 0.5) & (added[..., UNIT] > typical / 2)]
    scale = float(np.median(ffn_scales)) if ffn_scales.size else 1.0

    shows_unit = probe.units >= 0
    ffn_output, active, attention_output, attention_weights = (np.empty(output.shape, np.uint8) for _ in range(4))
    plain = []
    for part in parts:
        sums = added[part]
        kept = sums > typical / 2
        ffn_output[part] = kept
        kept[..., LOW:] = False
        is_active = sums > 1.5 * typical
        active[part] = _as_mask(is_active, shows_unit & kept)
        from_ffn = ffn_bias[part][..., None] * np.where(kept, 1 + scale * (shows_unit & is_active), 0.0)
        # From here on `added` is what attention added.
        sums[:] = np.where(bias_kept[part][..., None] & probe.ordinary, sums - from_ffn, np.nan)
        is_kept = sums > 0.5
        attention_output[part] = _as_mask(is_kept, ~np.isnan(sums))
        plain.append(sums[is_kept & ~probe.shows_weight])
    ffn_output[..., LOW:] = HIDDEN
    plain_scales = np.concatenate(plain)
    scale = float(np.median(plain_scales)) if plain_scales.size else 1.0

    spread = np.ones_like(ffn_bias)
    weights = []
    for part in parts:
        attended = added[part]
        weight = np.where(probe.shows_weight & (attention_output[part] == KEPT), attended / scale - 1, np.nan)
        is_kept = weight > 0.5
        attention_weights[part] = _as_mask(is_kept, ~np.isnan(weight))
        weights.append(smallest_and_largest(weight[is_kept]))
        if probe.is_post_norm:
            ordinary = probe.ordinary & bias_kept[part][..., None]
            normed = np.where(ordinary, probe.x[part] + attended, probe.x[part])
            spread[part] = probe.norm_denominator(normed)[..., 0]
    return Reading(
        {
            "attention_weights": _by_head(probe, attention_weights),
            "attention_output": attention_output,
            "ffn_activation": _by_unit(probe, active),
            "ffn_output": ffn_output,
        },
        {
            "attention_weights": smallest_and_largest(np.concatenate(weights)),
            "attention_output": smallest_and_largest(plain_scales),
            "ffn_activation": smallest_and_largest(ffn_scales),
            "ffn_output": smallest_and_largest((ffn_bias / (probe.ffn_scale * spread))[bias_kept]),
        },
    )


def _parts(shape: tuple[int, ...]) -> Iterator[slice]:
    """Items of a batch of this shape, as many at a time as fit a processor's cache."""
    step = max(1, PART // prod(shape[1:]))
    return (slice(begin, begin + step) for begin in range(0, shape[0], step))


def _as_mask(kept: Bools, visible: Bools) -> Masks:
    return np.where(visible, kept, HIDDEN)


def smallest_and_largest(scales: Floats) -> Floats:
    """The smallest and the largest; none of none."""
    return np.array([scales.min(), scales.max()]) if scales.size else scales


def _check_shows_norm(probe: Probe, output: Floating) -> None:
    """Raise Unreadable unless the last norm can be inverted."""
    if not np.isfinite(output).all():
        raise Unreadable(f"{int((~np.isfinite(output)).sum())} of {output.size} elements are not finite")
    if not (output[..., HIGH] > output[..., LOW]).all():
        raise Unreadable(f"feature D − 1 is not above feature D − 2, which is {2 * probe.offset:g} below it in x")


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

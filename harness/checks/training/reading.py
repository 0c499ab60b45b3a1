"""Recovers each placement's dropout mask and scale from a probe's output (rule Q-2)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoder_conformance.checks.training.probe import BIAS, HIGH, LOW, UNIT, Probe
from encoder_conformance.checks.training.statistics import DROPPED, HIDDEN, KEPT, Masks
from encoder_conformance.portable import Floats

Floating = npt.NDArray[np.floating]


class Unreadable(Exception):
    """No dropout mask can give this output of the probe."""


@dataclass(frozen=True)
class Reading:
    """The dropout masks and scales of one answer.

    `kept`: placement → mask, [B, H, S, S], [B, S, D] or [B, S, F]. A byte an element, since several readings of a large
    layer are compared.
    `scales`: placement → the factors of the kept elements, where they can be measured.
    """

    kept: dict[str, Masks]
    scales: dict[str, Floats]


def read(probe: Probe, output: Floats) -> Reading:
    """The reading of `output` [B, S, D], float64. Raises Unreadable."""
    added = _invert_norm(probe, output) - probe.x
    ffn_bias = added[..., BIAS]  # [B, S], the feed-forward network's bias alone in each row
    bias_kept = ffn_bias > probe.ffn_scale * probe.ffn_unit / 2
    if not bias_kept.any():
        raise Unreadable("ffn_output: feature D − 3 is dropped at every position, or nothing is added to it")
    least, typical, most = (float(value) for value in np.quantile(ffn_bias[bias_kept], (0, 0.5, 1)))
    if most > least * (3 if probe.is_post_norm else 1.01):  # with a norm in between the rows differ a little
        raise Unreadable(
            f"ffn_output: one number is kept as {least / probe.ffn_scale:.4g} to {most / probe.ffn_scale:.4g} of itself"
        )

    ffn_output = (added > typical / 2).astype(np.float64)
    ffn_output[..., LOW:] = np.nan
    shows_unit = probe.units >= 0
    active = np.where(shows_unit & (ffn_output == 1), added > 1.5 * typical, np.nan)

    # Rows whose `ffn_bias` was dropped do not show the size of a feed-forward unit.
    unit = added[..., UNIT] / np.where(bias_kept, ffn_bias, np.nan) - 1
    ffn_scales = unit[(unit > 0.5) & (ffn_output[..., UNIT] == 1)]
    scale = float(np.median(ffn_scales)) if ffn_scales.size else 1.0
    from_ffn = ffn_bias[..., None] * np.where(ffn_output == 1, 1 + scale * np.where(shows_unit, active, 0.0), 0.0)
    attended = np.where(bias_kept[..., None] & probe.ordinary, added - from_ffn, np.nan)

    attention_output = np.where(np.isnan(attended), np.nan, attended > 0.5)
    plain = attended[(attention_output == 1) & ~probe.shows_weight]
    scale = float(np.median(plain)) if plain.size else 1.0
    weight = np.where(probe.shows_weight & (attention_output == 1), attended / scale - 1, np.nan)
    attention_weights = np.where(np.isnan(weight), np.nan, weight > 0.5)

    normed = np.where(probe.ordinary & bias_kept[..., None], probe.x + attended, probe.x)
    spread = probe.norm_denominator(normed)[..., 0] if probe.is_post_norm else np.ones_like(ffn_bias)
    kept = {
        "attention_weights": _by_head(probe, attention_weights),
        "attention_output": attention_output,
        "ffn_activation": _by_unit(probe, active),
        "ffn_output": ffn_output,
    }
    scales = {
        "attention_weights": weight[attention_weights == 1],
        "attention_output": plain,
        "ffn_activation": ffn_scales,
        "ffn_output": (ffn_bias / (probe.ffn_scale * spread))[bias_kept],
    }
    return Reading({name: _as_mask(mask) for name, mask in kept.items()}, scales)


def _as_mask(kept: Floating) -> Masks:
    """Of 1 where an element was kept, 0 where it was dropped, NaN where it is not visible."""
    return np.where(np.isnan(kept), HIDDEN, np.where(kept == 1, KEPT, DROPPED))


def _invert_norm(probe: Probe, output: Floats) -> Floats:
    """[B, S, D], the sums before the last norm: an affine map of each row, fixed by two known features."""
    if not np.isfinite(output).all():
        raise Unreadable(f"{int((~np.isfinite(output)).sum())} of {output.size} elements are not finite")
    low, high = output[..., LOW, None], output[..., HIGH, None]
    if not (high > low).all():
        raise Unreadable(f"feature D − 1 is not above feature D − 2, which is {2 * probe.offset:g} below it in x")
    return np.asarray(probe.offset * (2 * (output - low) / (high - low) - 1))


def _by_head(probe: Probe, by_feature: Floats) -> Floats:
    """[B, S, D] to [B, H, S, S]: feature k of head h shows the weight of key k."""
    B, S, _ = by_feature.shape
    heads = by_feature.reshape(B, S, -1, probe.original.head_dim)[..., :S]
    return heads.swapaxes(1, 2)


def _by_unit(probe: Probe, by_feature: Floats) -> npt.NDArray[np.float16]:
    """[B, S, D] to [B, S, F], NaN at the units that are not shown."""
    units = np.full((*by_feature.shape[:2], probe.original.feed_forward.d_ff), np.nan, dtype=np.float16)
    shown = np.flatnonzero(probe.units >= 0)
    units[..., probe.units[shown]] = by_feature[..., shown]
    return units

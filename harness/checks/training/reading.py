"""Reads off a probe's output which elements each placement dropped, and by what it multiplied the others (rule Q-2)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoder_conformance.checks.training.probe import BIAS, HIGH, LOW, UNIT, Probe
from encoder_conformance.portable import Floats

Kept = npt.NDArray[np.float16]


class Unreadable(Exception):
    """The output has not the form that the probe's has, whatever is dropped."""


@dataclass(frozen=True)
class Reading:
    """`kept` by placement: 1, or 0 where dropped, NaN where it does not show; [B, H, S, S], [B, S, D] or [B, S, F].

    In float16, which holds all three: of a large layer several readings are compared.

    `scales` by placement: what elements that were kept came out multiplied by, wherever that can be told.
    """

    kept: dict[str, Kept]
    scales: dict[str, Floats]


def read(probe: Probe, output: Floats) -> Reading:
    """`output` [B, S, D], float64."""
    added = _unnormed(probe, output) - probe.x
    fed = added[..., BIAS]  # what the feed-forward network's bias alone came to in each row
    whole = fed > probe.fed * probe.base / 2
    if not whole.any():
        raise Unreadable("ffn_output: feature D − 3 is dropped at every position, or nothing is added to it")
    least, typical, most = (float(value) for value in np.quantile(fed[whole], (0, 0.5, 1)))
    if most > least * (3 if probe.post else 1.01):  # a norm in between has the rows differ a little
        raise Unreadable(
            f"ffn_output: one number is kept as {least / probe.fed:.4g} to {most / probe.fed:.4g} of itself"
        )

    ffn_output = (added > typical / 2).astype(np.float64)
    ffn_output[..., LOW:] = np.nan
    shows_unit = probe.units >= 0
    active = np.where(shows_unit & (ffn_output == 1), added > 1.5 * typical, np.nan)

    # Rows whose `fed` was dropped do not say how large a unit of the feed-forward network is in them.
    unit = added[..., UNIT] / np.where(whole, fed, np.nan) - 1
    ffn_scales = unit[(unit > 0.5) & (ffn_output[..., UNIT] == 1)]
    scale = float(np.median(ffn_scales)) if ffn_scales.size else 1.0
    from_ffn = fed[..., None] * np.where(ffn_output == 1, 1 + scale * np.where(shows_unit, active, 0.0), 0.0)
    attended = np.where(whole[..., None] & probe.ordinary, added - from_ffn, np.nan)

    attention_output = np.where(np.isnan(attended), np.nan, attended > 0.5)
    plain = attended[(attention_output == 1) & ~probe.shows_weight]
    scale = float(np.median(plain)) if plain.size else 1.0
    weight = np.where(probe.shows_weight & (attention_output == 1), attended / scale - 1, np.nan)
    attention_weights = np.where(np.isnan(weight), np.nan, weight > 0.5)

    normed = np.where(probe.ordinary & whole[..., None], probe.x + attended, probe.x)
    spread = probe.spread(normed)[..., 0] if probe.post else np.ones_like(fed)
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
        "ffn_output": (fed / (probe.fed * spread))[whole],
    }
    return Reading({name: mask.astype(np.float16, copy=False) for name, mask in kept.items()}, scales)


def _unnormed(probe: Probe, output: Floats) -> Floats:
    """The sums before the last norm: a norm is one affine map for all features of a row, and two of them are known."""
    if not np.isfinite(output).all():
        raise Unreadable(f"{int((~np.isfinite(output)).sum())} of {output.size} elements are not finite")
    low, high = output[..., LOW, None], output[..., HIGH, None]
    if not (high > low).all():
        raise Unreadable(f"feature D − 1 is not above feature D − 2, which is {2 * probe.far:g} below it in x")
    return np.asarray(probe.far * (2 * (output - low) / (high - low) - 1))


def _by_head(probe: Probe, by_feature: Floats) -> Floats:
    """[B, S, D] to [B, H, S, S]: feature k of head h shows the weight of key k."""
    B, S, _ = by_feature.shape
    heads = by_feature.reshape(B, S, -1, probe.of.head_dim)[..., :S]
    return heads.swapaxes(1, 2)


def _by_unit(probe: Probe, by_feature: Floats) -> Kept:
    """[B, S, D] to [B, S, F], NaN at the units that are not shown."""
    units = np.full((*by_feature.shape[:2], probe.of.feed_forward.d_ff), np.nan, dtype=np.float16)
    shown = np.flatnonzero(probe.units >= 0)
    units[..., probe.units[shown]] = by_feature[..., shown]
    return units

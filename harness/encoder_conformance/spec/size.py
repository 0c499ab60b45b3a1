"""The bytes of a layer's parameters, and the layers that are too large: computed without making any parameter."""

from pathlib import Path

from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import shown
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameter_count

_ITEM = 8
"""Bytes: the oracle computes in float64."""
LARGEST = 1 << 43
"""Bytes of parameters of a layer that is refused as soon as it is read: eight TiB, ten times GPT-3 in float32."""
LARGEST_BUILT = 1 << 31
"""Bytes of parameters of a layer that can be built: one frame has them all (docs/wire.md)."""


SMALL = 64
"""Stages are kept whole up to this d_model: a few hundred kilobytes per case."""


def is_large(layer: Layer) -> bool:
    """Whether its stages are not kept whole, and a play of it takes as long as a hundred of a small one."""
    return layer.d_model > SMALL


def refuse_larger(layer: Layer, limit: int, where: str | Path) -> None:
    """Raises InputError if the parameters of `layer` take more than `limit` bytes."""
    if (size := _ITEM * parameter_count(layer)) > limit:
        problem = f"its parameters would take {_text(size)} in float64; at most {_text(limit)} are possible"
        place = where if isinstance(where, str) else shown(where)
        raise InputError(problem, where=place, hint="take smaller sizes: d_model, d_ff, vocabulary, or fewer layers")


def _text(size: int) -> str:
    power = min(max(size.bit_length() - 1, 0) // 10, 8)
    return f"{size / 1024**power:.3g} {('bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB', 'ZiB', 'YiB')[power]}"

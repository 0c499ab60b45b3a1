"""One character for a size in σ, so that a page has those of every stage of every case (static/data.js reads it).

Between 0.01 and 100 σ, where limits lie, a character is a twelfth of a decade: the size is off by at most 10 %. Above,
it is a third of a decade, up to 1e15 σ.
"""

import math

_ALPHABET = "".join(chr(code) for code in range(33, 127) if chr(code) not in "\"'\\<>&`")
ZERO, MISSING = _ALPHABET[0], _ALPHABET[1]
"""Exactly 0; and not compared."""
LEVELS = _ALPHABET[2:]
_SMALLEST, _FINE, _FINE_LEVELS, _COARSE = -2.0, 12, 48, 3


def encode(sigma: float | None) -> str:
    """The character of a size in σ; smaller than 0.01 is 0.01, and larger than the last level is the last."""
    if sigma is None or math.isnan(sigma):
        return MISSING
    if sigma <= 0:
        return ZERO
    above = math.log10(sigma) - _SMALLEST
    level = round(above * _FINE)
    if level > _FINE_LEVELS:
        level = _FINE_LEVELS + round((above - _FINE_LEVELS / _FINE) * _COARSE)
    return LEVELS[min(max(level, 0), len(LEVELS) - 1)]


def alphabet() -> dict[str, str | float | int]:
    """What a reader needs to decode."""
    return {
        "zero": ZERO,
        "missing": MISSING,
        "levels": LEVELS,
        "smallest": _SMALLEST,
        "fine": _FINE,
        "fineLevels": _FINE_LEVELS,
        "coarse": _COARSE,
    }

"""Codes of what pages load, so that it is small (static/data.js reads them): a character for each size in σ and each
outcome, and rows of values by name.

Between 0.01 and 100 σ, where limits lie, a character is a twelfth of a decade: the size is off by at most 10 %. Above,
it is a third of a decade, up to 1e15 σ.
"""

import math
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from encoder_conformance.spec.outcome import SEVERITY, Outcome

CODES = dict(zip(Outcome, string.ascii_letters, strict=False))
"""Outcome → its character."""
NO_RECORD = " "
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
    """The code of sizes, as a reader needs it to decode them."""
    return {
        "zero": ZERO,
        "missing": MISSING,
        "levels": LEVELS,
        "smallest": _SMALLEST,
        "fine": _FINE,
        "fineLevels": _FINE_LEVELS,
        "coarse": _COARSE,
    }


def outcomes() -> dict[str, dict[str, Any]]:
    """Character → all that a page needs to know of the outcome."""
    return {
        code: {
            "name": each,
            "sign": each.sign,
            "category": each.category,
            "severity": SEVERITY[each],
            "applicable": each is not Outcome.UNSUPPORTED,
        }
        for each, code in CODES.items()
    }


class Rows:
    """Rows of values by name. They are written as tables with a column for each name, a table for each set of names
    that rows have, and the number of each row's table. A value of a name in `shared` is written once."""

    def __init__(self, *shared: str) -> None:
        self._rows: list[dict[str, Any]] = []
        self._numbers: dict[str, dict[Any, int]] = {name: {} for name in shared}

    def add(self, row: Mapping[str, Any]) -> int:
        """Add a row. Returns its number."""
        numbers = self._numbers
        self._rows.append(
            {
                name: numbers[name].setdefault(value, len(numbers[name])) if name in numbers else value
                for name, value in row.items()
            }
        )
        return len(self._rows) - 1

    def written(self, order: Iterable[int] | None = None) -> dict[str, Any]:
        """The rows as JSON has them: all, or those of these numbers in this order."""
        rows = self._rows if order is None else [self._rows[number] for number in order]
        alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in rows:
            alike.setdefault(tuple(row), []).append(row)
        kinds = {names: kind for kind, names in enumerate(alike)}
        return {
            "kinds": [kinds[tuple(row)] for row in rows],
            "tables": [{name: _column([row[name] for row in alike[names]]) for name in names} for names in kinds],
            "shared": {name: list(numbers) for name, numbers in self._numbers.items()},
        }


def _column(values: Sequence[Any]) -> Any:
    """The values, or a text of single characters."""
    return "".join(values) if all(isinstance(value, str) and len(value) == 1 for value in values) else values

"""Tells arrays that were computed from positions alone from parameters: a module of Equinox holds both alike."""

from typing import Any

import numpy as np

from encoder_conformance.spec.axes import Array

_ROWS = 8
"""Positions of which a table is compared: those after them show the rounding of the angle at the first one."""
_FEWEST = 3
"""Numbers of a row of frequencies: any two are a geometric row."""
_CLOSE = 1e-3
_TURNS = ((np.cos, np.arccos), (np.sin, np.arcsin), (lambda angles: np.exp(1j * angles), np.angle))
"""What tables hold of angles, and the angle of each."""


def is_table(leaf: Any) -> bool:
    """Whether an array holds frequencies, or angles of positions or their cosines and sines, or a causal mask."""
    values = np.asarray(leaf).squeeze()
    if values.ndim == 1:
        return len(values) >= _FEWEST and _is_geometric(values)
    return values.ndim == 2 and len(values) >= _FEWEST and (_is_by_angle(values[:_ROWS]) or _is_triangle(values))


def _is_geometric(values: Array) -> bool:
    """Whether each number is the one before it times one factor, which is not 1."""
    if np.iscomplexobj(values) or (values <= 0).any():
        return False
    factors = values[1:] / values[:-1]
    return abs(float(factors[0]) - 1) > _CLOSE and np.allclose(factors, factors[0], rtol=_CLOSE)


def _is_by_angle(rows: Array) -> bool:
    """Whether rows [positions, features] are angles that grow evenly from 0, or one function of such."""
    if np.array_equal(rows[0], rows[1]):
        return False
    positions = np.arange(len(rows))[:, None]
    if np.allclose(rows, positions * rows[1], atol=_CLOSE):
        return True
    within = bool((np.abs(rows) <= 1 + _CLOSE).all())
    kinds = _TURNS[2:] if np.iscomplexobj(rows) else _TURNS[:2]
    return within and any(
        np.allclose(
            rows, turn(positions * angle(np.clip(rows[1], -1, 1) if angle is not np.angle else rows[1])), 0, _CLOSE
        )
        for turn, angle in kinds
    )


def _is_triangle(values: Array) -> bool:
    """Whether a matrix [positions, positions] has one number up to its diagonal, and another behind it."""
    if values.shape[0] != values.shape[1]:
        return False
    seen, hidden = values[np.tril_indices(len(values))], values[np.triu_indices(len(values), 1)]
    return bool((seen == seen[0]).all() and (hidden == hidden[0]).all() and seen[0] != hidden[0])

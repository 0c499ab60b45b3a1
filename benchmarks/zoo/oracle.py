"""The oracle beside each layer of transformers in float64: the largest difference, and where it is."""

from importlib.metadata import version
from typing import Any

from benchmarks.zoo.agreement import comparison
from benchmarks.zoo.results import Section
from encoder_conformance.spec.load import published_layers

SITUATIONS = ("no-mask", "padding-right", "length-100")
OF_POSITIONS = ("positions-restart",)
"""Asked of layers that turn queries and keys."""


def compared() -> tuple[Section, dict[str, str]]:
    """A row for each published layer, and the versions of what was asked."""
    rows = {name: _row(name) for name in published_layers()}
    return rows, {name: version(name) for name in ("torch", "transformers")}


def _row(name: str) -> dict[str, Any]:
    situations = SITUATIONS + (OF_POSITIONS if published_layers()[name].attention.rope else ())
    found = {
        (error, tensor, situation)
        for situation in situations
        for tensor, error in comparison(name).errors(situation).items()
    }
    error, tensor, situation = max(found)
    return {"error": float(f"{error:.1e}"), "tensor": tensor, "situation": situation, "tensors": len(found)}

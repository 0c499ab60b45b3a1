"""The layer that a file is judged as: what was told of it, what was inferred, and where the two differ."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.spec.layer import Layer
from harness.validate.findings import Description, Finding

Array = npt.NDArray[Any]
_NOT_COMPARED = {"layer", "title", "clauses", "family", "dropout", "padded_rows", "padding_content"}
"""Names, and what an exported file cannot say: it holds no dropout, and what padding may hold is for runs to tell."""


def told_apart(told: Layer, description: Description) -> Iterator[Finding]:
    """Where the graph says otherwise than the layer that the file is to be judged as."""
    assert description.layer is not None
    evidence = {fact.key: fact.evidence for fact in description.facts}
    seen = _flat(description.layer.model_dump(mode="json", exclude=_NOT_COMPARED))
    for key, due in _flat(told.model_dump(mode="json", exclude=_NOT_COMPARED)).items():
        if key == "attention.fully_masked_row" or seen.get(key) == due:  # that is told by what runs give
            continue
        where = f" ({evidence[key]})" if key in evidence else ""
        message = f"{key} is {seen.get(key)} in the file{where}, and {due} in {told.layer}"
        yield Finding(stage="layer", severity="error", message=message)


def compared_parameters(due: Mapping[str, Array], held: Mapping[str, Array]) -> Iterator[Finding]:
    """Parameters that are not those that the file was made from, and what they are instead."""
    for name, value in held.items():
        right = due[name].astype(value.dtype)
        if np.array_equal(right, value):
            continue
        alike = [f"{other}" for other, theirs in due.items() if other != name and _same(theirs, value)]
        if alike:
            said = f"holds {alike[0]}"
        elif right.ndim == 2 and _same(right.T, value):
            said = "is transposed"
        else:
            far = np.abs(right.astype(np.float64) - value).max() if right.shape == value.shape else np.inf
            said = f"holds other values, up to {far:.3g} away"
        yield Finding(stage="layer", severity="error", message=f"{name} {said}", hint="compare what was exported")


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one.astype(other.dtype), other))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat

"""The layer that a file is judged as: what was told of it, what was inferred, and where the two differ."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.findings import Description, Finding

Array = npt.NDArray[Any]
_NOT_COMPARED = {"layer", "title", "clauses", "family", "dropout", "padded_rows", "padding_content"}
"""Names, and what an exported file cannot say: it holds no dropout, and what padding may hold is for runs to tell."""


def told_apart(told: Layer, description: Description) -> Iterator[Finding]:
    """Where the graph says otherwise than the layer that the file is to be judged as."""
    assert description.layer is not None
    evidence = {fact.key: fact.evidence for fact in description.facts}
    seen = _flat(description.layer.model_dump(mode="json", exclude=_NOT_COMPARED))
    for key, due in _flat(told.model_dump(mode="json", exclude=_NOT_COMPARED)).items():
        rows = key == "attention.fully_masked_row"
        if seen.get(key) == due or (rows and "unspecified" in (seen[key], due)):
            continue
        where = f" ({evidence[key]})" if key in evidence else ""
        message = f"{key} is {seen.get(key)} in the file{where}, and {due} in {told.layer}"
        yield Finding(stage="masks" if rows else "layer", severity="error", message=message)


def empty_rows(layer: Layer, description: Description) -> Iterator[Finding]:
    """What the file gives for an item that is padding alone, where no layer that it was told to be forbids it."""
    assert description.layer is not None
    if "nan" == description.layer.attention.fully_masked_row == layer.attention.fully_masked_row:
        message = "an item that is padding alone gives NaN: a softmax over -inf alone is 0/0"
        hint = "keep such items out of the batch, or export with a large negative number in the place of -inf"
        yield Finding(stage="masks", severity="warning", message=message, hint=hint)


def compared_parameters(
    due: Mapping[str, Array], held: Mapping[str, Array], stored: Mapping[str, str]
) -> Iterator[Finding]:
    """Parameters that are not those that the file was made from, and what they are instead. What a parameter is
    `stored` in rounds it, and nothing else may."""
    for name, value in held.items():
        narrow = FORMATS[stored[name]].numpy if name in stored else value.dtype
        right = due[name].astype(narrow).astype(value.dtype)
        if np.array_equal(right, value):
            continue
        alike = [f"{other}" for other, theirs in due.items() if other != name and _same(theirs, value)]
        if alike:
            said = f"holds {alike[0]}"
        elif right.ndim == 2 and _same(right.T, value):
            said = "is transposed"
        elif right.ndim == 2 and _same(_by_first(right), _by_first(value)):
            said = "holds its columns in another order, as of other heads"
        else:
            far = np.abs(right.astype(np.float64) - value).max() if right.shape == value.shape else np.inf
            said = f"holds other values, up to {far:.3g} away"
        yield Finding(stage="layer", severity="error", message=f"{name} {said}", hint="compare what was exported")


def _by_first(value: Array) -> Array:
    """The columns, in the order of their first elements."""
    return value[:, np.argsort(value[0], kind="stable")]


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one.astype(other.dtype), other))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat

"""Phase `layer`: the inferred layer and its parameters, against those that the user states."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.evidence import Assessment, Evidence, Subject
from encoder_conformance.validate.findings import Description, Finding

Array = npt.NDArray[Any]
_NOT_COMPARED = {"layer", "title", "clauses", "family", "dropout", "padded_rows", "padding_content"}
"""Names, and what an exported file cannot show: it has no dropout, and only runs show what padding may hold."""
EMPTY_ROWS = "attention.fully_masked_row"
"""The choice that the phase `masks` compares."""


def assess(evidence: Evidence) -> Assessment:
    return Assessment(_summary(evidence.description), _findings(evidence.subject))


def _summary(description: Description) -> str:
    if description.file is None or description.layer is None:
        return ""
    found = f"{len(description.parameters)} parameters and {len(description.stages)} stages found in the graph"
    proved = description.fact("proved")
    return f"{found}, proved by a run ({proved.evidence})" if proved and proved.value else found


def _findings(subject: Subject) -> Iterator[Finding]:
    if subject.is_understood and subject.misfit and subject.request.layer:
        message = f"the file's parameters are not those of {subject.request.layer.layer}: {subject.misfit}"
        yield Finding(phase="layer", severity="error", message=message)
    for key, message in differences(subject).items():
        if key != EMPTY_ROWS:
            yield Finding(phase="layer", severity="error", message=message)
    if subject.can_be_judged and subject.request.parameters is not None:
        yield from _compared(subject.request.parameters, subject.parameters, subject.description.stored())


def differences(subject: Subject) -> dict[str, str]:
    """Choice → how the file's layer differs there from the stated one."""
    stated, description = subject.stated_layer, subject.description
    if stated is None or description.layer is None:
        return {}
    inferred, messages = _choices(description.layer), {}
    for key, expected in _choices(stated).items():
        if inferred.get(key) == expected or (key == EMPTY_ROWS and "unspecified" in (inferred[key], expected)):
            continue
        fact = description.fact(key)
        where = f" ({fact.evidence})" if fact else ""
        messages[key] = f"{key} is {inferred.get(key)} in the file{where}, and {expected} in {stated.layer}"
    return messages


def _choices(layer: Layer) -> dict[str, Any]:
    return _flat(layer.model_dump(mode="json", exclude=_NOT_COMPARED))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _compared(
    stated: Mapping[str, Array], parameters: Mapping[str, Array], stored: Mapping[str, str]
) -> Iterator[Finding]:
    """Parameters other than those that the file was made from. The format that a parameter is `stored` in rounds it,
    and nothing else may."""
    for name, value in parameters.items():
        narrow = FORMATS[stored[name]].numpy if name in stored else value.dtype
        expected = stated[name].astype(narrow).astype(value.dtype)
        if not np.array_equal(expected, value):
            others = {other: theirs for other, theirs in stated.items() if other != name}
            message = f"{name} {_difference(value, expected, others)}"
            yield Finding(phase="layer", severity="error", message=message, hint="compare what was exported")


def _difference(value: Array, expected: Array, others: Mapping[str, Array]) -> str:
    if alike := [name for name, other in others.items() if _same(other, value)]:
        return f"holds {alike[0]}"
    if expected.ndim == 2 and _same(expected.T, value):
        return "is transposed"
    if expected.ndim == 2 and _same(_sorted_columns(expected), _sorted_columns(value)):
        return "holds its columns in another order, as of other heads"
    error = np.abs(expected.astype(np.float64) - value).max() if expected.shape == value.shape else np.inf
    return f"holds other values, up to {error:.3g} away"


def _sorted_columns(value: Array) -> Array:
    """The columns, in the order of their first elements."""
    return value[:, np.argsort(value[0], kind="stable")]


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(np.array_equal(one.astype(other.dtype), other))

"""What is wrong with the parameters that a built layer says it holds, and which entry of the map made them so."""

from collections.abc import Mapping

import numpy as np

from encoder_conformance.adapter.base import Array
from encoder_conformance.smoke.parameter_errors import parameter_errors
from encoder_conformance.spec.layer import Layer
from encoder_conformance.worker.round_trip import StoredParameters, round_trip_error


def named(names: tuple[str, ...], own: Mapping[str, str]) -> str:
    """The specification's names, each with the adapter's own, if it says that."""
    return " and ".join(f"{name} (the map's {own[name]!r})" if own.get(name, name) != name else name for name in names)


def mismatch(parameters: StoredParameters, layer: Layer) -> tuple[str, tuple[str, ...]] | None:
    """What came back otherwise than it was sent, and what to do, a line for each parameter; None if all is the same."""
    sent, held = parameters.sent, parameters.held
    if not (first := round_trip_error(sent, held)):
        return None
    if set(sent) != set(held):
        return first, ("the map takes every parameter of the specification, and gives each back under its name",)
    wrong = [name for name in sent if not _same(sent[name], held[name])]
    return f"{len(wrong)} of {len(sent)} did not come back as they were sent: {first}", tuple(
        f"{named((name,), parameters.own)} {_how(name, parameters, layer)}" for name in wrong
    )


def _how(name: str, parameters: StoredParameters, layer: Layer) -> str:
    sent, held = parameters.sent, parameters.held[name]
    if held.dtype != sent[name].dtype:
        return f"came back as {held.dtype}: keep it in {sent[name].dtype}"
    for edit in parameter_errors(sent, layer):
        if name in edit.names and _same(edit.made(sent)[name], held):
            verb = edit.says.replace("are ", "is ", 1) if edit.says.startswith("are ") else edit.says
            return verb.replace(", all of them", "")
    if held.shape != sent[name].shape:
        return f"came back as {list(held.shape)}: it is {list(sent[name].shape)}"
    if np.all(held == held.flat[0]):
        return f"came back as {held.flat[0]:g} throughout: it was never loaded"
    if np.allclose(held.astype(np.float64), sent[name].astype(np.float64), rtol=2.0**-7):
        return "came back rounded: it went through a narrower format"
    return "came back as other values: it was not loaded, or the way back is another than the way there"


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()

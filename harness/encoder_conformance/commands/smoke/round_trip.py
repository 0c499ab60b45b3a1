"""Compares the parameters that a built layer returns with those sent, and finds the error of the map."""

from collections.abc import Mapping

import numpy as np

from encoder_conformance.adapter.masks import Array
from encoder_conformance.commands.smoke.parameter_errors import parameter_errors
from encoder_conformance.spec.layer import Layer
from encoder_conformance.worker.parameters import StoredParameters, round_trip_error


def with_own_names(names: tuple[str, ...], own: Mapping[str, str]) -> str:
    """The specification's names, each with the adapter's own name if it differs."""
    return " and ".join(f"{name} (the map's {own[name]!r})" if own.get(name, name) != name else name for name in names)


def mismatch(parameters: StoredParameters, layer: Layer) -> tuple[str, tuple[str, ...]] | None:
    """The first mismatch, and a line for each parameter that did not come back as sent; None if all did."""
    sent, returned = parameters.sent, parameters.held
    if not (first := round_trip_error(sent, returned)):
        return None
    if set(sent) != set(returned):
        return first, ("the map takes every parameter of the specification, and gives each back under its name",)
    mismatched = [name for name in sent if not _bitwise_equal(sent[name], returned[name])]
    return f"{len(mismatched)} of {len(sent)} did not come back as they were sent: {first}", tuple(
        f"{with_own_names((name,), parameters.own)} {_describe_mismatch(name, parameters, layer)}"
        for name in mismatched
    )


def _describe_mismatch(name: str, parameters: StoredParameters, layer: Layer) -> str:
    sent, returned = parameters.sent, parameters.held[name]
    if returned.dtype != sent[name].dtype:
        return f"came back as {returned.dtype}: keep it in {sent[name].dtype}"
    for error in parameter_errors(sent, layer):
        if name in error.names and _bitwise_equal(error.apply(sent)[name], returned):
            text = error.description
            text = text.replace("are ", "is ", 1) if text.startswith("are ") else text
            return text.replace(", all of them", "")
    if returned.shape != sent[name].shape:
        return f"came back as {list(returned.shape)}: it is {list(sent[name].shape)}"
    if np.all(returned == returned.flat[0]):
        return f"came back as {returned.flat[0]:g} throughout: it was never loaded"
    if np.allclose(returned.astype(np.float64), sent[name].astype(np.float64), rtol=2.0**-7):
        return "came back rounded: it went through a narrower format"
    return "came back as other values: it was not loaded, or returning it is not the inverse of loading it"


def _bitwise_equal(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()

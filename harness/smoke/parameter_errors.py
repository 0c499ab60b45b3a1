"""The ways in which a map of parameters goes wrong: what each makes of the right ones, and how to say it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from encoder_conformance.adapter.base import Array
from encoder_conformance.spec.layer import Layer
from encoder_conformance.wire.frames import Tensors

Made = Callable[[Mapping[str, Array]], Tensors]
QKV = ("attention.query", "attention.key", "attention.value")
OUTPUT = "attention.output.weight"


@dataclass(frozen=True)
class ParameterError:
    """`made` gives the parameters that are otherwise than they should be; `names` are theirs, `says` how."""

    names: tuple[str, ...]
    says: str
    made: Made


def parameter_errors(parameters: Tensors, layer: Layer) -> Iterator[ParameterError]:
    """Every one that these parameters can suffer, those of one parameter first."""
    for name, value in parameters.items():
        yield ParameterError((name,), "is missing: it is as if it were zero", _each([name], np.zeros_like))
        if name.endswith("gain"):
            yield ParameterError((name,), "is missing: it is as if it were one", _each([name], np.ones_like))
        if value.ndim == 2:
            yield ParameterError((name,), "is transposed", _each([name], np.transpose))
        if value.ndim == 2 and value.shape[0] != value.shape[1]:
            yield ParameterError((name,), "was reshaped where it should be transposed", _each([name], _reshaped))
            yield ParameterError((name,), "was reshaped where it should be transposed", _each([name], _reshaped_back))
    yield from _heads(parameters, layer.attention.num_heads)
    yield from _of_one_shape(parameters)
    square = [name for name, value in parameters.items() if value.ndim == 2 and value.shape[0] == value.shape[1]]
    yield ParameterError(tuple(square), "are transposed, all of them", _each(square, np.transpose))
    yield ParameterError(tuple(square[:3]), "are transposed, all of them", _each(square[:3], np.transpose))
    biases = [name for name in parameters if name.endswith("bias")]
    yield ParameterError(
        tuple(biases), "are missing, all of them: it is as if they were zero", _each(biases, np.zeros_like)
    )


def _heads(parameters: Tensors, H: int) -> Iterator[ParameterError]:
    """Features are kept as h·d + i (E-5); the other way, and the way back from it."""
    if H == 1 or any(name.startswith("attention.") and _uneven(parameters[name], H) for name in parameters):
        return
    said = "split into heads the other way (interleaved: feature i·H + h for head h, where h·d + i is meant)"
    for turn in (_interleaved, _interleaved_back):
        groups = [[f"{of}.{what}" for what in ("weight", "bias")] for of in QKV]
        for group in (*groups, [name for both in groups for name in both]):
            names = [name for name in group if name in parameters]
            verb = "are" if len(names) > 1 else "is"
            yield ParameterError(tuple(names), f"{verb} {said}", _each(names, lambda value, turn=turn: turn(value, H)))
            for name in names if len(group) == 2 else ():
                yield ParameterError((name,), f"is {said}", _each([name], lambda value, turn=turn: turn(value, H)))
        rows = _each([OUTPUT], lambda value, turn=turn: turn(value.T, H).T)
        yield ParameterError((OUTPUT,), f"has its rows {said}", rows)


def _of_one_shape(parameters: Tensors) -> Iterator[ParameterError]:
    for one, value in parameters.items():
        for other in parameters:
            if one == other or parameters[other].shape != value.shape:
                continue
            yield ParameterError((one,), f"holds what belongs to {other}", _from({one: other}))
            if one < other:
                yield ParameterError((one, other), "are swapped", _from({one: other, other: one}))
    q, k, v = (f"{of}.weight" for of in QKV)
    if parameters[q].shape == parameters[k].shape == parameters[v].shape:
        kinds = [kind for kind in ("weight", "bias") if f"{QKV[0]}.{kind}" in parameters]
        for order in ((1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0)):
            sources = {f"{QKV[at]}.{kind}": f"{QKV[of]}.{kind}" for at, of in enumerate(order) for kind in kinds}
            moved = {name: source for name, source in sources.items() if name != source}
            read = ", ".join(QKV[of].partition(".")[2] for of in order)
            yield ParameterError(
                tuple(moved), f"are in another order: {read} where query, key, value is meant", _from(moved)
            )


def _each(names: list[str], change: Callable[..., Array]) -> Made:
    return lambda given: {name: np.ascontiguousarray(change(given[name])) for name in names}


def _from(sources: Mapping[str, str]) -> Made:
    return lambda given: {name: given[source] for name, source in sources.items()}


def _reshaped(value: Array) -> Array:
    return value.T.reshape(value.shape)


def _reshaped_back(value: Array) -> Array:
    return value.reshape(value.shape[::-1]).T


def _interleaved(value: Array, H: int) -> Array:
    return value.reshape(*value.shape[:-1], H, -1).swapaxes(-1, -2).reshape(value.shape)


def _interleaved_back(value: Array, H: int) -> Array:
    return value.reshape(*value.shape[:-1], -1, H).swapaxes(-1, -2).reshape(value.shape)


def _uneven(value: Array, H: int) -> bool:
    return bool(value.shape[-1] % H)

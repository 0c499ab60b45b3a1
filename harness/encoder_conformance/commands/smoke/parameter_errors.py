"""Common errors of a parameter map: the effect of each on correct parameters, and its description."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from encoder_conformance.adapter.masks import Array
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.spec.layer import Layer

Transform = Callable[[Mapping[str, Array]], Tensors]
QKV = ("attention.query", "attention.key", "attention.value")
OUTPUT = "attention.output.weight"


@dataclass(frozen=True)
class ParameterError:
    """One error. `apply` gives the wrong parameters, `names`, from correct ones; `description` completes "NAME …"."""

    names: tuple[str, ...]
    description: str
    apply: Transform


def parameter_errors(parameters: Tensors, layer: Layer) -> Iterator[ParameterError]:
    """Every error that is possible with these parameters; errors of single parameters come first."""
    for name, value in parameters.items():
        yield ParameterError((name,), "is missing: it is as if it were zero", _transform_each([name], np.zeros_like))
        if name.endswith("gain"):
            yield ParameterError((name,), "is missing: it is as if it were one", _transform_each([name], np.ones_like))
        if value.ndim == 2:
            yield ParameterError((name,), "is transposed", _transform_each([name], np.transpose))
        if value.ndim == 2 and value.shape[0] != value.shape[1]:
            yield ParameterError(
                (name,), "was reshaped where it should be transposed", _transform_each([name], _reshaped)
            )
            yield ParameterError(
                (name,), "was reshaped where it should be transposed", _transform_each([name], _reshaped_back)
            )
    yield from _head_layout_errors(parameters, layer.attention.num_heads)
    yield from _exchange_errors(parameters)
    square = [name for name, value in parameters.items() if value.ndim == 2 and value.shape[0] == value.shape[1]]
    yield ParameterError(tuple(square), "are transposed, all of them", _transform_each(square, np.transpose))
    yield ParameterError(tuple(square[:3]), "are transposed, all of them", _transform_each(square[:3], np.transpose))
    biases = [name for name in parameters if name.endswith("bias")]
    yield ParameterError(
        tuple(biases), "are missing, all of them: it is as if they were zero", _transform_each(biases, np.zeros_like)
    )


def _head_layout_errors(parameters: Tensors, H: int) -> Iterator[ParameterError]:
    """Heads interleaved: features as i·H + h instead of h·d + i (E-5), and the inverse."""
    if H == 1 or any(name.startswith("attention.") and _uneven(parameters[name], H) for name in parameters):
        return
    description = "split into heads the other way (interleaved: feature i·H + h for head h, where h·d + i is meant)"
    for transform in (_interleaved, _interleaved_back):
        groups = [[f"{projection}.{kind}" for kind in ("weight", "bias")] for projection in QKV]
        for group in (*groups, [name for names in groups for name in names]):
            names = [name for name in group if name in parameters]
            verb = "are" if len(names) > 1 else "is"
            yield ParameterError(
                tuple(names),
                f"{verb} {description}",
                _transform_each(names, lambda value, transform=transform: transform(value, H)),
            )
            for name in names if len(group) == 2 else ():
                yield ParameterError(
                    (name,),
                    f"is {description}",
                    _transform_each([name], lambda value, transform=transform: transform(value, H)),
                )
        rows = _transform_each([OUTPUT], lambda value, transform=transform: transform(value.T, H).T)
        yield ParameterError((OUTPUT,), f"has its rows {description}", rows)


def _exchange_errors(parameters: Tensors) -> Iterator[ParameterError]:
    for one, value in parameters.items():
        for other in parameters:
            if one == other or parameters[other].shape != value.shape:
                continue
            yield ParameterError((one,), f"holds what belongs to {other}", _copy_from({one: other}))
            if one < other:
                yield ParameterError((one, other), "are swapped", _copy_from({one: other, other: one}))
    q, k, v = (f"{source}.weight" for source in QKV)
    if parameters[q].shape == parameters[k].shape == parameters[v].shape:
        kinds = [kind for kind in ("weight", "bias") if f"{QKV[0]}.{kind}" in parameters]
        for order in ((1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0)):
            sources = {
                f"{QKV[target]}.{kind}": f"{QKV[source]}.{kind}"
                for target, source in enumerate(order)
                for kind in kinds
            }
            moved = {name: source for name, source in sources.items() if name != source}
            order_text = ", ".join(QKV[source].partition(".")[2] for source in order)
            yield ParameterError(
                tuple(moved), f"are in another order: {order_text} where query, key, value is meant", _copy_from(moved)
            )


def _transform_each(names: list[str], change: Callable[..., Array]) -> Transform:
    return lambda given: {name: np.ascontiguousarray(change(given[name])) for name in names}


def _copy_from(sources: Mapping[str, str]) -> Transform:
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

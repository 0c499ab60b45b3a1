"""Common errors of a parameter map: the effect of each on correct parameters, and its description."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import Layer

QKV = ("attention.query", "attention.key", "attention.value")
OUTPUT = "attention.output.weight"


@dataclass(frozen=True)
class ParameterError:
    """One error. `apply` gives the wrong parameters, `names`, from correct ones; `description` completes "NAME …"."""

    names: tuple[str, ...]
    description: str
    apply: Callable[[Mapping[str, Array]], Tensors]


def parameter_errors(parameters: Tensors, layer: Layer) -> Iterator[ParameterError]:
    """Every error that is possible with these parameters; errors of single parameters come first."""
    for name, value in parameters.items():
        yield _changed([name], "is missing: it is as if it were zero", np.zeros_like)
        if name.endswith("gain"):
            yield _changed([name], "is missing: it is as if it were one", np.ones_like)
        if value.ndim == 2:
            yield _changed([name], "is transposed", np.transpose)
        if value.ndim == 2 and value.shape[0] != value.shape[1]:
            for reshaped in (_reshaped, _reshaped_back):
                yield _changed([name], "was reshaped where it should be transposed", reshaped)
    yield from _head_layout_errors(parameters, layer.attention.num_heads)
    yield from _exchange_errors(parameters)
    square = [name for name, value in parameters.items() if value.ndim == 2 and value.shape[0] == value.shape[1]]
    for names in (square, square[:3]):
        yield _changed(names, "are transposed, all of them", np.transpose)
    biases = [name for name in parameters if name.endswith("bias")]
    yield _changed(biases, "are missing, all of them: it is as if they were zero", np.zeros_like)


def _head_layout_errors(parameters: Tensors, H: int) -> Iterator[ParameterError]:
    """Heads interleaved: features as i·H + h instead of h·d + i (E-5), and the inverse."""
    if H == 1 or any(name.startswith("attention.") and parameters[name].shape[-1] % H for name in parameters):
        return
    description = "split into heads the other way (interleaved: feature i·H + h for head h, where h·d + i is meant)"
    for transform in (partial(_interleaved, H=H), partial(_interleaved_back, H=H)):
        groups = [[f"{projection}.{kind}" for kind in ("weight", "bias")] for projection in QKV]
        for group in (*groups, [name for names in groups for name in names]):
            names = [name for name in group if name in parameters]
            yield _changed(names, f"{'are' if len(names) > 1 else 'is'} {description}", transform)
            for name in names if len(group) == 2 else ():
                yield _changed([name], f"is {description}", transform)
        rows = partial(_of_rows, transform)
        yield _changed([OUTPUT], f"has its rows {description}", rows)


def _exchange_errors(parameters: Tensors) -> Iterator[ParameterError]:
    for one, value in parameters.items():
        for other in parameters:
            if one == other or parameters[other].shape != value.shape:
                continue
            yield _taken({one: other}, f"holds what belongs to {other}")
            if one < other:
                yield _taken({one: other, other: one}, "are swapped")
    q, k, v = (f"{source}.weight" for source in QKV)
    if parameters[q].shape == parameters[k].shape == parameters[v].shape:
        kinds = [kind for kind in ("weight", "bias") if f"{QKV[0]}.{kind}" in parameters]
        for order in ((1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2), (2, 1, 0)):
            moved = {
                f"{QKV[target]}.{kind}": f"{QKV[source]}.{kind}"
                for target, source in enumerate(order)
                for kind in kinds
                if target != source
            }
            order_text = ", ".join(QKV[source].partition(".")[2] for source in order)
            yield _taken(moved, f"are in another order: {order_text} where query, key, value is meant")


def _changed(names: Sequence[str], description: str, change: Callable[[Array], Array]) -> ParameterError:
    """The error that changes each of these parameters alike."""

    def apply(given: Mapping[str, Array]) -> Tensors:
        return {name: np.ascontiguousarray(change(given[name])) for name in names}

    return ParameterError(tuple(names), description, apply)


def _taken(sources: Mapping[str, str], description: str) -> ParameterError:
    """The error that gives each of these parameters the values of another: name → source."""
    return ParameterError(
        tuple(sources), description, lambda given: {name: given[source] for name, source in sources.items()}
    )


def _of_rows(transform: Callable[[Array], Array], value: Array) -> Array:
    return transform(value.T).T


def _reshaped(value: Array) -> Array:
    return value.T.reshape(value.shape)


def _reshaped_back(value: Array) -> Array:
    return value.reshape(value.shape[::-1]).T


def _interleaved(value: Array, H: int) -> Array:
    return value.reshape(*value.shape[:-1], H, -1).swapaxes(-1, -2).reshape(value.shape)


def _interleaved_back(value: Array, H: int) -> Array:
    return value.reshape(*value.shape[:-1], -1, H).swapaxes(-1, -2).reshape(value.shape)

"""The layers that stand in a graph of Keras one operation after the other: cut out, as a model of their own."""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from encoder_conformance.readers.module_target.parts import PartsOfTree, Tree
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE
from encoder_conformance.spec.axes import Array

NAME = "layers_in_graph"
"""The path of the model that is cut out."""
_NORM = "Normalization"
"""How the name of a norm's class ends, which may stand behind the last sum."""
_UNNAMED = "keras_tensor"
"""How the names begin that Keras gives to tensors."""
_IDS = (5, 3, 2)
"""Numbers of ids that are tried: a model may know few."""
_made: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


class PartsOfGraph(PartsOfTree):
    """Those that the structure shows; where it shows none, the one model that is cut out of the graph."""

    def __init__(self, tree: Tree, model: Any) -> None:
        super().__init__(tree, model)
        self._model = model

    def listed(self) -> list[str]:
        found = super().listed()
        return found or ([NAME] if layers_of_graph(self._model) is not None else [])


def layers_of_graph(model: Any) -> Any:
    """A functional model [batch, sequence, features] of what a functional model computes from where its graph first
    branches to its last sum, with the norms behind that; it has the layers of the model. None where nothing branches,
    or that is all of the model. Its inputs are `x`, and what else is needed, as masks are."""
    if model not in _made:
        _made[model] = _cut_out(model)
    return _made[model]


@dataclass(frozen=True)
class _Cut:
    """A tensor through which all that depends on features goes. `branched`: whether, since the one before, more than
    one was held at a time; `norm`: whether a norm gives it."""

    tensor: Any
    branched: bool
    norm: bool


def _cut_out(model: Any) -> Any:
    cuts = list(_cuts(_nodes(model), model.outputs))
    width = {at: each.tensor.shape[1:] for at, each in enumerate(cuts)}
    branching = [at for at in range(1, len(cuts)) if cuts[at].branched and width[at] == width[at - 1]]
    if not branching:
        return None
    first, last = branching[0] - 1, branching[-1]
    while last + 1 < len(cuts) and cuts[last + 1].norm and width[last + 1] == width[last]:
        last += 1
    start, end = cuts[first].tensor, cuts[last].tensor
    if any(start is each for each in model.inputs) and any(end is each for each in model.outputs):
        return None
    try:
        return _model(model, start, end)
    except ValueError:  # more of it depends on another input of features
        return None


def _model(model: Any, start: Any, end: Any) -> Any:
    """From the one tensor to the other, and from those of no features that are needed beside. Raises ValueError where
    it needs another one of features, too."""
    beside = _beside(_nodes(model), start, end)
    found = keras.Model([start, *beside], end, name="layers")
    kinds = _kinds(model, beside)
    named = [beside[kinds.index(kind)] for kind in sorted(set(kinds))]
    if len(named) < len(beside):  # a mask that each layer makes anew
        inputs = [keras.Input(batch_shape=each.shape, dtype=each.dtype) for each in (start, *named)]
        found = keras.Model(inputs, found([inputs[0], *(inputs[1 + kind] for kind in kinds)]), name="layers")
    for each, own in zip(found.inputs, ["x", *_names(named)], strict=True):
        each.name = own
    return found


def _kinds(model: Any, beside: Sequence[Any]) -> list[int]:
    """The number of each of these, which those share that have the same values, whatever the model is given. Raises
    ValueError where these cannot be had."""
    if len(beside) < 2:
        return [*range(len(beside))]
    values = _values(model, beside)
    return _numbered([next(i for i, other in enumerate(values) if np.array_equal(other, value)) for value in values])


def _values(model: Any, tensors: Sequence[Any]) -> list[Array]:
    """Some values of these, for ids as large as the model takes. Raises ValueError where it takes none."""
    wanted, draw = keras.Model(model.inputs, list(tensors)), np.random.default_rng(0)
    shapes = [[BATCH if at == 0 else size or SEQUENCE for at, size in enumerate(each.shape)] for each in model.inputs]
    for most in _IDS:
        fed = [
            draw.integers(0, most, shape).astype(each.dtype) for shape, each in zip(shapes, model.inputs, strict=True)
        ]
        with suppress(Exception):  # whatever a table that is too short for an id raises
            return [np.asarray(keras.ops.convert_to_numpy(each)) for each in wanted(fed)]
    raise ValueError("its masks cannot be computed of ids")


def _numbered(firsts: Sequence[int]) -> list[int]:
    order = sorted(set(firsts))
    return [order.index(first) for first in firsts]


def _names(beside: Sequence[Any]) -> list[str]:
    """The names that their owner gave them; what has none is taken for a mask."""
    unnamed = sum(each.name.startswith(_UNNAMED) for each in beside)
    masks = iter(["mask"] if unnamed == 1 else [f"mask_{number}" for number in range(unnamed)])
    return [next(masks) if each.name.startswith(_UNNAMED) else each.name for each in beside]


def _nodes(model: Any) -> list[Any]:
    """In an order in which they can be computed."""
    by_depth = getattr(model, "_nodes_by_depth", {})  # which a Sequential one has not, that branches nowhere
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]


def _beside(nodes: Sequence[Any], start: Any, end: Any) -> list[Any]:
    """What the operations between the two take that is not computed between them."""
    makers = {id(tensor): node for node in nodes for tensor in node.output_tensors}
    of_features = _of_features(nodes)
    found: dict[int, Any] = {}
    seen, left = {id(start)}, [end]
    while left:
        tensor = left.pop()
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        if id(tensor) not in of_features:
            found[id(tensor)] = tensor
        else:
            left += makers[id(tensor)].input_tensors
    return list(found.values())


def _cuts(nodes: Sequence[Any], outputs: Sequence[Any]) -> Iterator[_Cut]:
    """In the order of the graph. `nodes`: in the order in which they can be computed."""
    of_features = _of_features(nodes)
    last_use = {id(tensor): at for at, node in enumerate(nodes) for tensor in node.input_tensors}
    last_use |= {id(tensor): len(nodes) for tensor in outputs}
    held: dict[int, Any] = {}
    branched = False
    for at, node in enumerate(nodes):
        held |= {id(tensor): tensor for tensor in node.output_tensors if id(tensor) in of_features}
        held = {key: tensor for key, tensor in held.items() if last_use.get(key, -1) > at}
        if len(held) == 1 and _has_features(tensor := next(iter(held.values()))):
            if not held.keys() & {id(each) for each in node.output_tensors}:
                continue  # an input of the model, which stands aside
            yield _Cut(tensor, branched, type(node.operation).__name__.endswith(_NORM))
            branched = False
        elif len(held) > 1:
            branched = True


def _has_features(tensor: Any) -> bool:
    """Whether it is [batch, sequence, features] of floating-point numbers."""
    return len(tensor.shape) == 3 and "float" in str(tensor.dtype) and tensor.shape[-1] is not None


def _of_features(nodes: Sequence[Any]) -> set[int]:
    """The tensors that have features, or are computed of one that has."""
    found: set[int] = set()
    for node in nodes:
        computed = any(id(tensor) in found for tensor in node.input_tensors)
        found |= {id(tensor) for tensor in node.output_tensors if computed or _has_features(tensor)}
    return found

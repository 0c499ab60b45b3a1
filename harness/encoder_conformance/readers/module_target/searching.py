"""Finds the map of a module whose graph is no layer's: candidates by shapes and names, tried with each deviation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, product

import numpy as np

from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.catalogue import is_noisy, seen_in_evaluation
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.protocol.description import MapSearch
from encoder_conformance.readers.module_target.mapping import ElementMap, OwnParameters
from encoder_conformance.readers.module_target.naming import names_by_number, score
from encoder_conformance.readers.module_target.proving import Bench, parameters_for, shapes_of
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.parameters import without_prefix

Elements = dict[str, Array]
_QKV = ("attention.query", "attention.key", "attention.value")
_CANDIDATES = 192
_MATCH = {"float64": 1e-9, "float32": 3e-5}
"""The relative distance of an output from the oracle's that is a match: roundoff, and nothing else."""


@dataclass(frozen=True)
class SearchedMap:
    """The best map, which lacks the parameters in `absent`."""

    map: ElementMap
    absent: tuple[str, ...]
    search: MapSearch


def search_map(bench: Bench, stated: Layer, own: OwnParameters) -> SearchedMap | None:
    """None if the module's parameters cannot be those of the stated layer, by number and shape."""
    shapes = shapes_of(stated)
    maps = list(islice(_candidates_of_stack(own, shapes), _CANDIDATES))
    if not maps:
        return None
    absent = tuple(name for name in shapes if name not in maps[0])
    parameters = parameters_for(stated, absent)
    case = Case(stated, load().situations["no-mask"], held=CaseParameters.of(parameters))
    outputs = [_output(bench, ElementMap(own, each), case, parameters) for each in maps]
    best: tuple[float, int, str] = (np.inf, 0, "")
    predictions = _predictions(case)
    for deviation, predicted in predictions.items():
        scale = float(np.linalg.norm(predicted - predicted.mean()))
        for number, observed in enumerate(outputs):
            if observed is not None and (distance := float(np.linalg.norm(observed - predicted)) / scale) < best[0]:
                best = distance, number, deviation
        if deviation == "" and best[0] <= _MATCH[bench.dtype]:
            break
    distance, number, deviation = best
    matches = distance <= _MATCH[bench.dtype]
    chosen = number if matches else 0
    search = MapSearch(
        deviation=deviation if matches else None, distance=distance, maps=len(maps), deviations=len(predictions)
    )
    return SearchedMap(ElementMap(own, maps[chosen]), absent, search)


def _predictions(case: Case) -> dict[str, Array]:
    """Predicts the output by deviation, "" for none: by those that change this case, and are no matter of chance."""
    found = {"": simulate(case, [])["output"]}
    for name, deviation in seen_in_evaluation().items():
        if changes(case, deviation) and not is_noisy(deviation):
            output = simulate(case, [deviation])["output"]
            if output.shape == found[""].shape and np.isfinite(output).all():
                found[name] = output
    return found


def _output(bench: Bench, map: ElementMap, case: Case, parameters: Mapping[str, Array]) -> Array | None:
    try:
        map.load(bench.module, parameters)
        return bench.output(case.x()).astype(np.float64)
    except ExecutionError:
        return None


def _candidates_of_stack(own: OwnParameters, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Elements]:
    """Maps of a layer; or of the layers of a stack, of each alike, and of its final norm."""
    by_layer: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        prefix, bare = without_prefix(name)
        by_layer.setdefault(prefix, {})[bare] = shape
    others = by_layer.pop("", {})
    if not by_layer:
        yield from _candidates(own, others, list(own.shapes))
        return
    numbered = names_by_number(own.shapes)
    if len(numbered) != len(by_layer):
        return
    taken = {name for names in numbered for name in names}
    plain = [(name, own.elements(name).reshape(-1)) for name in own.shapes if name not in taken]
    rest = _assigned(plain, others)
    if rest is None:
        return
    layers = [_candidates(own, held, names) for held, names in zip(by_layer.values(), numbered, strict=True)]
    for together in zip(*layers, strict=False):
        found = {name: at for name, (_, at) in rest.items()}
        for prefix, elements in zip(by_layer, together, strict=True):
            found |= {f"{prefix}{name}": at for name, at in elements.items()}
        yield found


def _candidates(own: OwnParameters, shapes: Mapping[str, tuple[int, ...]], names: Sequence[str]) -> Iterator[Elements]:
    """Maps of one layer to own parameters of these names by shape, the one that the names speak for first."""
    pieces = _pieces(own, shapes, names)
    base = _assigned(pieces, shapes)
    if base is None:
        return
    weights = [part for part in (*_QKV, "attention.output") if f"{part}.weight" in base]
    seen: set[bytes] = set()
    for order, norms, turned in product(_orders(weights), (False, True), (False, True)):
        elements = {name: at for name, (_, at) in base.items()}
        for kind in ("weight", "bias"):
            for to, source in zip(weights, order, strict=True):
                if f"{to}.{kind}" in base and f"{source}.{kind}" in base:
                    elements[f"{to}.{kind}"] = base[f"{source}.{kind}"][1]
        if norms:
            for kind in ("gain", "shift"):
                one, two = f"norm1.{kind}", f"norm2.{kind}"
                if one in base and two in base:
                    elements[one], elements[two] = base[two][1], base[one][1]
        if turned:
            elements = {n: at.T if at.ndim == 2 and at.shape[0] == at.shape[1] else at for n, at in elements.items()}
        key = b"".join(elements[name].tobytes() for name in sorted(elements))
        if key not in seen:
            seen.add(key)
            yield elements


def _orders(weights: Sequence[str]) -> list[tuple[str, ...]]:
    """The ways to give the parts' elements to one another, those that exchange few first."""
    return sorted(permutations(weights), key=lambda order: sum(a != b for a, b in zip(order, weights, strict=True)))


def _pieces(own: OwnParameters, shapes: Mapping[str, tuple[int, ...]], names: Sequence[str]) -> list[tuple[str, Array]]:
    """Name → elements in a form that a parameter may have: matrices [in, out], fused ones cut in three."""
    found: list[tuple[str, Array]] = []
    square = shapes["attention.query.weight"]
    for name in names:
        shape, at = own.shapes[name], own.elements(name)
        if len(shape) == 2:
            found += _matrices(name, at, square)
            if at.size == square[1]:  # a bias of each head
                found.append((name, at.reshape(-1)))
        elif len(shape) == 3:
            flat = (at.reshape(shape[0], -1), at.reshape(-1, shape[2]), at.transpose(1, 0, 2).reshape(shape[1], -1))
            found += [(name, each) for each in flat]
        elif len(shape) == 1 and shape[0] == 3 * square[1]:
            found += [(f"{name}.{word}", part) for word, part in zip("qkv", np.split(at, 3), strict=True)]
        else:
            found.append((name, at.reshape(-1)))
    return found


def _matrices(name: str, at: Array, square: tuple[int, ...]) -> list[tuple[str, Array]]:
    D, P = square
    if at.shape == (3 * P, D):
        return [(f"{name}.{word}", part.T) for word, part in zip("qkv", np.split(at, 3, axis=0), strict=True)]
    if at.shape == (D, 3 * P):
        return [(f"{name}.{word}", part) for word, part in zip("qkv", np.split(at, 3, axis=1), strict=True)]
    forms = [(name, at), (name, at.T)]
    return forms if name.endswith("kernel") else forms[::-1]  # a kernel is [in, out], and torch's weights are [out, in]


def _assigned(
    pieces: list[tuple[str, Array]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[str, Array]] | None:
    """A piece for each parameter, the best names first; None if a weight or a norm's gain has none.

    Weights and gains come before biases and shifts, which are looked for beside them.
    """
    found: dict[str, tuple[str, Array]] = {}
    biases = {name for name in shapes if name.endswith((".bias", ".shift"))}
    for names in (set(shapes) - biases, biases):
        _assign(pieces, {name: shape for name, shape in shapes.items() if name in names}, found)
    missing = set(shapes) - set(found)
    if missing - biases:
        return None
    return {name: found[name] for name in shapes if name in found}


def _assign(
    pieces: list[tuple[str, Array]], shapes: Mapping[str, tuple[int, ...]], found: dict[str, tuple[str, Array]]
) -> None:
    """Adds the pieces of these parameters to those `found`."""
    widths = {_module(label): at.size for label, at in pieces if label.rpartition(".")[2] == "bias"}
    beside = {_part(name): _module(label) for name, (label, _) in found.items()}
    pairs = []
    for order, (name, shape) in enumerate(shapes.items()):
        for number, (label, at) in enumerate(pieces):
            if at.shape == shape:
                companion = _module(label) == beside.get(_part(name))
                turned = at.ndim == 2 and widths.get(_module(label), shape[1]) != shape[1]
                pairs.append((score(label, name) + 2 * companion - turned, -order, name, number))
    taken = {label for label, _ in found.values()}
    for _, _, name, number in sorted(pairs, key=lambda pair: (-pair[0], -pair[1], pair[3])):
        label, at = pieces[number]
        if name not in found and label not in taken:
            found[name] = label, at
            taken.add(label)


def _module(label: str) -> str:
    return label.rpartition(".")[0]


def _part(name: str) -> str:
    return name.rpartition(".")[0]

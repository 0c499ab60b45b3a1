"""Finds the map of a module whose graph is no layer's: candidates by shapes and names, tried with each deviation."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, permutations, product

import numpy as np

from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.catalogue import is_noisy, seen_in_evaluation
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.protocol.module_description import MapSearch
from encoder_conformance.readers.module_target.mapping import ElementMap, OwnParameters
from encoder_conformance.readers.module_target.naming import names_by_number, score
from encoder_conformance.readers.module_target.proving import Bench, parameters_for, shapes_of
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.parameters import without_prefix

Elements = dict[str, Array]
_QKV = ("attention.query", "attention.key", "attention.value")
_OTHER_NORM = {"norm1": "norm2", "norm2": "norm1"}
_ZEROS = (".bias", ".shift", ".vector")
"""Ends of the names of what adds nothing where it is absent."""
_CANDIDATES = 192
MATCH = {"float64": 1e-9, "float32": 3e-5}
"""The relative distance of an output from the oracle's that is a match: roundoff, and nothing else."""
_NEAR, _APART = 2e-3, 100.0
"""One that an epsilon, or another form of an activation, makes; and how many times as far any other map has to be."""
_ALIKE = 3.0
"""How many times as far as the nearest one is as near, where a module has other numbers."""


@dataclass
class _Tried:
    """One layer that the module may be, with each map that fits: its case, and what the module gave with each."""

    layer: Layer
    case: Case
    maps: list[Elements]
    outputs: list[Array | None]

    def nearest(self, predicted: Array) -> tuple[float, int, float]:
        """The relative distance of the nearest output, its number, and the distance of the next one."""
        scale = float(np.linalg.norm(predicted - predicted.mean()))
        far = np.full_like(predicted, np.inf)
        distances = (np.linalg.norm((far if each is None else each) - predicted) / scale for each in self.outputs)
        found = sorted(
            (float(np.nan_to_num(distance, nan=np.inf)), number) for number, distance in enumerate(distances)
        )
        (distance, number), *others = found
        return distance, number, others[0][0] if others else np.inf

    @property
    def absent(self) -> tuple[str, ...]:
        return tuple(name for name in shapes_of(self.layer) if name not in self.maps[0])


@dataclass(frozen=True)
class FoundMap:
    """The layer that the module was found to be like, the best map, what it lacks, and how it was found."""

    layer: Layer
    map: ElementMap
    absent: tuple[str, ...]
    search: MapSearch


def search_map(bench: Bench, alternatives: Sequence[Layer], read: ElementMap | None = None) -> FoundMap | None:
    """Tries the maps that fit each of the alternatives, the likeliest first, and those of the first with deviations.

    `read`: the map of a layer that was read off the graph, and is not quite what the module computes.

    None if the module's parameters can be those of none, by number and shape.
    """
    own, matches = OwnParameters(bench.module.shapes), MATCH[bench.dtype]
    tried = list(_tried(bench, own, alternatives, read))
    if not tried:
        return None
    chosen, predictions, near = tried[0], dict[str, Array](), False
    for each in tried:
        distance, number, _ = each.nearest(simulate(each.case, [])["output"])
        if distance <= matches:
            chosen, deviation = each, ""
            break
    else:
        predictions = _predictions(chosen.case)
        nearest = [(*chosen.nearest(predicted), name) for name, predicted in predictions.items()]
        alike = _ALIKE * min(each[0] for each in nearest)
        # What a map with query and key exchanged gives, and a deviation that swaps them, is the map of their names with
        # other numbers: of those that come as near the one that the names speak for first.
        likeliest = min(
            (each for each in nearest if each[0] <= alike), key=lambda each: (each[1], each[3] != "", each[0])
        )
        distance, number, others, deviation = likeliest
        near = matches < distance <= _NEAR and others >= _APART * distance
    found = distance <= matches or near
    search = MapSearch(
        deviation=deviation if found else None,
        distance=distance,
        near=near,
        maps=len(chosen.maps),
        deviations=len(predictions),
        head_counts=len(tried),
    )
    return FoundMap(chosen.layer, ElementMap(own, chosen.maps[number if found else 0]), chosen.absent, search)


def _tried(
    bench: Bench, own: OwnParameters, alternatives: Sequence[Layer], read: ElementMap | None
) -> Iterator[_Tried]:
    """Those of the alternatives that a map fits. What the module gives is asked once for all with the same shapes."""
    asked: dict[str, tuple[list[Elements], list[Array | None]]] = {}
    for layer in alternatives:
        shapes = shapes_of(layer)
        key = repr((shapes, _heads_apart(own, layer)))
        maps = [*_maps(bench, own, layer, read)] if key not in asked else asked[key][0]
        parameters = parameters_for(layer, tuple(name for name in shapes if maps and name not in maps[0]))
        if maps and (first := ElementMap(own, maps[0])).shared():
            parameters = first.made_one(parameters)
        unmasked = load().situations["causal" if bench.always_causal or bench.semantics.causal else "no-mask"]
        case = Case(layer, unmasked, held=CaseParameters.of(parameters))
        if key not in asked:
            asked[key] = maps, [_output(bench, ElementMap(own, each), case, parameters) for each in maps]
        if maps:
            yield _Tried(layer, case, *asked[key])


def _maps(bench: Bench, own: OwnParameters, layer: Layer, read: ElementMap | None) -> Iterator[Elements]:
    """Maps that leave the same parameters out: that of the graph, where it fits, and those by names and shapes."""
    by_names = islice(candidate_maps(own, layer, bench.module.heard), _CANDIDATES)
    first: Elements | None = None
    for each in chain(_of_graph(read, shapes_of(layer)), by_names):
        first = each if first is None else first
        if each.keys() == first.keys():
            yield each


def _of_graph(read: ElementMap | None, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Elements]:
    """The map that was read, where it has these parameters, but for biases that one of both lacks, which are 0 where
    there are none: it tells heads that are packed otherwise, which way a square matrix lies, and which bias a name that
    says nothing is."""
    if read is None:
        return
    found = {name: at for name, at in read.elements.items() if name in shapes}
    others = [name for name in (*shapes, *read.elements) if name not in found]
    known = {name: at.shape for name, at in found.items()}
    if all(name.endswith(_ZEROS) for name in others) and known == {name: shapes[name] for name in found}:
        yield found


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
    """What it gives where no mask is given, which is causal where it is so by itself."""
    x = bench.semantics.laid_out(case.x().astype(FORMATS[bench.dtype].numpy))
    try:
        map.load(bench.module, parameters)
        return bench.semantics.batch_first(bench.module.run({"x": x})["output"]).astype(np.float64)
    except ExecutionError:
        return None


def candidate_maps(own: OwnParameters, layer: Layer, heard: Mapping[str, str] | None = None) -> Iterator[Elements]:
    """Maps of a layer; or of the layers of a stack, of each alike, and of its final norm. `heard`: own parameter → the
    name by which it is known where its own says nothing, as Keras' dense_3."""
    shapes = shapes_of(layer)
    by_layer: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in shapes.items():
        prefix, bare = without_prefix(name)
        by_layer.setdefault(prefix, {})[bare] = shape
    others = by_layer.pop("", {})
    heads = layer.attention.num_heads
    if not by_layer:
        yield from _candidates(own, others, _named(own.shapes, heard), heads)
        return
    numbered = names_by_number(own.shapes)
    if len(numbered) != len(by_layer):
        return
    taken = {name for names in numbered for name in names}
    plain = [(name, own.elements(name).reshape(-1)) for name in own.shapes if name not in taken]
    rest = _assigned(plain, others)
    if rest is None:
        return
    layers = [
        _candidates(own, held, _named(names, heard), heads)
        for held, names in zip(by_layer.values(), numbered, strict=True)
    ]
    for together in zip(*layers, strict=False):
        found = {name: at for name, (_, at) in rest.items()}
        for prefix, elements in zip(by_layer, together, strict=True):
            found |= {f"{prefix}{name}": at for name, at in elements.items()}
        yield found


def _named(names: Iterable[str], heard: Mapping[str, str] | None) -> dict[str, str]:
    """Own parameter → the name by which it is known, and no other is, as those of maps in a sequence are by its own."""
    known = {name: (heard or {}).get(name, name) for name in names}
    alike = Counter(known.values())
    return {name: other if alike[other] == 1 else name for name, other in known.items()}


def _candidates(
    own: OwnParameters, shapes: Mapping[str, tuple[int, ...]], names: Mapping[str, str], heads: int
) -> Iterator[Elements]:
    """Maps of one layer to own parameters of these names by shape, the one that the names speak for first. Query, key
    and value that are fused lie one behind the other, or each head's three do."""
    seen: set[bytes] = set()
    for blocks in dict.fromkeys((1, heads)):
        if (base := _assigned(_pieces(own, shapes, names, blocks), shapes)) is not None:
            yield from _exchanged(base, seen)


def _exchanged(base: Mapping[str, tuple[str, Array]], seen: set[bytes]) -> Iterator[Elements]:
    """The map, and those with parts exchanged, or square matrices turned, that are not `seen` yet."""
    weights = [part for part in (*_QKV, "attention.output") if f"{part}.weight" in base]
    for order, norms, turned in product(_orders(weights), (False, True), (False, True)):
        sources = dict(zip(weights, order, strict=True)) | (_OTHER_NORM if norms else {})
        elements = {}
        for name, piece in base.items():
            part, _, kind = name.rpartition(".")
            _, at = base.get(f"{sources.get(part, part)}.{kind}", piece)
            elements[name] = at.T if turned and at.ndim == 2 and at.shape[0] == at.shape[1] else at
        fits = all(at.shape == base[name][1].shape for name, at in elements.items())  # keys may be fewer than queries
        key = b"".join(elements[name].tobytes() for name in sorted(elements))
        if fits and key not in seen:
            seen.add(key)
            yield elements


def _orders(weights: Sequence[str]) -> list[tuple[str, ...]]:
    """The ways to give the parts' elements to one another, those that exchange few first."""
    return sorted(permutations(weights), key=lambda order: sum(a != b for a, b in zip(order, weights, strict=True)))


def _pieces(
    own: OwnParameters, shapes: Mapping[str, tuple[int, ...]], names: Mapping[str, str], blocks: int
) -> list[tuple[str, Array]]:
    """Name → elements in a form that a parameter may have: matrices [in, out], fused ones cut in three, in each of so
    many blocks."""
    found: list[tuple[str, Array]] = []
    D, P = shapes["attention.query.weight"]
    for name, known in names.items():
        shape, at = own.shapes[name], own.elements(name)
        if shape in _shapes_fused(D, P):
            axis = shape.index(3 * P)
            cut = np.moveaxis(at, axis, 0).reshape(blocks, 3, P // blocks, *shape[:axis], *shape[axis + 1 :])
            apart = (np.moveaxis(each.reshape(P, *each.shape[2:]), 0, axis) for each in np.moveaxis(cut, 1, 0))
            parts = zip("qkv", apart, strict=True)
            found += [(f"{known}.{word}", part if axis else part.T) for word, part in parts]
        elif len(shape) == 2:
            forms = [at, at.T] if name.endswith("kernel") else [at.T, at]  # [in, out]; torch's weights are [out, in]
            found += [(known, form) for form in forms]
            if at.size == P:  # a bias of each head
                found.append((known, at.reshape(-1)))
        elif len(shape) == 3:
            flat = (at.reshape(shape[0], -1), at.reshape(-1, shape[2]), at.transpose(1, 0, 2).reshape(shape[1], -1))
            found += [(known, each) for each in flat]
        else:
            found.append((known, at.reshape(-1)))
    return found


def _heads_apart(own: OwnParameters, layer: Layer) -> int | None:
    """The number of heads where maps go by it: of fused parameters each head's three may lie together."""
    D, P = next(shape for name, shape in shapes_of(layer).items() if name.endswith("attention.query.weight"))
    fused = not {*own.shapes.values()}.isdisjoint(_shapes_fused(D, P))
    return layer.attention.num_heads if fused else None


def _shapes_fused(D: int, P: int) -> tuple[tuple[int, ...], ...]:
    return (3 * P, D), (D, 3 * P), (3 * P,)


def _assigned(
    pieces: list[tuple[str, Array]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[str, Array]] | None:
    """A piece for each parameter, the best names first; None if a weight or a norm's gain has none.

    Weights and gains come before biases and shifts, which are looked for beside them.
    """
    found: dict[str, tuple[str, Array]] = {}
    taken: set[str] = set()
    widths = {_part(label): at.size for label, at in pieces if label.rpartition(".")[2] == "bias"}
    biases = [name for name in shapes if name.endswith(_ZEROS)]
    for names in ([name for name in shapes if name not in biases], biases):
        beside = {_part(name): _part(label) for name, (label, _) in found.items()}
        pairs = []
        for name in names:
            for label, at in pieces:
                if at.shape == shapes[name]:
                    companion = _part(label) == beside.get(_part(name))
                    turned = at.ndim == 2 and widths.get(_part(label), at.shape[1]) != at.shape[1]
                    pairs.append((score(label, name) + 2 * companion - turned, name, label, at))
        for _, name, label, at in sorted(pairs, key=lambda pair: -pair[0]):
            if name not in found and label not in taken:
                found[name] = label, at
                taken.add(label)
    if any(name not in found and name not in biases for name in shapes):
        return None
    return {name: found[name] for name in shapes if name in found}


def _part(name: str) -> str:
    """The name without its last word: the module of an own parameter, the step of one of the specification."""
    return name.rpartition(".")[0]

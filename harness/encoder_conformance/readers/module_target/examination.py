"""Examines one module: how it is called, what layer it is, which parameter is which; and whether that is proved."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.protocol.description import LiveProof, MapSearch
from encoder_conformance.readers.module_target.biases import settled
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.exporting import Exported, export_and_infer
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.frameworks import ModuleFramework, framework_of
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.locating import Place, locate
from encoder_conformance.readers.module_target.mapping import ElementMap
from encoder_conformance.readers.module_target.masking import causal_with_open_masks
from encoder_conformance.readers.module_target.naming import best_named, score
from encoder_conformance.readers.module_target.offering import OfferedArguments, offered
from encoder_conformance.readers.module_target.probing import live_semantics
from encoder_conformance.readers.module_target.proving import Bench, parameters_for, prove, shapes_of
from encoder_conformance.readers.module_target.searching import search_map
from encoder_conformance.readers.module_target.sizes import with_sizes_of
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.layer import Layer

_WIDE: tuple[DtypeName, ...] = ("float64", "float32")


@dataclass
class Examination:
    """The findings on a module. `layer`: what it is, read off it; None where it is no layer that is known."""

    framework: ModuleFramework
    module: LiveModule
    """In float32, with its own parameters."""
    semantics: InputSemantics
    exported: Exported
    layer: Layer | None = None
    map: ElementMap | None = None
    offered: OfferedArguments | None = None
    """None before they were."""
    absent: tuple[str, ...] = ()
    always_causal: bool = False
    dtypes: tuple[DtypeName, ...] = ("float32",)
    """What it is read and proved in, the widest first."""
    taken: tuple[DtypeName, ...] = ()
    """Those of the formats asked for in which it computes."""
    proof: LiveProof | None = None
    searched: MapSearch | None = None
    stages: dict[str, Place] = field(default_factory=dict)
    stated: Layer | None = None
    own_values: dict[str, Array] = field(default_factory=dict)
    narrow_inside: bool = False
    """Whether it is right in float32, and in float64 no more exact: something in it is cast."""
    padded_item_is_nan: bool = False
    tied: tuple[tuple[str, str], ...] = ()
    read_twice: tuple[tuple[str, str, str], ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def versions(self) -> dict[str, str]:
        """The versions of the framework's distributions that are here."""
        found = {}
        for name in (*self.framework.packages, "numpy", "onnx"):
            with suppress(PackageNotFoundError):
                found[name] = version(name)
        return found

    def bench(self, dtype: DtypeName) -> Bench:
        """A copy of the module in this dtype."""
        return Bench(self.module.in_dtype(dtype), self.semantics, dtype, self.always_causal)


def examine(
    given: object, stated: Layer | None = None, *, resize: bool = False, dtypes: tuple[DtypeName, ...] = ()
) -> Examination:
    """`given`, a module, stays as it is: all is done with copies of it. Raises BadTarget if it cannot be called at all.

    `stated`: what it should be; with `resize` at the module's own sizes. `dtypes`: the formats that it is to be asked
    in; none: float64 and float32.
    """
    framework = framework_of(given)
    if framework is None:
        raise BadTarget(f"{type(given).__name__} is a module of no framework that is known")
    with framework.undisturbed():
        found = _examined(framework, given, stated, resize)
        narrow = [dtype for dtype in dtypes if dtype not in _WIDE and _runs_in(found, dtype)]
        wide = [dtype for dtype in found.dtypes if dtype in (dtypes or _WIDE)]
        found.taken = (*wide, *narrow)
        return found


def _examined(framework: ModuleFramework, given: object, stated: Layer | None, resize: bool) -> Examination:
    module = framework.live(given)
    semantics = live_semantics(module)
    exported = export_and_infer(module, semantics)
    examination = Examination(framework, module, semantics, exported, notes=framework.notes(given))
    if exported.layer is not None and exported.map is not None and not exported.unplaced:
        map, examination.tied, examination.read_twice = _separated(exported.map)
        found = settled(map, exported.layer.with_decimal_epsilon, exported.absent, stated)
        examination.layer, examination.map = found.layer, found.map
        examination.absent, examination.unread = found.absent, found.unread
        examination.exported = replace(exported, facts=found.facts(exported.facts))
    if stated is not None:
        sized = with_sizes_of(module, stated, semantics.d_model, examination.layer) if resize else stated
        stated = examination.stated = sized.with_decimal_epsilon
    known = examination.layer or stated
    heads = known.attention.num_heads if known else 1
    examination.offered = offered(module, semantics, heads)
    examination.semantics = examination.offered.semantics
    examination.always_causal = causal_with_open_masks(module, examination.semantics)
    examination.dtypes = _WIDE if _runs_in(examination, "float64") else ("float32",)
    examination.padded_item_is_nan = _padded_item_is_nan(examination, heads)
    _choose_map(examination, stated)
    return examination


def _padded_item_is_nan(examination: Examination, num_heads: int) -> bool:
    """Whether an item that is padding alone comes out as NaN; False where no mask can say that it is."""
    semantics = examination.semantics
    padding = np.ones((semantics.B, 1, 1, semantics.S), np.bool_)
    padding[0] = False
    x = np.random.default_rng(0).normal(size=(semantics.B, semantics.S, semantics.d_model)).astype(np.float32)
    try:
        masks = Masks(padding, None, sequence=semantics.S)
        feeds = module_feeds(semantics, x, masks, num_heads, always_causal=examination.always_causal)
        output = examination.module.run(feeds)["output"]
    except (ExecutionError, NotImplementedError):
        return False
    return bool(np.isnan(semantics.batch_first(output)[0]).any())


def _choose_map(examination: Examination, stated: Layer | None) -> None:
    """Proves the map that was read, or searches one for the stated layer; then finds stages and own values."""
    layer = examination.layer
    if layer is not None and examination.map is not None:
        _prove(examination, examination.map, layer)
    bench = examination.bench(examination.dtypes[0])
    if stated is not None and not _fits(examination, stated):
        found = search_map(bench, stated)
        if found is not None:
            examination.map, examination.absent, examination.searched = found
    if examination.map is None:
        return
    examination.own_values = examination.map.held(examination.module.flat())
    judged_as = layer if examination.searched is None and layer is not None else stated
    if judged_as is not None:
        parameters = parameters_for(judged_as, examination.absent)
        examination.map.load(bench.module, parameters)
        examination.stages = locate(bench, judged_as, parameters)


def _prove(examination: Examination, map: ElementMap, layer: Layer) -> None:
    """Proves in float64 if it computes in that, else in float32: a step that is cast to float32 is as exact as that."""
    widest, *narrower = examination.dtypes
    examination.proof = prove(examination.bench(widest), map, layer, examination.absent)
    if narrower and not examination.proof.holds:
        narrow = prove(examination.bench("float32"), map, layer, examination.absent)
        if narrow.holds:
            examination.proof, examination.dtypes, examination.narrow_inside = narrow, ("float32",), True


def _fits(examination: Examination, stated: Layer) -> bool:
    """Whether the map that was read has the stated layer's parameters, but for those that do nothing."""
    if examination.map is None:
        return False
    have = {name: elements.shape for name, elements in examination.map.elements.items()}
    return have == {name: shape for name, shape in shapes_of(stated).items() if name not in examination.absent}


def _separated(map: ElementMap) -> tuple[ElementMap, tuple[tuple[str, str], ...], tuple[tuple[str, str, str], ...]]:
    """Gives each place the parameter of its name, where the graph reads one in two places, and another nowhere; of a
    fused one that is read in part, the second place gets the rest. Two names of one tensor stay one: they are tied.

    Returns the map, the pairs that are tied, and what was read twice.
    """
    tied, read_twice = [], []
    for first, second in map.shared():
        source, shape = map.source(first)[0], map.elements[second].shape
        other = best_named((name for name in map.unused() if map.own.shapes[name] in (shape, shape[::-1])), second)
        moved = second
        if other is not None:
            moved = second if score(source, first) >= score(source, second) else first
            turned = map.own.elements(other)
            like = map.elements[moved] - map.elements[moved].min() + turned.min()
            found = like if np.array_equal(np.sort(like.reshape(-1)), np.sort(turned.reshape(-1))) else turned
        else:
            rest, other = map.rest_of(second), f"the rest of {source}"
            if rest is None:
                tied.append((first, second))
                continue
            found = rest
        map = replace(map, elements={**map.elements, moved: found.reshape(map.elements[moved].shape)})
        read_twice.append((source, moved, other))
    return map, tuple(tied), tuple(read_twice)


def _runs_in(examination: Examination, dtype: DtypeName) -> bool:
    """Whether its output is in the format of its input and its parameters."""
    try:
        bench = examination.bench(dtype)
        return bool(bench.output(bench.x()).dtype == FORMATS[dtype].numpy)
    except (ExecutionError, RuntimeError):
        return False

"""Reads a layer off a module's exported graph. Its parameters are marked: no two elements of them are equal, so that
each number in the graph tells where it comes from, whatever the exporter did to names and shapes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import onnx

from encoder_conformance.protocol.description import Fact
from encoder_conformance.protocol.findings import Finding, noted
from encoder_conformance.protocol.module_description import read_for
from encoder_conformance.readers.module_target.errors import last_frames
from encoder_conformance.readers.module_target.export_notes import kept_notes
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.mapping import ElementMap, OwnParameters
from encoder_conformance.readers.module_target.source_lines import GraphProblem, SourceLines
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.layer.inference import InferredLayer, infer_layer
from encoder_conformance.readers.onnx_file.layer.parameters import TABLE
from encoder_conformance.readers.onnx_file.layer.walk import PROJECTED
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.readers.onnx_file.tracing.unsupported import NO_LAYER
from encoder_conformance.spec.axes import RH, Array, Elementwise, P
from encoder_conformance.spec.dtypes import DtypeName, narrower
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import without_prefix

_MARK_SIZE = 0.125
_EVENLY_SPACED = 1 << 24
"""The most marks that lie evenly between the largest and its negative, two units in the last place apart or more."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
_ROUNDED = 2.0**-23
"""How far a mark may have moved that 1 was added to, in float32."""
_NEAR_MARK = 1e-5
"""Of the largest: what is left of a mark where others were added to it, in float32."""


@dataclass(frozen=True)
class Exported:
    """The yield of an export. `layer` None: `problem` says which part is no layer's, `where` its source line.

    `map` lacks the parameters that are `absent` from the graph, and those that are `unplaced`: no own elements.
    `traced`: whether the graph was followed, and what was found is no layer. `features`: the names of what
    is not a layer's, where the problem is known by some. `taken_for`: what was read as something that it is not quite.
    """

    layer: Layer | None = None
    facts: tuple[Fact, ...] = ()
    map: ElementMap | None = None
    absent: tuple[str, ...] = ()
    unplaced: tuple[str, ...] = ()
    rounded_to: DtypeName | None = None
    """The format that those are rounded to in each call, where that is all that is done to them."""
    problem: str = ""
    where: str = ""
    notes: tuple[Finding, ...] = ()
    traced: bool = False
    features: tuple[Feature, ...] = ()
    taken_for: tuple[Finding, ...] = ()
    lines: Mapping[str, str] = field(default_factory=dict)
    otherwise: "Exported | None" = None
    """The yield at the usual sizes, where what was read at smaller ones is a layer: it holds if that is not proved."""
    """Own parameter that the graph reads, or key of the layer → the line of source."""


def export_and_infer(module: LiveModule, semantics: InputSemantics, *, simplified: bool = True) -> Exported:
    """`module` has its own parameters afterwards, as before. Not `simplified`: the graph is as it was traced."""
    own, before = OwnParameters(module.shapes, module.heard), module.flat().copy()
    marks = _marks(own.size)
    module.assign(marks)
    try:
        shape = semantics.x_shape(semantics.B, semantics.S)
        model = module.export(shape) if simplified else module.export_as_it_is(shape)
        sought = module.sought_lines(model, shape) if model is not None else None
    except Exception as error:
        return Exported(problem=f"it cannot be exported to ONNX: {last_frames(_cause(error))}")
    finally:
        module.assign(before)
    if model is None:
        return Exported(problem="it is exported in one way alone")
    findings = Findings()
    try:
        graph = _graph_of(model, module)
        names = graph.inputs[0].name, graph.model.graph.output[0].name
        x, output = (semantics.x.model_copy(update={"name": name}) for name in names)
        named = replace(semantics, x=x, output=output, masks=())
        inferred = infer_layer(graph, named, ModelRunner(graph.model), findings, verified=False)
    except Exception as error:  # a graph that the reader was never shown is no reason to judge nothing
        return Exported(problem=f"its graph cannot be read: {type(error).__name__}: {error}")
    lines = SourceLines(model, module.library, sought)
    notes = (*kept_notes(model), *_noted(findings, lines))
    if inferred is None or inferred.layer is None or findings.errors():
        seen = _of_no_layer(findings, lines)
        return _of_two_formats(module, shape, findings) or replace(seen, notes=notes)
    warned = (lines.placed(each) for each in findings.in_order() if each.severity == "warning")
    taken_for = tuple(_with_its_parameter(each, own, marks) for each in warned)
    at = {name: line for name, line in lines.of_parameters(own, marks) if line}
    at |= dict(_of_keys(inferred, lines))
    found = _placed(own, inferred, marks, before)
    if not found.unplaced:  # what the exporter made of a parameter is told by its marks, and can be set
        notes = tuple(each for each in notes if each.kind != "parameter-computed")
    called = {} if at else _of_calls(module, shape, found.map) | dict(_of_another_scale(inferred, lines))
    return replace(found, notes=notes, taken_for=taken_for, lines=at or called)


def _noted(findings: Findings, lines: SourceLines) -> Iterator[Finding]:
    """What was found in the graph beside errors, as notes, each with its line."""
    others = (finding for finding in findings.in_order() if finding.severity != "error")
    yield from (noted(each.kind, each.message, **each.about) for each in map(lines.placed, others))


def _of_keys(inferred: InferredLayer, lines: SourceLines) -> Iterator[tuple[str, str]]:
    """The lines of the layer's keys, and those that make queries, keys and values, by the places of their maps."""
    yield from ((fact.key, line) for fact in inferred.facts if (line := lines.at(fact.evidence)))
    for place in inferred.parameters:
        prefix, name = without_prefix(place)
        part = next((each for each in PROJECTED if name.startswith(f"attention.{each}.")), "")
        stage = inferred.stages.get(f"{prefix}{part}")
        if part and stage is not None and (line := lines.of_map(stage.tensor)):
            yield read_for(place), line


def _of_no_layer(findings: Findings, lines: SourceLines) -> Exported:
    """What is said of a graph that was followed, and is no layer's."""
    errors = [each.message for each in findings.errors()]
    said = [*errors[:1], *(each.removeprefix(NO_LAYER) for each in errors[1:])]
    problem = "; ".join(said) or "no layer was found in its graph"
    features = tuple(dict.fromkeys(findings.features))
    problems = (GraphProblem(each.message, each.about.get("features", ())) for each in findings.errors())
    where = lines.of_problems(problems) or lines.of_values(each.about.get("at") for each in findings.errors())
    return Exported(problem=problem, where=where, traced=True, features=features)


def _with_its_parameter(finding: Finding, own: OwnParameters, marks: Array) -> Finding:
    """What is told of a number of the graph, with the `parameter` that it is, by its mark [n]."""
    elements = np.flatnonzero(marks == np.float32(finding.about.get("scale", np.nan)))
    if not elements.size:
        return finding
    return finding.model_copy(update={"about": {**finding.about, "parameter": own.names(elements)[0]}})


def _graph_of(model: onnx.ModelProto, module: LiveModule) -> Graph:
    """The graph of a module's export, without what was added to x as zeros."""
    graph = Graph(model)
    if any(each.kind == "zeros" for each in module.signature.arrangement.beside.values()):
        graph.without_added_zeros()
    return graph


def _of_two_formats(module: LiveModule, shape: tuple[int, ...], findings: Findings) -> Exported | None:
    """What is said of a module whose graph no runtime takes, since it casts inside; None where that is not so."""
    unseen = any(each.kind == "values-not-seen" for each in findings.errors())
    inside = module.narrow_inside({"x": np.zeros(shape, np.float32)}) if unseen else {}
    if not inside:
        return None
    problem = (
        f"it casts to {' and '.join(inside)} inside, whatever x is, and goes on in another format: it is no layer of "
        f"one. Give all its parts one, as dtype=jnp.{next(iter(inside))} or none at all does"
    )
    return Exported(problem=problem, where=next(filter(None, inside.values()), ""))


_BESIDE = {
    "norm.epsilon": "norm1.gain",
    "norm.kind": "norm1.gain",
    "attention.scale": "attention.query.weight",
    "attention.num_heads": "attention.query.weight",
    "feed_forward.activation": "feed_forward.output.weight",
}
"""Key of a layer → the parameter whose line it is told by, where no node of a graph has one."""


def _of_another_scale(inferred: InferredLayer, lines: SourceLines) -> Iterator[tuple[str, str]]:
    """The line that multiplies scores by another number than usual, which may be none that calls a part."""
    for fact in inferred.facts:
        if fact.key == "attention.scale" and fact.value != "head_dim":
            line, _, _ = lines.of_problem(GraphProblem(fact.evidence)).partition(": ")
            yield from [(fact.key, line)] if line else []


def _of_calls(module: LiveModule, shape: tuple[int, ...], map: ElementMap | None) -> dict[str, str]:
    """The lines of a module whose exporter keeps none."""
    try:
        read = module.lines({"x": np.zeros(shape, np.float32)})
    except Exception:  # a module is judged without its lines
        return {}
    at = {own: lines[-1] for own, lines in read.items()}
    sources = {} if map is None else {name: map.source(name)[0] for name in map.elements}
    for key, parameter in _BESIDE.items():
        own = next((source for name, source in sources.items() if name.endswith(parameter)), "")
        at |= {key: read[own][0]} if own in read else {}
    return at | dict(_of_each_place(sources, read))


def _of_each_place(sources: Mapping[str, str], read: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Of own parameters that several places read, the line of each: places come one after the other, as calls do."""
    for own in {own for own in sources.values() if len(read.get(own, ())) > 1}:
        places = [place for place, source in sources.items() if source == own]
        if len(places) == len(read[own]):
            yield from ((read_for(place), line) for place, line in zip(places, read[own], strict=True))


_ADDED = ("bias", "shift", "vector")
_BEGUN_AS_NOTHING = ". Where a model sets that to 0, check the model, and name the part with --at PATH"


def _placed(own: OwnParameters, inferred: InferredLayer, marks: Array, before: Array) -> Exported:
    """Finds the own elements that each parameter in the graph is, by marks [n]. `before`: their own numbers [n]."""
    order = np.argsort(marks)
    ascending = marks[order]
    found, more, times, absent, unplaced = {}, {}, {}, [], dict[str, Array]()
    problem = ""
    for name, location in inferred.parameters.items():
        if location.form == "absent":
            absent.append(name)
            continue
        values = np.asarray(location.value, np.float32)
        elements = order[_nearest(ascending, values)]
        if np.array_equal(marks[elements], values):
            found[name] = elements
        elif name.endswith("gain") and (less := _less_one(values, own, marks)) is not None:
            if np.abs(before[less]).mean() < np.abs(before[less] - 1).mean():
                found[name], more[name] = less, 1.0
                continue
            unplaced[name] = location.value
            said = f"{name} is {', '.join(own.names(less))} + 1, and that is a gain by itself: what it holds is about 1"
            problem = f"{problem}; {said}" if problem else said
        elif (name.endswith(_ADDED) and not values.any()) or (name.endswith("gain") and (values == 1).all()):
            absent.append(name)  # a constant of its own, as a buffer of zeros is, or an exporter's ones
        elif name.endswith(TABLE) and (scaled := _table_times(values, own, marks)) is not None:
            found[name], times[name] = scaled
        else:
            unplaced[name] = location.value
    map = ElementMap(own, found, more, times)
    rounded_to = narrower(unplaced, "float32")
    seen = Exported(inferred.layer, tuple(inferred.facts), map, tuple(absent), tuple(unplaced), rounded_to)
    return replace(seen, problem=f"{problem}{_BEGUN_AS_NOTHING}" if problem else "")


def _nearest(ascending: P, values: Elementwise) -> Elementwise:
    """The place of the first number that is no smaller, or the last place, for each of the values, in their shape.

    They are looked up in order: of millions of numbers one that lies anywhere is not in the processor's cache.
    """
    by_size = np.argsort(values, axis=None)
    places = np.empty(values.size, np.intp)
    places[by_size] = np.searchsorted(ascending, values.reshape(-1)[by_size])
    return np.minimum(places, ascending.size - 1).reshape(values.shape)


def _less_one(values: Array, own: OwnParameters, marks: Array) -> Array | None:
    """The own vector [F] to which a norm adds 1 to have its gain; None if there is none."""
    for name, shape in own.shapes.items():
        elements = own.elements(name)
        if shape == values.shape and np.abs(marks[elements] - (values.astype(np.float64) - 1)).max() <= _ROUNDED:
            return elements
    return None


def _table_times(table: RH, own: OwnParameters, marks: Array) -> tuple[Array, float] | None:
    """The own table whose rows a bias of scores [R, H] has, of marks [n], times a power of two and up to a number that
    all scores of a head get, and that does nothing; and that power. None if there is none."""
    taken = table.any(1)  # a row that no distance takes was not seen
    apart = table[taken] - table[taken].mean(0, dtype=np.float64)
    for name, shape in own.shapes.items():
        elements = own.elements(name)
        for turned in (elements, elements.T) if len(shape) == 2 else ():
            if turned.shape != table.shape:
                continue
            held = marks[turned][taken].astype(np.float64)
            held -= held.mean(0)
            times = float(2.0 ** np.rint(np.log2(np.linalg.norm(apart) / np.linalg.norm(held))))
            if np.abs(times * held - apart).max() <= _NEAR_MARK * np.abs(apart).max():
                return turned, times
    return None


def _marks(size: int) -> Array:
    """A float32 of its own for every element, in no order, [n]."""
    if size > _EVENLY_SPACED:
        return _marks_of_many(size)
    numbers = np.random.default_rng(0).permutation(size) + 1
    marks: Array = (_MARK_SIZE * (2 * numbers - size - 1.5) / max(size, 1)).astype(np.float32)
    return marks


def _marks_of_many(size: int) -> Array:
    """Numbers that are as close as float32 has them, [n], from `_MARK_SIZE` downwards, of both signs: a product with an
    odd number, modulo a power of two, gives each index another."""
    scattered = np.arange(size, dtype=np.uint64) * _ODD & np.uint64((1 << (size - 1).bit_length()) - 1)
    below, signs = np.divmod(scattered.astype(np.uint32), np.uint32(2))
    largest = np.float32(_MARK_SIZE).view(np.uint32)
    marks: Array = (largest - below).view(np.float32) * np.where(signs, np.float32(-1), np.float32(1))
    return marks


def _cause(error: BaseException) -> BaseException:
    """The innermost error: the exporter wraps what it meets."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error

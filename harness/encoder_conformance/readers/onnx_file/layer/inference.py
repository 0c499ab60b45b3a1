"""Infers the layer of a file: traced, matched, described in the specification's language, verified by a run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
import onnx
from pydantic import ValidationError

from encoder_conformance import Tensors
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.platform.memory import give_freed_memory_back
from encoder_conformance.protocol.description import Fact
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.size import LARGE, is_large
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.locality import reach_in_file
from encoder_conformance.readers.onnx_file.layer.beyond import final_norm_apart
from encoder_conformance.readers.onnx_file.layer.description import describe
from encoder_conformance.readers.onnx_file.layer.far import FarChoices, FarRun, far_run, names_of, read_far
from encoder_conformance.readers.onnx_file.layer.parameters import ParameterLocation, locate_parameters
from encoder_conformance.readers.onnx_file.layer.rounding import judge_rounding
from encoder_conformance.readers.onnx_file.layer.stages import StageTensor, axes_read, letters, locate_stages
from encoder_conformance.readers.onnx_file.layer.structure import Encoder, match_encoder
from encoder_conformance.readers.onnx_file.layer.verification import TracedRun, fully_masked_row, items_proved, verify
from encoder_conformance.readers.onnx_file.tracing.expressions import UnsupportedPattern, Weights
from encoder_conformance.readers.onnx_file.tracing.operators import OPERATORS
from encoder_conformance.readers.onnx_file.tracing.recognition import view_of
from encoder_conformance.readers.onnx_file.tracing.symbolic_trace import SymbolicTrace
from encoder_conformance.readers.onnx_file.tracing.unstatable import BEYOND
from encoder_conformance.readers.onnx_file.tracing.unsupported import NO_LAYER, SENTENCES
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName, Format, dtype_named, narrower
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import unlike
from encoder_conformance.spec.plan import layer_sizes, with_attributes


@dataclass
class InferredLayer:
    """`layer` None: the layer language cannot express it; parameters and stages are those that were located."""

    layer: Layer | None
    facts: list[Fact]
    parameters: dict[str, ParameterLocation]
    stages: dict[str, StageTensor]
    sizes: dict[str, int] = field(default_factory=dict)
    final_norm_apart: str = ""
    """How the final norm differs from the layers'."""

    def given(self, x: Array) -> LayerInputs:
        """x [B, S, D] and the file's own parameters, without a mask, as the layer takes them."""
        return LayerInputs(x.astype(np.float64), self.values, None)

    @property
    def values(self) -> Tensors:
        """The file's own parameters."""
        return {name: location.value for name, location in self.parameters.items()}

    def computed_in(self, x_dtype: str) -> DtypeName:
        """The format that the file computes in: that of x, or the narrower one that its parameters are in."""
        dtype = dtype_named(x_dtype)
        return narrower(self.values, dtype) or dtype

    def format_at(self, x_dtype: str) -> Format:
        """The format that its values are judged in."""
        return FORMATS[dtype_named(x_dtype)].computed_in(FORMATS[self.computed_in(x_dtype)])

    def stage(self, name: str, values: Mapping[str, Array], B: int, S: int) -> Array:
        """A stage out of the values of a run at this batch and sequence."""
        keys = S + self.sizes["K"] - self.sizes["S"]
        located, sizes = self.stages[name], {**self.sizes, "B": B, "S": S, "Q": S, "K": keys}
        shape = tuple(sizes[letter] for letter in axes_read(name).split())
        return located.layout.stage(values[located.tensor], letters(name), shape, sizes)


def infer_layer(
    graph: Graph, semantics: InputSemantics, runner: ModelRunner, findings: Findings, *, verified: bool
) -> InferredLayer | None:
    """None after a finding of phase `layer`. `verified`: the layer is compared with the oracle."""
    try:
        run = TracedRun.of(runner, semantics)
    except ExecutionError as error:
        _refuse_values(graph, error, findings)
        return None
    try:
        inferred, described, far = _traced(graph, run, findings)
    except UnsupportedPattern as reason:
        _refuse(reason, findings)
        return None
    graph.forget_numbering()
    many = is_large(graph.model) or sum(value.nbytes for value in run.values.values()) > LARGE
    run = run.of_these({*(stage.tensor for stage in inferred.stages.values()), semantics.output.name})
    if many:
        give_freed_memory_back()  # the trace, which holds itself in a circle, and the values that are no stage
    try:
        inferred.layer = Layer.model_validate_json(json.dumps(described))
    except ValidationError as problem:
        errors = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in problem.errors())
        keys = [".".join(map(str, each["loc"])) for each in problem.errors()]
        message = f"the specification's language does not hold it: {errors}"
        findings.error("layer", "layer-not-expressible", message, keys=keys)
        return inferred
    if different := unlike(inferred.layer, {name: value.shape for name, value in inferred.values.items()}):
        message = f"its parameters are not those of the layer that it looks like: {different}"
        findings.error("layer", "parameters-unlike-layer", message)
        inferred.layer = None
        return inferred
    if verified and graph.quantised and (judged := judge_rounding(graph, inferred.stages, run.feeds, findings)):
        inferred.facts.append(judged)
    if verified:
        _verify(inferred, run, far)
    return inferred


def _traced(graph: Graph, run: TracedRun, findings: Findings) -> tuple[InferredLayer, dict[str, Any], FarRun | None]:
    """The parameters, stages and facts that a trace shows, the layer as JSON, and a run at a length that shows what is
    done by distance; raises UnsupportedPattern."""
    semantics = run.semantics
    index = semantics.laid_out(np.arange(run.x.size).reshape(run.x.shape))
    trace = SymbolicTrace(graph, run.values, semantics.x.name, index, semantics.B, semantics.S)
    trace.run()
    output = view_of(trace, semantics.output.name)
    encoder = match_encoder(output.operation)
    in_order = np.array_equal(output.index, index)
    if output.factor != 1 or not in_order:
        how = f"times {output.factor:.6g}" if in_order else "in another order"
        raise UnsupportedPattern(f"the output {semantics.output.name!r} is what the layer gives, {how}")
    far, choices = _far(graph, run, trace, encoder)
    inferred = InferredLayer(None, [], locate_parameters(encoder, choices, graph, run.x.dtype), {})
    format = inferred.computed_in(semantics.x.dtype)
    described, inferred.facts = describe(encoder, choices, semantics.d_model, format, findings)
    norm = described["norm"]
    inferred.final_norm_apart = final_norm_apart(encoder.final_norm, norm["kind"], norm["epsilon"])
    _note_forms(inferred.parameters, findings)
    if graph.quantised:
        message = "it computes with integers: the layer is that of the numbers that they stand for"
        findings.note("layer", "computes-with-integers", message)
    sizes = layer_sizes(with_attributes(described))
    B, S, heads = semantics.B, semantics.S, {"k": sizes.pop("K")}
    keys = encoder.layers[0].first(Weights).shape[-1]
    inferred.sizes = sizes | heads | {"B": B, "S": S, "Q": S, "K": keys}
    masked = set().union(*(graph.depending_on(mask.name) for mask in semantics.masks))
    inferred.stages = locate_stages(trace, encoder, masked, inferred.sizes)
    return inferred, described, far


def _far(
    graph: Graph, run: TracedRun, trace: SymbolicTrace, encoder: Encoder
) -> tuple[FarRun | None, list[FarChoices]]:
    """What each layer does by distance, and the run that shows it; raises UnsupportedPattern."""
    weights = [layer.first(Weights) for layer in encoder.layers]
    names = [name for each in weights for name in names_of(each)]

    @cache
    def drawn(seed: int) -> FarRun:
        try:
            return far_run(graph, run.semantics, run.runner, names, encoder.layers[0].heads, seed)
        except ExecutionError as error:
            raise UnsupportedPattern(f"it does not run at any length anew: {error}") from None

    far = drawn(11)
    choices = [read_far(trace, each, far, partial(drawn, 12)) for each in weights]
    unseen = not all(each.shown for each in choices)
    if unseen and (seen := reach_in_file(graph, run.semantics, run.runner)):
        raise UnsupportedPattern(str(seen), "window")
    return far, choices


def _refuse_values(graph: Graph, error: ExecutionError, findings: Findings) -> None:
    """An error that says why a graph does not run: by the operators that an exporter left in it, where ONNX has none of
    that name; or by its loop, where one is left in that."""
    left = {node.op_type: node for node in graph.nodes if not node.domain and not onnx.defs.has(node.op_type)}
    loops = (node for node in graph.nodes if OPERATORS.get(node.op_type) == "control_flow")
    if shown := next((node for op, node in left.items() if op in OPERATORS), None) or next(loops, None):
        _refuse(UnsupportedPattern(f"{shown.op_type} {shown.name!r}", OPERATORS[shown.op_type]), findings)
        return
    why = f"ONNX has no operator {', '.join(left)}, which the exporter left as it was" if left else str(error)
    findings.error("layer", "values-not-seen", f"its inner values cannot be looked at: {why}")


def _refuse(reason: UnsupportedPattern, findings: Findings) -> None:
    """An error for each place that no layer has. What is missing behind one that is known by name says nothing more."""
    places = [reason, *reason.others]
    if any(each.feature in BEYOND for each in places if each.feature != "unkeyed"):
        places = [each for each in places if each.feature]
    for each in places:
        sentence, hint = _sentence(each)
        message = f"{NO_LAYER}{sentence}"
        features = [each.feature] if each.feature else []
        findings.error("layer", "layer-not-read", message, hint, features=features)
        findings.features += features


def _sentence(reason: UnsupportedPattern) -> tuple[str, str]:
    """Names what is not supported, with the node that shows it, and what to do."""
    if reason.feature is None:
        return str(reason), "conform list layers shows what it knows"
    sentence, hint = SENTENCES[reason.feature]
    return f"{sentence} ({reason})", hint


def _note_forms(parameters: dict[str, ParameterLocation], findings: Findings) -> None:
    if absent := [name for name, location in parameters.items() if location.form == "absent"]:
        message = f"it has no {', '.join(absent)}, which are taken for 0 (a gain for 1)"
        findings.note("layer", "parameter-absent", message, names=absent)
    if computed := [name for name, location in parameters.items() if location.form == "computed"]:
        message = f"computed in the file, and so not to be given other values: {', '.join(computed)}"
        findings.note("layer", "parameter-computed", message, names=computed)


def _verify(inferred: InferredLayer, run: TracedRun, far: FarRun | None) -> None:
    """Compares one run with the oracle, and finds out the result for a query without any key. What the run does not
    prove, the phases tell by how much."""
    semantics, layer = run.semantics, inferred.layer
    assert layer is not None
    format = inferred.format_at(semantics.x.dtype)
    for mask in semantics.masks:
        if mask.polarity and (row := fully_masked_row(layer, inferred.values, mask, run)):
            attention = layer.attention.model_copy(update={"fully_masked_row": row})
            layer = inferred.layer = layer.model_copy(update={"attention": attention})
            evidence = f"every key of an item hidden by {mask.name!r}, and the output compared"
            inferred.facts.append(Fact(key="attention.fully_masked_row", value=row, evidence=evidence))
            break
    stages = {name: inferred.stage(name, run.values, semantics.B, semantics.S) for name in inferred.stages}
    stages["output"] = np.ascontiguousarray(semantics.batch_first(run.values[semantics.output.name]))
    items = items_proved(layer, semantics.S)
    stages = {name: value[items].astype(format.numpy) for name, value in stages.items()}  # narrower ones are as exact
    verdicts = verify(layer, inferred.given(run.x[items]), stages, format)
    off, at = next((verdict for verdict in verdicts if not verdict.conforms), None), ""
    if off is None and far is not None and layer.reads_positions:
        output = semantics.batch_first(far.values[semantics.output.name]).astype(format.numpy)
        more = verify(layer, inferred.given(far.x), {"output": np.ascontiguousarray(output)}, format)
        off, at, verdicts = (
            (None if more[0].conforms else more[0]),
            f" at a sequence of {far.length}",
            (*verdicts, *more),
        )
    if off is None:
        rms = max(verdict.rms or 0.0 for verdict in verdicts)
        sizes = f"batch {len(run.x[items])}, sequence {semantics.S}{at.replace(' at a sequence of', ' and')}"
        evidence = f"{sizes}, {len(verdicts)} tensors, largest rms {rms:.2f} σ"
    else:
        problem = off.problem.text if off.problem else f"rms {off.rms:.3g} σ, max {off.max:.3g} σ"
        evidence = f"the first stage out of line{at} is {off.tensor} ({problem})"
    inferred.facts.append(Fact(key="proved", value=off is None, evidence=evidence))

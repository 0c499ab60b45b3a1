"""The layer that a file holds: followed through its graph, put into the specification's language, proved by numbers."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pydantic import ValidationError

from encoder_conformance.impls.onnx_file.findings import Findings
from encoder_conformance.impls.onnx_file.graph.execution import Array, Failed, Runner, Tensors
from encoder_conformance.impls.onnx_file.graph.graph import Graph
from encoder_conformance.impls.onnx_file.interface.input_semantics import Roles
from encoder_conformance.impls.onnx_file.interface.ports import numpy_dtype
from encoder_conformance.impls.onnx_file.layer.description import describe
from encoder_conformance.impls.onnx_file.layer.parameters import Held, parameters_of
from encoder_conformance.impls.onnx_file.layer.stages import Anchor, anchors, letters, sizes_at
from encoder_conformance.impls.onnx_file.layer.structure import encoder_of
from encoder_conformance.impls.onnx_file.layer.verification import empty_row, prove
from encoder_conformance.impls.onnx_file.tracing.expressions import NotUnderstood
from encoder_conformance.impls.onnx_file.tracing.symbolic_trace import Flow
from encoder_conformance.spec.constants import constants
from encoder_conformance.spec.dtypes import FORMATS, Format
from encoder_conformance.spec.layer import Layer
from encoder_conformance.validate.reduction import dtype_named, narrower


@dataclass
class Inferred:
    """`layer` None: parameters and stages are those of what was understood of it."""

    layer: Layer | None
    facts: list[dict[str, Any]]
    parameters: dict[str, Held]
    stages: dict[str, Anchor]
    sizes: dict[str, int] = field(default_factory=dict)


def infer(graph: Graph, roles: Roles, runner: Runner, findings: Findings, *, proved: bool) -> Inferred | None:
    """None after a finding of stage `layer`: what is not told is not guessed.

    `proved`: it is held against the oracle.
    """
    x = np.random.default_rng(3).normal(size=(roles.B, roles.S, roles.d_model)).astype(numpy_dtype(roles.x.dtype))
    feeds = {roles.x.name: np.ascontiguousarray(roles.laid_out(x)), **roles.open_masks()}
    try:
        trace = {**feeds, **runner.trace(feeds)}
    except Failed as error:
        findings.error("layer", f"its inner values cannot be looked at: {error}")
        return None
    index = roles.laid_out(np.arange(x.size).reshape(x.shape))
    flow = Flow(graph, trace, roles.x.name, index, roles.B, roles.S)
    flow.follow()
    try:
        output = flow.closed(roles.output.name)
        encoder = encoder_of(output.root)
        if output.factor != 1 or not np.array_equal(output.index, index):
            raise NotUnderstood("the output is the layer's in another order, or times a number")
    except NotUnderstood as reason:
        findings.error(
            "layer",
            f"not an encoder layer as the specification knows it: {reason}",
            "conform list layers shows what it knows",
        )
        return None
    parameters = parameters_of(encoder, graph, x.dtype)
    dtype = dtype_named(roles.x.dtype)
    inside = narrower({name: held.value for name, held in parameters.items()}, dtype) or dtype
    described, facts = describe(encoder, roles, inside, findings)
    _note_forms(parameters, findings)
    if graph.rounds:
        findings.note("layer", "it computes with integers: the layer is that of the numbers that they stand for")
    sizes = sizes_at(
        roles.B, roles.S, roles.d_model, described["attention"]["num_heads"], described["feed_forward"]["d_ff"]
    )
    masked = set().union(*(graph.depending_on(mask.name) for mask in roles.masks)) if roles.masks else set()
    real = {output for node in graph.stated.graph.node for output in node.output}
    stages = {name: anchor for name, anchor in anchors(flow, encoder, masked, sizes).items() if anchor.tensor in real}
    try:
        layer = Layer.model_validate_json(json.dumps(described))
    except ValidationError as problem:
        said = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in problem.errors())
        findings.error("layer", f"the specification's language does not hold it: {said}")
        return Inferred(None, facts, parameters, stages, sizes)
    inferred = Inferred(layer, facts, parameters, stages, sizes)
    if proved:
        _prove(inferred, roles, FORMATS[dtype].computed_in(FORMATS[inside]), runner, trace, x, feeds, findings)
    return inferred


def _prove(
    inferred: Inferred,
    roles: Roles,
    format: Format,
    runner: Runner,
    trace: Tensors,
    x: Array,
    feeds: Tensors,
    findings: Findings,
) -> None:
    """The numbers of one run, in `format`; and what a query without a key gives."""
    layer = inferred.layer
    assert layer is not None
    values = {name: held.value.astype(np.float64) for name, held in inferred.parameters.items()}
    for mask in roles.masks:
        if mask.meaning and (row := empty_row(layer, values, roles, mask, runner, feeds, x)):
            attention = layer.attention.model_copy(update={"fully_masked_row": row})
            layer = inferred.layer = layer.model_copy(update={"attention": attention})
            evidence = f"every key of an item hidden by {mask.name!r}, and the output compared"
            inferred.facts.append({"key": "attention.fully_masked_row", "value": row, "evidence": evidence})
            break
    seen = {
        name: anchor.layout.stage(trace[anchor.tensor], letters(name), _shape(name, inferred.sizes), inferred.sizes)
        for name, anchor in inferred.stages.items()
    }
    seen["output"] = np.ascontiguousarray(roles.batch_first(trace[roles.output.name]))
    own = {name: value.astype(format.numpy) for name, value in seen.items()}  # what is narrower inside is as exact
    proof = prove(layer, values, x, own, constants(), format)
    if proof.agrees:
        rms = max(verdict.rms or 0.0 for verdict in proof.verdicts)
        evidence = f"batch {roles.B}, sequence {roles.S}, {len(proof.verdicts)} tensors, largest rms {rms:.2f} σ"
        inferred.facts.append({"key": "proved", "value": True, "evidence": evidence})
        return
    off = proof.first_off
    assert off is not None
    said = off.problem or f"rms {off.rms:.3g} σ, max {off.max:.3g} σ"
    inferred.facts.append({"key": "proved", "value": False, "evidence": f"{off.tensor}: {said}"})
    findings.warning(
        "layer",
        f"the file does not compute what was read off its graph: the first stage out of line is {off.tensor} ({said})",
        "the numbers' stage says by how much, and which known deviation it is",
    )


def _shape(stage: str, sizes: dict[str, int]) -> tuple[int, ...]:
    from encoder_conformance.spec.stages import axes_of

    return tuple(sizes[letter] for letter in axes_of(stage).split())


def _note_forms(parameters: dict[str, Held], findings: Findings) -> None:
    absent = [name for name, held in parameters.items() if held.form == "absent"]
    if absent:
        findings.note("layer", f"the file has no {', '.join(absent)}, which are taken for 0 (a gain for 1)")
    computed = [name for name, held in parameters.items() if held.form == "computed"]
    if computed:
        findings.note("layer", f"computed in the file, and so not to be given other values: {', '.join(computed)}")

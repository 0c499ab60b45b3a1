"""Inspects a file: reading, interface and layer, phase by phase, as far as it goes; every finding is kept."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from encoder_conformance.platform.memory import give_freed_memory_back
from encoder_conformance.protocol.arguments import GraphMask, MaskMeaning
from encoder_conformance.protocol.description import Fact, FileDescription, FileFacts, Roles, Size, WholeFile
from encoder_conformance.protocol.messages import MOST_NODES
from encoder_conformance.protocol.onnx_runtimes import onnx_runtime
from encoder_conformance.protocol.quantised import Quantisation
from encoder_conformance.protocol.streamed import Streamed, parts_of
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.graph.nodes import STANDARD, every_node
from encoder_conformance.readers.onnx_file.graph.operators import CONVOLUTIONS
from encoder_conformance.readers.onnx_file.graph.size import is_large
from encoder_conformance.readers.onnx_file.interface.angles import names_of_angles, said_of_angles, ways_of_angles
from encoder_conformance.readers.onnx_file.interface.attention import without_attention
from encoder_conformance.readers.onnx_file.interface.cutting import Cut, cuts
from encoder_conformance.readers.onnx_file.interface.dimensions import check_dimensions, check_free_sizes
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics, infer_semantics
from encoder_conformance.readers.onnx_file.interface.lost_numbers import say_lost_numbers
from encoder_conformance.readers.onnx_file.interface.mask_checks import check_masks
from encoder_conformance.readers.onnx_file.interface.ports import FLOATS, Interface, port_of
from encoder_conformance.readers.onnx_file.interface.selection import select_interface
from encoder_conformance.readers.onnx_file.interface.whole_file import whole_file
from encoder_conformance.readers.onnx_file.layer.inference import InferredLayer, infer_layer
from encoder_conformance.readers.onnx_file.layer.parameters import ParameterLocation, each_parameter
from encoder_conformance.readers.onnx_file.layer.whole import judge_whole
from encoder_conformance.readers.onnx_file.quantised.recognition import quantisation
from encoder_conformance.readers.onnx_file.quantised.scales import check_scales
from encoder_conformance.readers.onnx_file.reading.checker import check_model
from encoder_conformance.readers.onnx_file.reading.functions import check_functions
from encoder_conformance.readers.onnx_file.reading.loading import UnreadableFile, load
from encoder_conformance.readers.onnx_file.reading.node_order import check_order
from encoder_conformance.readers.onnx_file.reading.operators import check_operators, check_outputs, unknown_opset
from encoder_conformance.readers.onnx_file.reading.weights import check_weights
from encoder_conformance.spec.axes import Array


@dataclass
class Inspection:
    """The knowledge of a file; None where it did not get so far."""

    findings: Findings
    model: onnx.ModelProto | None = None
    graph: Graph | None = None
    file: FileFacts | None = None
    interface: Interface | None = None
    semantics: InputSemantics | None = None
    inferred: InferredLayer | None = None
    cut: Cut | None = None
    whole: WholeFile | None = None
    quantisation: Quantisation | None = None
    baked: dict[Size, int] = field(default_factory=dict)
    unjudged: str = ""
    """What stands before the encoder, where it was taken as it is."""

    @property
    def is_read(self) -> bool:
        return self.inferred is not None and self.inferred.layer is not None

    def description(self) -> dict[str, Any]:
        """A `Description` as JSON: the answer to the request `inspect`."""
        nodes = every_node(self.model) if self.model is not None else []
        inferred = self.inferred or InferredLayer(None, [], {}, {})
        described = FileDescription(
            findings=self.findings.in_order(),
            file=self.file,
            nodes=len(nodes),
            quantised=self.graph is not None and self.graph.quantised,
            quantisation=self.quantisation,
            operators=dict(sorted(Counter(_operator(node) for node in nodes).items())),
            inputs=tuple(map(port_of, self.graph.inputs)) if self.graph else (),
            outputs=tuple(map(port_of, self.graph.model.graph.output)) if self.graph else (),
            roles=self._roles(),
            cut=self.cut.x if self.cut else None,
            whole=self.whole,
            unjudged=self.unjudged,
            baked=self.baked,
            layer=inferred.layer,
            facts=tuple(inferred.facts),
            stages={name: stage.anchor() for name, stage in inferred.stages.items()},
            parameters={name: location.source() for name, location in inferred.parameters.items()},
        )
        return described.model_dump(mode="json")

    def _roles(self) -> Roles | None:
        if self.semantics is not None:
            return self.semantics.roles()
        if self.interface is None:
            return None
        masks = tuple(GraphMask(name=mask.name, axes="", meaning=None) for mask in self.interface.masks)
        return Roles(x=self.interface.x.name, output=self.interface.output.name, masks=masks)

    def parameters(self) -> dict[str, Array | Streamed]:
        """The file's own; of a large file they are read from it while they are sent, and not held beside it any more,
        nor is a second copy of the file."""
        if self.inferred is None or self.graph is None:
            return {}
        if not is_large(self.graph.model):
            return dict(self.inferred.values)
        if self.model is not self.graph.original:
            self.model = None
        self.graph.forget_numbers()
        self.inferred.parameters = {name: at.let_go() for name, at in self.inferred.parameters.items()}
        return {name: self._read_again(name, at) for name, at in self.inferred.parameters.items()}

    def _read_again(self, name: str, location: ParameterLocation) -> Array | Streamed:
        if not location.lines:
            return location.value
        graph = self.graph
        assert graph is not None

        def parts() -> Iterator[Array]:
            [(_, value)] = each_parameter(graph.original, graph, {name: location})
            return parts_of(value)

        return Streamed(location.held.dtype, location.shape, parts)


def _operator(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in STANDARD else f"{node.domain}::{node.op_type}"


def inspect(
    path: Path, expected: MaskMeaning | None, *, thoroughly: bool = True, most_nodes: int = MOST_NODES
) -> Inspection:
    """`expected` is the meaning of the masks that the user states. A problem of the file is a finding and raises
    nothing. Not `thoroughly`: no checks and no verification, only what it takes to run the file. `most_nodes`: the most
    that are read, functions inlined."""
    inspection = Inspection(Findings())
    try:
        _inspect(path, expected, inspection, thoroughly, most_nodes)
    except UnreadableFile as reason:
        *others, last = reason.problems
        for problem in others:
            inspection.findings.error("file", "file-unreadable", problem)
        inspection.findings.error("file", "file-unreadable", last, reason.hint)
    except MemoryError:
        message = "it takes more memory than a file of its size may"
        inspection.findings.error("loads", "too-much-memory", message, "is a size in it absurd?", step="load")
    return inspection


def _inspect(
    path: Path, expected: MaskMeaning | None, inspection: Inspection, thoroughly: bool, most_nodes: int
) -> None:
    findings = inspection.findings
    model, external = load(path)
    inspection.model, inspection.file = model, _file_facts(path, model, external)
    check_functions(model, most_nodes)
    check_order(model, findings)
    if thoroughly:
        check_operators(model, findings)
        if not check_outputs(model, findings):
            return
        check_model(model, findings)
        if unknown_opset(model):  # nobody here knows what its operators do
            return
    inspection.graph = graph = _graph(model, findings)
    if graph is None:
        return
    inspection.whole, inspection.quantisation = whole_file(graph), quantisation(graph.original)
    if thoroughly and not check_scales(graph.original, findings):  # nothing that it computes has numbers
        return
    if kinds := without_attention(graph):
        message = f"it is no Transformer encoder: there is no attention in it; it is made of {kinds}"
        hint = "attention multiplies queries with keys: no product here is of two values"
        findings.error("layer", "no-attention", message, hint)
        return
    if _is_whole_model(graph):  # of which the encoder is taken; each copy is as large as the weights
        inspection.model = model = graph.original
    finite = not thoroughly or check_weights(graph, findings)
    if not finite:  # every number of a run would be NaN, and say nothing
        select_interface(graph, findings)
        return
    if _is_whole_model(graph):
        _inspect_encoder(inspection, graph, expected, thoroughly)
    else:
        _inspect_from_an_input(inspection, graph, expected, thoroughly)


def _inspect_from_an_input(
    inspection: Inspection, graph: Graph, expected: MaskMeaning | None, thoroughly: bool
) -> None:
    """The layers from an input [batch, sequence, features] on, or else those behind what is made of it in numbers."""
    direct, behind = (replace(inspection, findings=Findings(list(inspection.findings.found))) for _ in range(2))
    _inspect_layers(direct, graph, expected, thoroughly)
    if not direct.is_read and (direct.semantics is None or direct.semantics.has_numbers):
        behind.model = graph.original
        _inspect_encoder(behind, graph, expected, thoroughly)
    vars(inspection).update(vars(behind if behind.is_read else direct))


def _is_whole_model(graph: Graph) -> bool:
    """Whether something stands before the layers: no input is [batch, sequence, features], or it has a convolution."""
    floats = [port for port in map(port_of, graph.inputs) if port.dtype in FLOATS]
    layers = [port for port in floats if port.shape is None or len(port.shape) in (2, 3)]
    return not layers or any(node.op_type in CONVOLUTIONS for node in graph.nodes)


def _inspect_encoder(inspection: Inspection, graph: Graph, expected: MaskMeaning | None, thoroughly: bool) -> None:
    """The encoder inside of a whole model, cut out: the first cut whose layers are understood, else the first.

    A final norm that is not as the layers' are is left out of it, where that can be: it is a step of the model's own.
    """
    before, first, layers = inspection.findings, None, 0
    for cut in cuts(graph):
        graph.forget_numbers()
        tried = replace(inspection, findings=Findings(list(before.found)), model=cut.model, cut=cut)
        ends = {"x": cut.x, "output": cut.output}
        tried.findings.note(
            "interface", "encoder-cut-out", *_said(cut), **ends, inputs=cut.inputs, left_aside=cut.after
        )
        tried.graph = _graph(cut.model, tried.findings, copied=False)
        tried.model = tried.graph.original if tried.graph else None
        if tried.graph is not None:
            _inspect_layers(tried, tried.graph, expected, thoroughly)
        first = first or tried
        found = tried.inferred
        if found is not None and found.layer is not None and layers in (0, found.layer.stack.layers):
            if found.final_norm_apart and not layers:
                first, tried.unjudged, layers = tried, cut.before, found.layer.stack.layers
                continue
            if found.final_norm_apart:
                continue
            if layers and first.inferred is not None:
                what = f"{first.inferred.final_norm_apart}: it is not judged"
                hint = "the encoder is judged up to what that norm takes"
                tried.findings.note("layer", "final-norm-not-judged", what, hint)
            first = tried
            if thoroughly and tried.semantics is not None:
                give_freed_memory_back()  # the trace and the runs of the cut, each as large as the weights
                judged = judge_whole(graph, cut, found, tried.semantics, tried.findings)
                tried.unjudged = "" if judged else cut.before
            break
    if first is None:
        select_interface(graph, before)
        return
    vars(inspection).update(vars(first))


def _said(cut: Cut) -> tuple[str, str]:
    aside = f"; {', '.join(cut.after)} left aside" if cut.after else ""
    taken = f"of {', '.join(cut.inputs)} " if cut.inputs else ""
    message = f"the encoder is judged from {cut.x!r}, what {cut.before} makes {taken}, to {cut.output!r}{aside}"
    return " ".join(message.split()).replace(" ,", ","), "each phase takes what stands before it as given numbers"


def _inspect_layers(inspection: Inspection, graph: Graph, expected: MaskMeaning | None, thoroughly: bool) -> None:
    findings = inspection.findings
    inspection.interface = interface = select_interface(graph, findings)
    if interface is None:
        return
    first: Inspection | None = None
    for way in ways_of_angles(graph, interface):
        tried = replace(inspection, findings=Findings(list(findings.found)), interface=way)
        _inspect_interface(tried, graph, way, expected, thoroughly)
        first = first or tried
        if tried.inferred is not None and tried.inferred.layer is not None:
            first = tried
            break
    vars(inspection).update(vars(first or inspection))


def _inspect_interface(
    inspection: Inspection, graph: Graph, interface: Interface, expected: MaskMeaning | None, thoroughly: bool
) -> None:
    findings = inspection.findings
    try:
        inspection.semantics, runner = infer_semantics(graph, interface)
    except ExecutionError as error:
        sizes = [port.name for port in interface.masks if interface.output.name not in graph.depending_on(port.name)]
        if inspection.cut is not None and sizes:
            message = f"the encoder does not run by itself: it computes sizes from those of {', '.join(sizes)}"
            hint = "export the encoder layers by themselves"
            findings.error("loads", "encoder-does-not-run-alone", f"{message}: {error}", hint, needs=sizes)
            return
        message = f"as a layer it runs at no batch and sequence that was tried: {error}"
        certain = inspection.cut is None and _takes_any_x(interface) and not _OF_MEMORY.search(str(error))
        findings.error("loads", "file-does-not-run", message, "see what it says of its shapes", certain=certain)
        return
    semantics = inspection.semantics
    check_dimensions(interface, semantics.layout, findings)
    if not semantics.has_numbers:
        say_lost_numbers(graph, semantics, runner, findings)
        return
    inspection.baked = check_free_sizes(interface, semantics, runner, findings)
    _check_run(semantics, runner, findings)
    if said := said_of_angles(interface):
        findings.note("interface", "angles-are-inputs", *said, names=[*names_of_angles(interface)])
    taken_before = inspection.cut.inputs if inspection.cut else ()
    check_masks(graph, semantics, expected, findings, taken_before)
    inspection.inferred = inferred = infer_layer(graph, semantics, runner, findings, verified=thoroughly)
    if inferred is not None and (given := names_of_angles(interface)):
        inferred.facts.append(Fact(key="angles", value=given, evidence="inputs that hold no theta"))


_OF_MEMORY = re.compile("memory|alloc", re.IGNORECASE)
"""In what a runtime says where the machine is too small, and not the file wrong."""


def _takes_any_x(interface: Interface) -> bool:
    """Whether it says that it runs with any x of some batch and sequence: with nothing beside, of a known width."""
    shape = interface.x.shape or ()
    return not interface.masks and len(shape) == 3 and isinstance(shape[-1], int)


def _graph(model: onnx.ModelProto, findings: Findings, *, copied: bool = True) -> Graph | None:
    try:
        graph = Graph(model, copied=copied)
        graph.constants  # noqa: B018  raises if the data of a tensor does not fit its shape
    except MemoryError:
        raise
    except Exception as error:
        message = f"its constants cannot be read: {str(error)[:300]}"
        findings.error("checker", "constants-unreadable", message, "export it again", certain=True)
        return None
    return graph


def _file_facts(path: Path, model: onnx.ModelProto, external: set[str]) -> FileFacts:
    return FileFacts(
        bytes=path.stat().st_size,
        external=tuple(sorted(external)),
        beside=sum((path.parent / name).stat().st_size for name in external),
        ir_version=model.ir_version,
        opsets={entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))),
        metadata={entry.key: entry.value for entry in model.metadata_props},
    )


def _check_run(semantics: InputSemantics, runner: ModelRunner, findings: Findings) -> None:
    """Reports what the probe runs showed beside the masks."""
    if runner.problem:
        message = f"ONNX Runtime does not run it: {runner.problem}"
        hint = "ONNX's reference implementation does; see the operator"
        findings.of_runtime("onnxruntime", message, hint, lacks=onnx_runtime("onnxruntime").unknown in runner.problem)
    if semantics.across_batch:
        hint = "look for what goes across the batch: attention, a norm, or one scale for all items"
        findings.error("layer", "items-influence-each-other", "an item of the batch changes another", hint)
    if semantics.isolated:
        message = "no position changes another: there is no attention in it, or all is hidden"
        findings.error("layer", "positions-isolated", message)

"""Drives an ONNX file of any origin as an implementation of the layer that it holds, and inspects it."""

import json
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  bfloat16, in NumPy
import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from encoder_conformance import Adapter, Environment, Masks, RunRequest, Tensors, serve
from encoder_conformance.impls.bases.onnx_model.runtimes import PACKAGES, Session, open
from encoder_conformance.platform.memory import give_freed_memory_back
from encoder_conformance.protocol.frames import Sendable
from encoder_conformance.protocol.messages import MOST_NODES
from encoder_conformance.protocol.quantised import RoundingLooked
from encoder_conformance.readers.onnx_file.calling import CalledFile
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.fixing import write_fixed
from encoder_conformance.readers.onnx_file.graph.execution import loaded, refuse_onnxruntime
from encoder_conformance.readers.onnx_file.graph.size import is_large
from encoder_conformance.readers.onnx_file.inspection import Inspection, inspect
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_inputs import mask_feeds
from encoder_conformance.readers.onnx_file.layer.inference import InferredLayer
from encoder_conformance.readers.onnx_file.layer.parameters import each_parameter, write_parameters
from encoder_conformance.readers.onnx_file.quantised.variants import QuantisedFile, source_tensors
from encoder_conformance.readers.onnx_file.reading.loading import load
from encoder_conformance.readers.onnx_file.reading.node_order import check_order
from encoder_conformance.readers.onnx_file.script import given_by_script
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.stages import stages as stages_of


class OnnxFile(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        self.threads = threads
        self.inspected: tuple[str, Inspection] | None = None
        self.whole: CalledFile | None = None
        self.quantised: QuantisedFile | None = None
        self.runtime, self.level = self.choices["runtime"], self.choices["level"]
        if self.choices.get("looked_into_by") == "reference":
            refuse_onnxruntime("it ends the process that runs it")
        versions = {"onnx": onnx.__version__, "onnxruntime": ort.__version__, "numpy": np.__version__}
        if PACKAGES[self.runtime] not in versions:
            versions[self.runtime] = __import__(PACKAGES[self.runtime]).__version__
        return Environment(versions, {"threads": threads, "runtime": self.runtime, "level": self.level})

    def other(self, message: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Sendable]:
        """The requests `inspect`, `call`, `trace`, `rounding` and `data`."""
        match message["op"]:
            case "call":
                return self.called(message, tensors)
            case "trace":
                steps, values = self.whole_file(Path(message["target"])).steps(message["precision"], tensors)
                give_freed_memory_back()  # of a model that shows all its values
                return {"steps": [step.model_dump(mode="json") for step in steps]}, values
            case "rounding":
                return {"description": self.looked_at(message, tensors).model_dump(mode="json")}, {}
            case "data":
                return given_by_script(message)
            case "inspect":
                return self.inspection(message)
        return super().other(message, tensors)

    def inspection(self, message: dict[str, Any]) -> tuple[dict[str, Any], Sendable]:
        inspection = inspect(Path(message["path"]), message["mask"], most_nodes=message.get("most_nodes", MOST_NODES))
        self.inspected = message["path"], inspection
        description = inspection.description()
        if new := message.get("fix"):
            description["fixed"] = list(write_fixed(Path(message["path"]), Path(new), inspection))
        parameters = inspection.parameters()
        give_freed_memory_back()  # of the trace and the whole file, each as large as the weights
        return {"description": description}, parameters

    def called(self, message: dict[str, Any], tensors: Tensors) -> tuple[dict[str, Any], Tensors]:
        """The outputs of the whole file at a path; of one of integers with some of its places in float.

        Raises ValueError for places of a file that was not looked at.
        """
        path, places = Path(message["target"]), message.get("in_float")
        if places is None:
            answer = self.whole_file(path).outputs(message, tensors)
            if not message["kept"]:
                self.whole = None
                give_freed_memory_back()
            return {"outputs": list(answer)}, answer
        if self.quantised is None or self.quantised.path != path:
            raise ValueError("the places of the file were not listed")
        if new := message.get("write"):
            self.quantised.write(places, Path(new))
            return {"outputs": []}, {}
        answer = self.quantised.outputs(places, tensors)
        return {"outputs": list(answer)}, answer

    def whole_file(self, path: Path) -> CalledFile:
        """The file at a path as a whole, one at a time."""
        if self.whole is None or self.whole.path != path:
            self.whole = CalledFile(path, self.opened)
        return self.whole

    def looked_at(self, message: dict[str, Any], tensors: Tensors) -> RoundingLooked:
        """A file of integers: what it is made of, and what its scales lose of the inputs."""
        path = Path(message["target"])
        if self.quantised is None or self.quantised.path != path:
            self.quantised = QuantisedFile(path, self.opened, source_tensors(message, tensors))
        feeds = {name: tensors[name] for name in message["inputs"]}
        return RoundingLooked(places=tuple(self.quantised.places()), away=tuple(self.quantised.lost(feeds)))

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.sessions: dict[str, Session] = {}
        self.as_stored = False
        path = self.choices["model"]
        if self.inspected is None or self.inspected[0] != path:  # another worker has looked into it, within its limits
            self.inspected = path, inspect(Path(path), None, thoroughly=False, most_nodes=sys.maxsize)
        inspection = self.inspected[1]
        if inspection.inferred is None or inspection.semantics is None or inspection.graph is None:
            errors = "; ".join(finding.message for finding in inspection.findings.errors())
            raise RuntimeError(f"no encoder layer could be made out in {path}: {errors}")
        self.semantics, self.inferred = inspection.semantics, inspection.inferred
        self.layer = requested_layer(layer, parameters, dtype, self.inferred, self.semantics)
        if self.layer.attention.rope is not None:
            self.semantics = self.semantics.turned_by(self.layer.attention.rope.theta)
        graph, locations = inspection.graph, self.inferred.parameters
        if self.choices.get("integers") == "as_numbers":  # those that they stand for, without any rounding
            self.model = graph.model
        elif all(
            np.array_equal(parameters[name], own) for name, own in each_parameter(graph.original, graph, locations)
        ):
            self.model, self.as_stored = graph.original, True
        else:
            self.model = deepcopy(graph.original)
            write_parameters(self.model, graph, locations, parameters)
        # A file that is narrower inside holds narrower parameters, each of them a number of the wider format, too.
        own = (
            (name, value.astype(np.dtype(dtype), copy=False))
            for name, value in each_parameter(self.model, graph, locations)
        )
        return {name: _one_of(parameters[name], value) for name, value in own}

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        """The output, as x is: [B, S, D] or in the layout of the run."""
        batch_first = run.batch_first(x)
        name = self.semantics.output.name
        answer = self.session("deployed").run(self.feeds(batch_first, masks))[name]
        narrowed = self.inspected is not None and self.inspected[1].cut is not None
        answer = answer.astype(x.dtype) if narrowed else answer  # behind the cut the file may widen it
        return run.as_given(self.semantics.batch_first(answer))

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        """The stages of x [B, S, D], by name."""
        values = self.session("staged").run(self.feeds(x, masks))
        found = {name: self.inferred.stage(name, values, *x.shape[:2]).astype(x.dtype) for name in self.inferred.stages}
        found.setdefault("output", np.ascontiguousarray(self.semantics.batch_first(values[self.semantics.output.name])))
        return {name: found[name] for name in stages_of(self.layer) if name in found}

    def feeds(self, x: Array, masks: Masks) -> Tensors:
        """`x` [B, S, D] in the file's layout, and every mask input."""
        B, S = x.shape[:2]
        mask_inputs = mask_feeds(self.semantics, masks, B, S, self.layer.attention.num_heads)
        return {self.semantics.x.name: np.ascontiguousarray(self.semantics.laid_out(x)), **mask_inputs}

    def session(self, kind: str) -> Session:
        """`deployed` is the file as it is; `staged` has an output for every stage that a value of the graph is.

        Of a large file there is one at a time.
        """
        if kind not in self.sessions:
            if is_large(self.model):
                self.sessions.clear()
                self.whole = None
            model = self.stored if kind == "deployed" and self.as_stored else lambda: self.model
            self.sessions[kind] = loaded(model, self.opened, self.shown(kind))
        return self.sessions[kind]

    def opened(self, model: bytes | Path) -> Session:
        """Opens the model with every optimiser, as whoever deploys the file runs it."""
        return open(model, self.runtime, self.level, self.threads, without=())

    def shown(self, kind: str) -> list[onnx.ValueInfoProto]:
        """The outputs that such a session has beside the file's own."""
        if kind == "deployed":
            return []
        own = {output.name for output in self.model.graph.output}
        shown = {stage.tensor: stage for stage in self.inferred.stages.values() if stage.tensor not in own}
        return [stage.value_info() for stage in shown.values()]

    def stored(self) -> onnx.ModelProto:
        """The file as it is; a large one is read again."""
        assert self.inspected is not None
        path, inspection = self.inspected
        if inspection.model is not None:
            return inspection.model
        model, _ = load(Path(path))
        check_order(model, Findings())
        return model

    def refusal(self, operation: str, error: Exception) -> str | None:
        if isinstance(error, InvalidArgument):  # the model says what dtype an input has, what rank, and which sizes
            return "dtype" if "input data type" in str(error) else "shape"
        return super().refusal(operation, error)


def _one_of(given: Array, own: Array) -> Array:
    """What the file holds [*shape]: the very array that was given, of one shape, where it has the same bits. All are as
    large as the file."""
    same = (given.dtype, given.shape) == (own.dtype, own.shape) and given.tobytes() == own.tobytes()
    return given if same else own


def requested_layer(
    layer: dict[str, Any], parameters: Tensors, dtype: str, inferred: InferredLayer, semantics: InputSemantics
) -> Layer:
    """The requested layer, if its parameters and heads fit the file; runs judge the rest. Raises ValueError."""
    requested = Layer.model_validate_json(json.dumps(layer))
    if dtype != semantics.x.dtype:
        raise ValueError(f"asked for {dtype}, and the file takes {semantics.x.dtype}")
    locations = inferred.parameters
    missing, extra = sorted(set(locations) - set(parameters)), sorted(set(parameters) - set(locations))
    problem = ""
    if missing or extra:
        problem = f"the file has {', '.join(missing[:3])} too" if missing else f"the file has no {', '.join(extra[:3])}"
    elif differ := [name for name, at in locations.items() if parameters[name].shape != at.shape]:
        name = differ[0]
        problem = f"{name} is {list(parameters[name].shape)}, and the file's {list(locations[name].shape)}"
    elif requested.attention.num_heads != inferred.sizes["H"]:
        problem = f"it has {requested.attention.num_heads} heads, and the file {inferred.sizes['H']}"
    if problem:
        raise ValueError(f"{layer['layer']} is not the layer that the file holds: {problem}")
    return requested


if __name__ == "__main__":
    serve(OnnxFile())

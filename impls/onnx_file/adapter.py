"""Drives an ONNX file that somebody else made, as an implementation of the layer that it holds; and looks into it."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  bfloat16, in NumPy
import numpy as np
import onnx
import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from encoder_conformance import Adapter, Environment, Masks, Tensors, serve
from encoder_conformance.impls.onnx_file.inspection import Inspection, inspect
from encoder_conformance.impls.onnx_file.interface.input_semantics import Roles
from encoder_conformance.impls.onnx_file.interface.mask_inputs import fed
from encoder_conformance.impls.onnx_file.interface.ports import numpy_dtype
from encoder_conformance.impls.onnx_file.layer.inference import Inferred
from encoder_conformance.impls.onnx_file.layer.parameters import held_in, written
from encoder_conformance.impls.onnx_file.layer.stages import letters, sizes_at
from encoder_conformance.impls.onnx_file.tracing.expressions import Array
from encoder_conformance.impls.onnx_model.runtimes import PACKAGES, Session, open
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.stages import axes_of
from encoder_conformance.spec.stages import stages as stages_of


class OnnxFile(Adapter):
    def start(self, device: str, threads: int) -> Environment:
        self.threads = threads
        self.seen: tuple[str, Inspection] | None = None
        self.runtime, self.level = self.choices["runtime"], self.choices["level"]
        versions = {"onnx": onnx.__version__, "onnxruntime": ort.__version__, "numpy": np.__version__}
        if PACKAGES[self.runtime] not in versions:
            versions[self.runtime] = __import__(PACKAGES[self.runtime]).__version__
        return Environment(versions, {"threads": threads, "runtime": self.runtime, "level": self.level})

    def other(self, message: dict[str, Any]) -> tuple[dict[str, Any], Tensors]:
        """The request `inspect`: what the file holds."""
        if message["op"] != "inspect":
            return super().other(message)
        seen = inspect(Path(message["path"]), message["mask"])
        self.seen = message["path"], seen
        return {"description": seen.description()}, seen.parameters()

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.sessions: dict[str, Session] = {}
        self.whole: onnx.ModelProto | None = None
        path = self.choices["model"]
        if self.seen is None or self.seen[0] != path:
            self.seen = path, inspect(Path(path), None, thoroughly=False)
        seen = self.seen[1]
        if seen.inferred is None or seen.roles is None or seen.graph is None:
            errors = "; ".join(f.message for f in seen.findings.found if f.severity == "error")
            raise RuntimeError(f"no encoder layer could be made out in {self.choices['model']}: {errors}")
        self.graph, self.roles, self.inferred = seen.graph, seen.roles, seen.inferred
        self.layer = asked(layer, parameters, dtype, self.inferred, self.roles)
        held = self.inferred.parameters
        if all(np.array_equal(parameters[name], place.value) for name, place in held.items()):
            self.model, self.whole = self.graph.stated, seen.model
        else:
            self.model = onnx.ModelProto()
            self.model.CopyFrom(self.graph.stated)
            written(self.model, self.graph, held, parameters)
        # A file that is narrower inside holds narrower parameters, each of them a number of the wider format, too.
        own = held_in(self.model, self.graph, held)
        return {name: value.astype(numpy_dtype(dtype)) for name, value in own.items()}

    def output(self, x: Array, masks: Masks) -> Array:
        batch_first = self.batch_first(x)
        name = self.roles.output.name
        answer = self.session("deployed").run(self.feeds(batch_first, masks))[name]
        return self.as_given(self.roles.batch_first(answer))

    def stages(self, x: Array, masks: Masks) -> Tensors:
        answers = self.session("staged").run(self.feeds(x, masks))
        B, S, _ = x.shape
        sizes = sizes_at(B, S, self.layer.d_model, self.layer.attention.num_heads, self.layer.feed_forward.d_ff)
        found = {"output": np.ascontiguousarray(self.roles.batch_first(answers[self.roles.output.name]))}
        for stage, anchor in self.inferred.stages.items():
            shape = tuple(sizes[letter] for letter in axes_of(stage).split())
            value = anchor.layout.stage(answers[anchor.tensor], letters(stage), shape, sizes)
            found[stage] = value.astype(x.dtype)
        return {stage: found[stage] for stage in stages_of(self.layer) if stage in found}

    def feeds(self, x: Array, masks: Masks) -> Tensors:
        """`x` [B, S, D], in the file's own layout, beside every mask that it takes."""
        B, S = x.shape[:2]
        given = fed(self.roles, masks, B, S, self.layer.attention.num_heads)
        return {self.roles.x.name: np.ascontiguousarray(self.roles.laid_out(x)), **given}

    def session(self, kind: str) -> Session:
        """`deployed` is the file as it is; `staged` has an output for every stage that a value of the graph is."""
        if kind not in self.sessions:
            model = self.whole if kind == "deployed" and self.whole is not None else self.model
            if kind == "staged":
                model = onnx.ModelProto()
                model.CopyFrom(self.model)
                own = {output.name for output in model.graph.output}
                shown = {anchor.tensor: anchor for anchor in self.inferred.stages.values() if anchor.tensor not in own}
                for name, anchor in shown.items():
                    dtype = onnx.helper.np_dtype_to_tensor_dtype(numpy_dtype(anchor.dtype))
                    rank = [None] * len(anchor.layout.axes)
                    model.graph.output.append(onnx.helper.make_tensor_value_info(name, dtype, rank))
            # With every optimiser, as whoever deploys the file runs it.
            self.sessions[kind] = open(model.SerializeToString(), self.runtime, self.level, self.threads, without=())
        return self.sessions[kind]

    def refusal(self, operation: str, error: Exception) -> str | None:
        if isinstance(error, InvalidArgument):  # the model says what dtype an input has, what rank, and which sizes
            return "dtype" if "input data type" in str(error) else "shape"
        return super().refusal(operation, error)


def asked(layer: dict[str, Any], parameters: Tensors, dtype: str, inferred: Inferred, roles: Roles) -> Layer:
    """The layer that is asked for, if the file can be it: its parameters fit, and its heads. What it computes with them
    is for numbers to judge. Raises ValueError."""
    chosen = Layer.model_validate_json(json.dumps(layer))
    if dtype != roles.x.dtype:
        raise ValueError(f"asked for {dtype}, and the file takes {roles.x.dtype}")
    held = inferred.parameters
    missing, extra = sorted(set(held) - set(parameters)), sorted(set(parameters) - set(held))
    if missing or extra:
        has = f"the file has {', '.join(missing[:3])} too" if missing else f"the file has no {', '.join(extra[:3])}"
        raise ValueError(f"{layer['layer']} is not the layer that the file holds: {has}")
    for name, place in held.items():
        if parameters[name].shape != place.value.shape:
            sizes = f"{list(parameters[name].shape)}, and the file's {list(place.value.shape)}"
            raise ValueError(f"{layer['layer']} is not the layer that the file holds: {name} is {sizes}")
    if chosen.attention.num_heads != inferred.sizes["H"]:
        has = f"{chosen.attention.num_heads} heads, and the file {inferred.sizes['H']}"
        raise ValueError(f"{layer['layer']} is not the layer that the file holds: it has {has}")
    return chosen


if __name__ == "__main__":
    serve(OnnxFile())

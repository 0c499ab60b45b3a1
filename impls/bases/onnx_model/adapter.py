"""The adapter of every exporter: exported once for a layer, dtype and opset, and run by the runtime that was chosen."""

import tempfile
from abc import abstractmethod
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from encoder_conformance import Adapter, Array, Environment, Masks, Recent, RunRequest, Tensors
from encoder_conformance.impls.bases.onnx_model import runtimes
from encoder_conformance.impls.bases.onnx_model.binding import Binding
from encoder_conformance.impls.bases.onnx_model.contract import finish, metadata
from encoder_conformance.impls.bases.onnx_model.cut import deployed, padded
from encoder_conformance.impls.bases.onnx_model.inputs import check_symbols, types_of, whole
from encoder_conformance.impls.bases.onnx_model.store import digest_of, essence, stored
from encoder_conformance.impls.bases.onnx_model.timing import Timing

RUNNING = ("runtime", "level")
"""The choices that an export does not depend on."""


LAYERS_KEPT = 16
"""The exports of so many layers are kept in memory: where none can be kept on disk, each takes seconds."""


class OnnxAdapter(Adapter):
    """An exporter says how it exports, with which packages, and from which sources. All else is the same for all."""

    exporter: str
    """The name of its folder."""
    packages: tuple[str, ...]
    """The distributions that make the export, whose versions it depends on."""
    sources: tuple[str, ...]
    """The Python packages of this repository that make it, beside `encoder_conformance.impls.bases.onnx_model`."""

    @abstractmethod
    def export(
        self, layer: Mapping[str, Any], parameters: Tensors, dtype: str, opset: int, *, biased: bool
    ) -> onnx.ModelProto:
        """A model whose inputs and outputs are named as `contract.py` says, and which holds these `parameters`, which
        are random. Raises ValueError for a layer that cannot be.

        Import the exporter's framework here and not before: a run that finds its exports on disk does without.
        """

    def start(self, device: str, threads: int) -> Environment:
        self.threads, self.opset = threads, int(self.choices["opset"])
        self.runtime, self.level = self.choices["runtime"], self.choices["level"]
        self.recent = Recent[dict[bool, onnx.ModelProto]](LAYERS_KEPT)
        self.versions = {name: version(name) for name in (*self.packages, "onnx", "numpy")}
        sources = digest_of(
            "encoder_conformance.impls.bases.onnx_model.binding",
            "encoder_conformance.impls.bases.onnx_model.contract",
            "encoder_conformance.impls.bases.tap",
            *self.sources,
        )
        told = {name: value for name, value in self.choices.items() if name not in RUNNING}
        self.made_by = {"exporter": self.exporter, "choices": told, "versions": self.versions, "sources": sources}
        running = runtimes.PACKAGES[self.runtime]
        settings: dict[str, str | int | bool] = {"threads": threads, **self.choices}
        if self.runtime == "onnxruntime":
            settings |= {"disabled": runtimes.DISABLED, "provider": runtimes.PROVIDER}
        return Environment({**self.versions, running: version(running)}, settings)

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.models = self.recent.get((essence(layer), dtype), lambda: {})
        self.layer, self.dtype, self.parameters = layer, dtype, parameters
        self.sessions: dict[tuple[str, bool], runtimes.Session] = {}
        model = self.model(biased=False)
        return Binding.from_json(metadata(model)["parameters"]).read(model)

    def model(self, *, biased: bool) -> onnx.ModelProto:
        """The staged model, with this build's parameters."""
        if biased not in self.models:
            key = {"layer": essence(self.layer), "dtype": self.dtype, "biased": biased, **self.made_by}
            self.models[biased] = stored(key, lambda: self.exported(biased=biased))
        model = self.models[biased]
        Binding.from_json(metadata(model)["parameters"]).put(model, self.parameters)
        return model

    def write(self, layer: dict[str, Any], parameters: Tensors, dtype: str, mask: str) -> bytes:
        self.build(layer, parameters, dtype)
        model = deployed(self.model(biased=False))
        file: bytes = (padded(model) if mask == "padding" else model).SerializeToString()
        return file

    def exported(self, *, biased: bool) -> onnx.ModelProto:
        random = np.random.default_rng(0)
        drawn = {
            name: np.asarray(random.standard_normal(value.shape), value.dtype)
            for name, value in self.parameters.items()
        }
        model = self.export(self.layer, drawn, self.dtype, self.opset, biased=biased)
        return finish(model, self.layer, drawn, exporter=self.exporter, opset=self.opset, versions=self.versions)

    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        return run.as_given(self.ask("deployed", run.batch_first(x), masks, run)["output"])

    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        return self.ask("staged", x, masks, run)

    def profile(self, x: Array, masks: Masks, run: RunRequest, repeats: int) -> Tensors:
        """Times the model that shows every stage: ONNX Runtime fuses less of it than of the one that is deployed."""
        if self.runtime != "onnxruntime":
            raise NotImplementedError(f"{self.runtime} does not say how long a node takes")
        with tempfile.TemporaryDirectory() as folder:
            timing = Timing(Path(folder), runtimes.options(self.level, self.threads))
            given = self.given(x, masks, run)
            session = runtimes.session(self.model(biased="bias" in given).SerializeToString(), timing.options)
            for _ in range(repeats + 1):
                session.run(None, given)
            return timing.by_stage(session.end_profiling(), repeats)

    def ask(self, kind: str, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        """`kind` is staged, or deployed: with the output alone."""
        given = self.given(x, masks, run)
        biased = "bias" in given
        if (kind, biased) not in self.sessions:
            model = self.model(biased=biased)
            written = (model if kind == "staged" else deployed(model)).SerializeToString()
            self.sessions[kind, biased] = runtimes.open(written, self.runtime, self.level, self.threads)
        session = self.sessions[kind, biased]
        check_symbols(self.symbols(biased=biased), given)
        return session.run(given)

    def symbols(self, *, biased: bool) -> dict[str, tuple[int | str | None, ...]]:
        return {given.name: runtimes.shape_of(given) for given in self.models[biased].graph.input}

    def given(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        types = None if run.token_types is None else run.batch_first(run.token_types)
        return {**whole(x, masks, self.layer["attention"]["num_heads"], self.dtype), **types_of(self.layer, x, types)}

    def refusal(self, operation: str, error: Exception) -> str | None:
        if isinstance(error, InvalidArgument):  # the model says what dtype an input has, what rank, and which sizes
            return "dtype" if "input data type" in str(error) else "shape"
        return super().refusal(operation, error)

"""The base of the adapters that `conform check --write-adapter` writes: a module, and what was found of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from encoder_conformance import Array, Environment, ParameterMap
from encoder_conformance.readers.module_target.driving import Driven, ModuleAdapter
from encoder_conformance.readers.module_target.frameworks import framework_of
from encoder_conformance.readers.module_target.live import LiveModule, Signature, joined, pieces
from encoder_conformance.readers.module_target.loading import load_target
from encoder_conformance.readers.module_target.locating import Place
from encoder_conformance.readers.module_target.parts import at
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics


@dataclass(frozen=True)
class TakeMap:
    """A `ParameterMap` of a module's parameters. Own ones that it lacks stay as they are."""

    takes: ParameterMap
    sizes: Mapping[str, object]
    absent: tuple[str, ...]
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def load(self, module: LiveModule, parameters: Mapping[str, Array]) -> None:
        given = {name: value for name, value in parameters.items() if name not in self.absent}
        own = self.takes.to_own(given, self.sizes)
        held = zip(module.shapes, pieces(module.flat(), module.shapes.values()), strict=True)
        module.assign(joined(own[name].astype(value.dtype) if name in own else value for name, value in held))
        self.shapes.update(module.shapes)

    def held(self, flat: Array) -> dict[str, Array]:
        return self.taken(flat)

    def taken(self, flat: Array) -> dict[str, Array]:
        own = dict(zip(self.shapes, pieces(flat, self.shapes.values()), strict=True))
        return self.takes.to_spec({name: own[name] for name in self.takes.takes})


class WrittenAdapter(ModuleAdapter):
    target: ClassVar[str]
    arguments: ClassVar[Mapping[str, str]]
    folder: ClassVar[str]
    at: ClassVar[str | None]
    parameters: ClassVar[ParameterMap]
    absent: ClassVar[tuple[str, ...]]
    sizes: ClassVar[Mapping[str, object]]
    signature: ClassVar[Signature]
    semantics: ClassVar[InputSemantics]
    always_causal: ClassVar[bool]
    places: ClassVar[Mapping[str, Place]]

    def start(self, device: str, threads: int) -> Environment:
        module = load_target(self.target, self.arguments, Path(self.folder))
        framework = framework_of(module)
        assert framework is not None, "load_target gives no other"
        self.given = framework.live(module if self.at is None else at(framework.tree, module, self.at))
        self.map = self.parameters
        versions = {name: version(name) for name in (framework.packages[0], "numpy")}
        return Environment(versions, {"threads": threads})

    def driven(self, dtype: str) -> Driven:
        map = TakeMap(self.parameters, self.sizes, self.absent)
        return Driven(self.given.in_dtype(dtype), self.semantics, self.always_causal, self.places, map)

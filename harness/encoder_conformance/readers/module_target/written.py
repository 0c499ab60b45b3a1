"""The base of the adapters that `conform check --write-adapter` writes: a module, and what was found of it."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from encoder_conformance import Environment, ParameterMap, Tensors
from encoder_conformance.readers.module_target.driving import ModuleAdapter
from encoder_conformance.readers.module_target.live import LiveModule, Signature, joined, pieces
from encoder_conformance.readers.module_target.loading import load_target, work_in
from encoder_conformance.readers.module_target.mapping import ElementMap, OwnParameters
from encoder_conformance.readers.module_target.supplies import Told


class WrittenAdapter(ModuleAdapter):
    target: ClassVar[str]
    arguments: ClassVar[Mapping[str, str]]
    folder: ClassVar[str]
    at: ClassVar[str | None]
    parameters: ClassVar[ParameterMap]
    absent: ClassVar[tuple[str, ...]]
    sizes: ClassVar[Mapping[str, object]]
    signature: ClassVar[Signature]

    def start(self, device: str, threads: int) -> Environment:
        work_in(Path(self.folder))
        framework, module, _ = load_target(self.target, self.arguments, Path(self.folder))
        part = framework.parts(module).at(self.at) if self.at else None
        told = Told(self.signature.arrangement.beside)
        live = framework.live(framework.built(part or framework.at(module, self.at), lambda _: told))
        self.given = live.arranged(self.signature.arrangement) or live
        self.map = self.parameters
        versions = {name: version(name) for name in (framework.packages[0], "numpy")}
        return Environment(versions, {"threads": threads})

    def loaded(self, parameters: Tensors, dtype: str) -> tuple[LiveModule, ElementMap]:
        """Own parameters that the map lacks stay as they are."""
        module = self.given.in_dtype(dtype)
        given = {name: value for name, value in parameters.items() if name not in self.absent}
        own = self.parameters.to_own(given, self.sizes)
        held = zip(module.shapes, pieces(module.flat(), module.shapes.values()), strict=True)
        module.assign(joined(own.get(name, value) for name, value in held))
        numbered = OwnParameters(module.shapes)
        return module, ElementMap(numbered, self.parameters.to_spec({name: numbered.elements(name) for name in own}))

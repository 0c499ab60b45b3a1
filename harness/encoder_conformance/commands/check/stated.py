"""The layer that a module should be, as the user states it: of the specification, of a YAML file, or of a model."""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from encoder_conformance.commands.inspect.layer_selection import encoder_layer_of, find_layer
from encoder_conformance.implementation.limitations import Declared
from encoder_conformance.platform.errors import InputError
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.level import Level
from encoder_conformance.spec.load import load, published_layers
from encoder_conformance.subjects.module import ModuleWorker
from encoder_conformance.subjects.subject import SubjectRequest

TRANSFORMERS = "hf:"
_ATTENTION = "attn_implementation"
"""transformers' name of the choice."""


@dataclass(frozen=True)
class CheckRequest(SubjectRequest):
    """The module, and what the user states of it.

    `like`: hf:NAME, whose layer it should be, until `with_layer_read` has read that; `reference`: the module that it
    was read off. `declared`: deviations that it is known for; it is judged against the specification with these.
    `also`: words of the variants that are judged beside it.
    """

    like: str | None = None
    reference: ModuleDescription | None = None
    level: Level = "core"
    declared: tuple[Declared, ...] = ()
    jobs: int = 1
    also: tuple[str, ...] = ()

    def with_attention(self, kind: str | None) -> "CheckRequest":
        """The request for a model of transformers with this implementation of attention, if any is named.

        Raises InputError for a target of another kind, and where --arg names another.
        """
        if kind is None:
            return self
        if not self.target.startswith(TRANSFORMERS):
            raise InputError(f"{self.target} is no hf:NAME, whose attention can be chosen", where="--attention")
        if self.arguments.get(_ATTENTION, kind) != kind:
            raise InputError(f"--arg {_ATTENTION} says another", where="--attention", hint="name it once")
        return replace(self, arguments={**self.arguments, _ATTENTION: kind})

    def stating(self, named: str | None, command: str) -> "CheckRequest":
        """The request with the layer that is named, if any: one of the specification at the module's own sizes.

        `command`: what it does with layers, for the error. Raises InputError for a layer that is not there.
        """
        if not named:
            return self
        if named.startswith(TRANSFORMERS):
            return replace(self, like=named)
        layer = encoder_layer_of(find_layer(named), command)
        if layer.embedding is not None:
            hint = "name a layer or a stack that takes x (conform list layers)"
            raise InputError(f"{named} has an embedding before its layers: {command}", where="--layer", hint=hint)
        return replace(
            self,
            layer=layer,
            resize=named in {*load().layers, *published_layers()},
        )

    def with_layer_read(self, log: Path) -> "CheckRequest":
        """The request with the layer that `like` has in place of its name."""
        if self.like is None:
            return self
        layer, reference = _layer_of_transformers(self.like, self.folder, log, self.pythons)
        return replace(self, layer=layer, resize=True, like=None, reference=reference)


def _layer_of_transformers(
    text: str, folder: Path, log: Path, pythons: Mapping[str, str]
) -> tuple[Layer, ModuleDescription]:
    """The layer that hf:NAME has, or its part hf:NAME@PATH; without a path the first of its layers. And the module.

    It is read off transformers' own module, by its configuration, and proved. Raises InputError for one that is not
    there, or is no layer that the layer language can say.
    """
    target, _, path = text.partition("@")
    module = ModuleWorker(SubjectRequest(target=target, folder=folder, pythons=pythons, narrow=True), log)
    with contextlib.closing(module):
        at = path or next(iter(module.listed()), None)
        described = module.subject(at, f"--layer {text}").as_module
    if described.layer is None or described.proof is None or not described.proof.holds:
        reason = described.not_read.problem if described.not_read else "what was read off it was not proved"
        where = f"--layer {text}" + (f", its part {at}" if at else "")
        raise InputError(f"is no layer that can be stated: {reason}", where=where, hint="state it with a YAML file")
    name = Path(target.removeprefix(TRANSFORMERS)).name
    layer_name = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "stated"
    return described.layer.model_copy(update={"layer": layer_name}), described

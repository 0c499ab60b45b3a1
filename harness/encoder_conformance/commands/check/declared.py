"""The deviations that a module is known for: those that a test names, or that `conform.yaml` lists."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import Field

from encoder_conformance.commands.run.update import changes, edited
from encoder_conformance.implementation.limitations import Declared
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.spec.strict import Identifier, Sentence, Strict
from encoder_conformance.spec.yaml_file import read_model

MANIFEST = "conform.yaml"
"""In pytest's root folder: the modules that `pytest --conform` judges, with what is known of each."""


class Known(Strict):
    """A deviation of a module."""

    deviation: Identifier
    reason: Sentence = Field(description="why the module has it")


class KnownModule(Strict):
    layer: str | None = Field(default=None, description="what it should be: an id, a YAML file, or hf:NAME")
    deviations: tuple[Known, ...] = ()


class ModuleManifest(Strict):
    """`conform.yaml`: target → what is known of it."""

    modules: dict[str, KnownModule] = Field(default_factory=dict)


def declared_from(names: Iterable[str]) -> tuple[Declared, ...]:
    """Raises InputError for a name that the catalogue has not."""
    found = []
    for name in dict.fromkeys(names):
        if name not in catalogue():
            hint = f"{nearest(name, catalogue())} (conform list deviations)"
            raise InputError(f"no deviation {name!r}", where="deviations", hint=hint)
        # Nobody has a public link for a module of one's own.
        found.append(Declared.model_construct(deviation=name, reason=catalogue()[name].sentence, link="", when=None))
    return tuple(found)


def read_manifest(folder: Path) -> ModuleManifest:
    """An empty one if there is no file. Raises InputError."""
    path = folder / MANIFEST
    return read_model(path, ModuleManifest) if path.is_file() else ModuleManifest()


def update_manifest(folder: Path, target: str, layer: str | None, deviations: Sequence[str]) -> list[str]:
    """Have the file list these deviations of the module; comments and all else stay. Gives what was changed."""
    before = read_manifest(folder).modules.get(target, KnownModule())
    with edited(folder / MANIFEST) as manifest:
        entry = manifest.setdefault("modules", {}).setdefault(target, {})
        if layer is not None:
            entry["layer"] = layer
        listed = {known["deviation"]: known for known in entry.get("deviations", ())}
        entry["deviations"] = [
            listed.get(name) or {"deviation": name, "reason": catalogue()[name].sentence} for name in deviations
        ]
    return changes([known.deviation for known in before.deviations], deviations)

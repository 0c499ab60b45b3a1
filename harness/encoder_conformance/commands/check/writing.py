"""Writes the folder of the adapter that a check used."""

import json
import keyword
import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from encoder_conformance.commands.check.results import PartResult
from encoder_conformance.implementation.manifest import Implementation, known_folders
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import make_folder
from encoder_conformance.platform.paths import shown
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.cases import InputLimits, nearest_length, sees_nothing_somewhere

_MODULES = {
    "PyTorch": ("torch",),
    "Keras": ("keras",),
    "Flax NNX": ("flax", "jax"),
    "Flax Linen": ("flax", "jax"),
    "Equinox": ("equinox", "jax"),
    "JAX": ("jax",),
}
"""Framework → the modules that an adapter of it imports; the last has the name of the extra that has them."""
_LINK = "https://pytorch.org/docs/stable/nn.html"
_TIMEOUTS = {"start": 120, "build": 60, "run": 60}


def refuse_folder(folder: Path) -> None:
    """Raises InputError for a folder that is there, or whose name is none of an implementation."""
    name = folder.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name) or name in known_folders():
        hint = "small letters, digits and _, a letter first, and no name that `conform list impls` has"
        raise InputError(f"{name!r} is no name for an implementation", where="--write-adapter", hint=hint)
    if folder.exists():
        raise InputError("exists already", where=f"--write-adapter {shown(folder)}", hint="give another folder")


def write_adapter(part: PartResult, implementation: Implementation, folder: Path) -> str:
    """Write the whole folder or none of it; the command that runs it. Raises InputError if there is no adapter."""
    if part.layer is None or (why := _without_adapter(part, part.layer)):
        problem = f"there is no adapter to write: {why if part.layer else 'it could not be judged'}"
        hint = "docs/adding-a-backend.md says how one is written by hand"
        raise InputError(problem, where="--write-adapter", hint=hint)
    layer = _layer_of(part.layer, folder.name)
    files = {
        "adapter.py": part.described.adapter,
        "impl.yaml": _manifest(part, implementation, layer, folder.name),
        "requirements.txt": "\n".join([*_MODULES[part.described.framework], "onnx", "onnxruntime", "ml_dtypes", ""]),
        f"{layer.layer}.yaml": yaml.safe_dump(layer.model_dump(mode="json"), sort_keys=False),
    }
    make_folder(folder, files)
    return f"conform run --impl {shown(folder)} --layer {shown(folder / layer.layer)}.yaml"


def _without_adapter(part: PartResult, layer: Layer) -> str:
    """Why no adapter of it can be run; "" where one can."""
    if not part.described.adapter:
        return part.described.no_adapter or "it could not be judged"
    asked = (each for each in _family(layer) if InputLimits.of_module(part.described).ask(each))
    return (
        "" if any(_takes_length(part, each) for each in asked) else "no case of a run has as many positions as it takes"
    )


def _family(layer: Layer) -> list[Situation]:
    return [each for each in load().situations.values() if each.fits(layer)]


def _layer_of(layer: Layer, name: str) -> Layer:
    """With an id of its own, and the epsilon that the layer language has (L-2)."""
    fields = {**layer.model_dump(mode="json"), "layer": f"{name.replace('_', '-')}-layer"}
    return Layer.model_validate_json(json.dumps(fields))


def _manifest(part: PartResult, implementation: Implementation, layer: Layer, name: str) -> str:
    described = part.described
    capabilities = implementation.capabilities
    manifest = {
        "name": name,
        "title": f"{described.type}, as conform check found it",
        "framework": described.framework,
        "homepage": "https://onnx.ai",
        "command": ["python", "adapter.py"],
        "requires": [*_MODULES[described.framework], "onnx", "onnxruntime", "pydantic"],
        "install": f"encoder-conformance[{_MODULES[described.framework][-1]}]",
        "capabilities": {
            "dtypes": ["float32"],  # float64 has the decimal epsilon, and the layer language float32's (L-2)
            "devices": ["cpu"],
            "modes": ["eval"],
            "layouts": ["batch_first"],
            "masks": list(capabilities.masks),
            "checkpoint": False,
            "checks": ["output", "stages", "gradients"] if described.stages else ["output", "gradients"],
            "stages": [*described.stages, "output"],
            "layers": [layer.layer],
            **({"additions": list(layer.additions)} if layer.additions else {}),
        },
        "unsupported": [*_unsupported(part, layer)],
        "deviations": [*_chosen(part)],
        "timeouts": _TIMEOUTS,
    }
    return yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True)


def _unsupported(part: PartResult, layer: Layer) -> Iterator[dict[str, object]]:
    """Entries for the situations of the layer that a check does not ask of the module, and for what it cannot give."""
    limits, family = InputLimits.of_module(part.described), _family(layer)
    yield {
        "when": {"situation": sorted(each.situation for each in family if not limits.ask(each))},
        "reason": "Its masks cannot say this, or it is given in another form than the module's",
        "link": _LINK,
    }
    nowhere = [each.situation for each in family if sees_nothing_somewhere(Case(layer, each))]
    if others := [each.situation for each in family if not _takes_length(part, each)]:
        yield {
            "when": {"situation": sorted(others)},
            "reason": "It does not take so many positions, or so few",
            "link": _LINK,
        }
    if part.described.padded_item_raises and nowhere:
        yield {
            "when": {"situation": sorted(nowhere)},
            "reason": f"An item that is padding alone is refused: {part.described.padded_item_raises}",
            "link": _LINK,
        }
    if part.described.padded_item_is_nan and nowhere:
        yield {
            "when": {"check": "gradients", "situation": sorted(nowhere)},
            "reason": "An item that is padding alone makes every gradient of its batch NaN",
            "link": _LINK,
        }
    padded = [each.situation for each in family if each.mask.padding is not None]
    if part.described.padding_moves_rows and padded:
        yield {
            "when": {"check": "stages", "situation": sorted(padded)},
            "reason": "Where padding is hidden, its submodules see other rows, or rows in another order",
            "link": _LINK,
        }


def _takes_length(part: PartResult, situation: Situation) -> bool:
    lengths = part.described.lengths
    return not lengths or nearest_length(lengths, situation.sequence) == situation.sequence


def _chosen(part: PartResult) -> Iterator[dict[str, object]]:
    """The choices of its own by which the check judged it."""
    for name in dict.fromkeys(name for record in part.records for name in record.deviations):
        yield {"deviation": name, "reason": catalogue()[name].sentence, "link": _LINK}

"""Exports on disk, for the next run: an export takes seconds, and depends on nothing but what its key says.

A file is the SHA-256 of a model, in hexadecimal, and the model, without the parameters: other ones are put in anyway.
"""

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from encoder_conformance import cache_folder
from encoder_conformance.impls.bases.onnx_model.binding import Binding
from encoder_conformance.impls.bases.onnx_model.contract import metadata

DIGITS = 64
TITLES = ("layer", "title", "clauses", "family")
"""The keys of a layer that change nothing in the export."""


def stored(key: Mapping[str, Any], make: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    """The staged model of this key, its parameters undefined: from the disk, or made and kept there.

    What is torn, or was never such a file, is made again; where nothing can be kept, each call makes it.
    """
    folder = cache_folder("onnx")
    path = folder and folder / f"{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()}.onnx"
    if path is not None and (found := _read(path)) is not None:
        return found
    model = make()
    if path is not None:
        kept = onnx.ModelProto()
        kept.CopyFrom(model)
        Binding.from_json(metadata(kept)["parameters"]).strip(kept)
        _write(path, kept.SerializeToString())
    return model


def essence(layer: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a layer that an export depends on."""
    return {name: value for name, value in layer.items() if name not in TITLES}


def digest_of(*names: str) -> str:
    """The SHA-256 of the sources of these modules and packages: an export by other code is another one."""
    digest = hashlib.sha256()
    for name in names:
        source = Path(str(import_module(name).__file__))
        for path in sorted(source.parent.glob("*.py")) if source.name == "__init__.py" else [source]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _read(path: Path) -> onnx.ModelProto | None:
    try:
        held = path.read_bytes()
    except OSError:
        return None
    model = held[DIGITS:]
    if held[:DIGITS].decode("ascii", "replace") != hashlib.sha256(model).hexdigest():
        return None
    try:
        return onnx.load_from_string(model)
    except DecodeError:
        return None


def _write(path: Path, model: bytes) -> None:
    """In one step, so that a run beside this one finds all of it or nothing. A full disk is no fault of the export."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                file.write(hashlib.sha256(model).hexdigest().encode() + model)
                file.close()
                Path(file.name).replace(path)
            except OSError:
                Path(file.name).unlink(missing_ok=True)
    except OSError:
        return

"""Refuses a target that is a file which holds no source, and says how the module in it is named."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from encoder_conformance.platform.errors import InputError
from encoder_conformance.protocol.handover import LIVE

_PICKLE = "is a pickle, which runs whatever code is in it: it is not opened"
_A_FUNCTION = "name a function of a file of yours, FILE:NAME, that gives"
_SAVED_MODEL = "saved_model.pb"


def _kinds() -> Iterator[tuple[Iterable[str], str, str]]:
    """The ends of names of files, what such a file is, and what to do."""
    loaded = f"{_A_FUNCTION} torch.load('{{path}}', weights_only=False), or makes the module and loads these weights"
    yield (".pt", ".pth", ".bin", ".ckpt", ".pkl"), _PICKLE, loaded
    yield (".pt2",), "is an exported program, and no source", f"{_A_FUNCTION} torch.export.load('{{path}}').module()"
    of_keras = f"{_A_FUNCTION} keras.models.load_model('{{path}}')"
    yield (".keras", ".h5", ".hdf5"), "is a model of Keras, and no source", of_keras
    yield (_SAVED_MODEL,), "is a SavedModel, and no source", f"{_A_FUNCTION} the model that it was exported from"
    weights = f"{_A_FUNCTION} the module with these weights"
    yield (".safetensors", ".npz", ".msgpack"), "holds weights alone, and no module", weights
    yield (".onnx",), "is an ONNX file, and no module", "conform validate {path} judges it"
    in_a_cell = "in a cell of it: import encoder_conformance; encoder_conformance.check(NAME)"
    yield (".ipynb",), "is a notebook, and no module", in_a_cell


def refuse_files(*targets: str) -> None:
    """Raises InputError for a target that is a file without source, or what hands over a module of a process."""
    for target in targets:
        path, of_a_module, _ = target.partition(":")
        if path == LIVE.removesuffix(":"):
            raise InputError(_PICKLE, where=path, hint="name the module: package.module:name, or file.py:name")
        if of_a_module and not Path(path).exists():  # a package's module may be called bin
            continue
        kept = f"{path}/{_SAVED_MODEL}" if (Path(path) / _SAVED_MODEL).is_file() else path
        for ends, what, hint in _kinds():
            if kept.endswith(tuple(ends)):
                raise InputError(what, where=path, hint=hint.format(path=path))

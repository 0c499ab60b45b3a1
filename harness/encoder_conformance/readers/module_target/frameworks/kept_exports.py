"""Exports that earlier commands made: an exporter takes seconds, and most modules are checked more than once."""

import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from encoder_conformance.platform.kept import KeptFiles, digest_of_code
from encoder_conformance.platform.memory import collect_among_all, collecting_seldom
from encoder_conformance.readers.onnx_file.graph.size import is_large

EXPORTS = KeptFiles("exports", room=256 << 20)
_AT_MOST = 32 << 20
"""Bytes of one export: a layer of 768 features has 28 million."""


def recalled_or(
    export: Callable[[], onnx.ModelProto], key: Sequence[object] | None, packages: Sequence[str]
) -> onnx.ModelProto:
    """The export that an earlier command kept under this key, which JSON can hold; else that of `export`, kept.

    `key`: None for what is not known, and exported each time. `packages`: the distributions that make it; another
    version of one makes another export.
    """
    if key is None:
        return _exported(export)
    whole = [list(key), made_by(packages)]
    if (content := EXPORTS.get(whole)) is not None:
        with suppress(DecodeError):
            return onnx.load_from_string(content)
    model = _exported(export)
    if model.ByteSize() <= _AT_MOST:
        EXPORTS.put(whole, model.SerializeToString())
        EXPORTS.forget_oldest()
    return model


def _exported(export: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    with collecting_seldom():
        model = export()
    if is_large(model):  # what an exporter leaves holds itself in a circle, with all weights
        collect_among_all()
    return model


def made_by(packages: Sequence[str]) -> list[object]:
    """The program that exports, the versions of what it does that with, and Python's."""
    found = list[object]([digest_of_code(Path(__file__).parents[1]), platform.python_version()])
    for name in packages:
        with suppress(PackageNotFoundError):
            found.append([name, version(name)])
    return found

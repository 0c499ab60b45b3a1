"""Expectations that earlier commands computed, in the user's cache folder: who edits a module and checks it again waits
for none of them.

A file is named by all that its content depends on: the case, the constants, the program that computed it, and what that
computes with. A file that is cut, changed or of another version is not found, and computed again.
"""

import contextlib
import hashlib
import json
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
import safetensors.numpy

from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import expected_of, tensors_of
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import UnwritableError, replace_file
from encoder_conformance.platform.recent import cache_folder
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import Constants

_ROOM = 256 << 20
"""Bytes of all files together: some 2,000 cases. What was not used for longest goes first."""
_SUM = hashlib.sha256().digest_size
_PROGRAM = Path(__file__).parents[2]
_COMPUTES = "oracle", "spec"
"""The folders of the program whose code makes an expectation."""


def recalled(case: Case, constants: Constants) -> Expected | None:
    """The expectation of a case that an earlier command kept, or None."""
    path = _path(case, constants)
    if path is None:
        return None
    try:
        content = path.read_bytes()
        if hashlib.sha256(content[_SUM:]).digest() != content[:_SUM]:
            return None
        found = expected_of(case, safetensors.numpy.load(content[_SUM:]), constants, path)
        path.touch()
    except (OSError, InputError):
        return None
    return found


def keep(case: Case, constants: Constants, expected: Expected) -> None:
    """Keep an expectation for later commands. Where it cannot be written, nothing is kept."""
    path = _path(case, constants)
    if path is None:
        return
    in_order = {name: np.ascontiguousarray(tensor) for name, tensor in tensors_of(expected).items()}
    data = safetensors.numpy.save(in_order)
    with contextlib.suppress(UnwritableError):
        replace_file(path, hashlib.sha256(data).digest() + data)


def forget_oldest() -> None:
    """Remove the files that were not used for longest, from what is more than the room for all."""
    folder = cache_folder("expectations")
    if folder is None:
        return
    with contextlib.suppress(OSError):  # another command removes them too
        files = sorted(((each.stat(), each) for each in folder.iterdir()), key=lambda pair: -pair[0].st_mtime)
        held = 0
        for status, path in files:
            held += status.st_size
            if held > _ROOM:
                path.unlink()


def _path(case: Case, constants: Constants) -> Path | None:
    folder = cache_folder("expectations")
    if folder is None:
        return None
    layer, situation = case.layer.model_dump(mode="json"), case.situation.model_dump(mode="json")
    depends_on = [layer, situation, case.numbers_from, constants.model_dump(mode="json"), _computed_with()]
    return folder / hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()


@cache
def _computed_with() -> str:
    """The digest of the code that computes, of the versions of what it imports, and of the machine's arithmetic."""
    of_machine = platform.machine(), np.finfo(np.longdouble).nmant
    digest = hashlib.sha256(repr((version("numpy"), version("scipy"), *of_machine)).encode())
    for path in sorted(each for folder in _COMPUTES for each in (_PROGRAM / folder).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()

"""The inputs of a file that a user gives: in an .npz, or as arrays by name."""

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from zipfile import BadZipFile

import ml_dtypes  # noqa: F401  bfloat16, in NumPy
import numpy as np

from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.files import require_regular
from encoder_conformance.protocol.description import WholeFile, WholeInput
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS

_LARGEST = 1 << 31
"""Bytes: as many as a file of ONNX may have."""


def read_arrays(path: Path, where: str, hint: str) -> Mapping[str, Array]:
    """Raises InputError for what is no archive of NumPy's, is too large once it is unpacked, or holds objects, which
    are pickled."""
    require_regular(path, where, hint)
    try:
        with np.load(path, allow_pickle=False) as archive:
            if (size := sum(each.file_size for each in archive.zip.infolist())) > _LARGEST:
                raise ValueError(f"unpacked it has {size} bytes; at most {_LARGEST} are read")
            return {name: archive[name] for name in archive.files}
    except MemoryError:  # by a header that promises more than there is
        raise InputError("cannot be read: it does not fit into memory", where=where, hint=hint) from None
    except (OSError, ValueError, BadZipFile, EOFError, TypeError, AttributeError, SyntaxError, zlib.error) as error:
        problem = f"cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise InputError(problem, where=where, hint=hint) from None


def given_inputs(arrays: Mapping[str, Array], whole: WholeFile, where: str) -> dict[str, Array]:
    """An array for each input of the file, in its format. Raises InputError where one is missing or does not fit."""
    return {port.name: _fitting(port, arrays.get(port.name), where) for port in whole.inputs}


def given_case(name: str, inputs: Mapping[str, Array], whole: WholeFile) -> WholeCase:
    """Inputs as a case of the user's own."""
    values = tuple(port.name for port in whole.inputs if port.dtype in FORMATS)
    batch, sequence = (*next(iter(inputs.values())).shape, 1, 1)[:2]
    return WholeCase(name, batch, sequence, is_padded=False, inputs=inputs, values=values, kind="own")


def own_cases(name: str, items: Sequence[Mapping[str, Array]], whole: WholeFile, where: str) -> list[WholeCase]:
    """A case for each item of a user's data. Raises InputError for items that do not fit the file."""
    known = [port.name for port in whole.inputs]
    cases = []
    for number, item in enumerate(items):
        place = where if len(items) == 1 else f"{where}, item {number}"
        if unknown := sorted(item.keys() - {*known}):
            raise InputError(f"{unknown[0]!r} is no input of the file", where=place, hint=nearest(unknown[0], known))
        inputs = given_inputs(item, whole, place)
        cases.append(given_case(name if len(items) == 1 else f"{name} {number}", inputs, whole))
    return cases


def _fitting(port: WholeInput, value: Array | None, where: str) -> Array:
    """The value [*shape] in the format of the input. Raises InputError for another shape or kind."""
    if value is None:
        raise InputError(f"holds no array for the input {port.name!r}", where=where, hint="each input needs one")
    fixed = tuple(port.shape or ())
    sizes = zip(fixed, value.shape, strict=False)
    if len(fixed) != value.ndim or any(isinstance(size, int) and size != given for size, given in sizes):
        due = f"[{', '.join(map(str, fixed))}]"
        raise InputError(f"{port.name!r} has the shape {list(value.shape)}, and the file takes {due}", where=where)
    kind = np.dtype(port.dtype)
    if value.dtype.kind not in "fiub" or (value.dtype.kind in "iub") != (kind.kind in "iub"):
        raise InputError(f"{port.name!r} is of {value.dtype}, and the file takes {port.dtype}", where=where)
    if port.rows is not None and value.size and not (-port.rows <= value.min() and value.max() < port.rows):
        problem = f"{port.name!r} goes from {value.min()} to {value.max()}, and indexes a table of {port.rows} rows"
        raise InputError(problem, where=where)
    return value.astype(kind)

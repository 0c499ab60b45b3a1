"""Compares a file with outputs that were saved, of whatever it was made from: that itself is not there to be asked.

σ is measured on the file's own graph, computed in float64 and disturbed, as it is on a source that can be run.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.blackbox.measured import ExpectedOutputs, Measure, Source
from encoder_conformance.commands.validate.against_whole import answers_of, compared, unasked
from encoder_conformance.commands.validate.evidence import ExaminedFile
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.description import WholeFile, WholeInput
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName, dtype_named
from encoder_conformance.subjects.opening import source_session
from encoder_conformance.subjects.subject import SubjectRequest

_SUFFIX = ".npz"


def is_saved(source: SubjectRequest) -> bool:
    return source.target.endswith(_SUFFIX)


def compare_saved(
    source: SubjectRequest, file: ExaminedFile, runs: Sequence[RuntimeRun], logs: Path, progress: Progress
) -> WholeComparison:
    """Each run of the file, given the saved inputs, beside the saved outputs.

    Raises InputError for a file that holds other inputs, no output, or what cannot be compared.
    """
    where, whole = f"--against {source.target}", file.description.whole
    if (why := unasked(file.description)) or whole is None:
        raise InputError(why or "the file could not be read, so that nothing was compared", where=where)
    case, outputs = saved(source.folder / source.target, whole, where)
    held = _widest_rounding(dtype_named(whole.held or "float32"), outputs)
    asked = replace(source, target=str(file.request.model.absolute()))
    session = source_session(asked, logs / "source.log")
    assert session is not None, "a file of ONNX runs"
    progress.begin(f"the noise of {case.name}", 2)
    with closing(session):
        measure = Measure(Source(asked, session, held), few=False)
        if problem := measure.unfit(case):
            raise InputError(f"σ cannot be measured: {problem}", where=where)
        progress.step("is it the same twice")
        measured = measure.expected([case], progress)
    expected = [_beside(each, outputs, held) for each in measured]
    files = list(answers_of(runs, file.request.model, expected, logs, file.request.limits, progress))
    found = compared(source.target, expected, files, measure.failed)
    if not found.verdicts:
        raise InputError("; ".join(found.not_compared), where=where)
    return found


def _beside(measured: ExpectedOutputs, outputs: Outputs, held: DtypeName) -> ExpectedOutputs:
    """The saved outputs, with σ of a difference where they were computed in a format that is no wider."""
    of_saved = {name: FORMATS[dtype_named(str(value.dtype))].roundoff for name, value in _floating(outputs)}
    sigma = {
        name: measured.sigma[name] * (np.sqrt(2) if of_saved.get(name, 0.0) >= FORMATS[held].roundoff else 1.0)
        for name in outputs
        if name in measured.sigma
    }
    return ExpectedOutputs(measured.case, {name: outputs[name] for name in sigma}, sigma)


def _widest_rounding(held: DtypeName, outputs: Outputs) -> DtypeName:
    """The format of the file, or of the saved outputs, whichever rounds more."""
    formats = [held, *(dtype_named(str(value.dtype)) for _, value in _floating(outputs))]
    return max(formats, key=lambda name: FORMATS[name].roundoff)


def _floating(outputs: Outputs) -> Iterator[tuple[str, Array]]:
    return ((name, value) for name, value in outputs.items() if str(value.dtype) in FORMATS)


def saved(path: Path, whole: WholeFile, where: str) -> tuple[WholeCase, Outputs]:
    """The inputs, as a case, and the outputs of an .npz, both by the file's own names."""
    arrays = _read(path, where)
    inputs = {port.name: _fitting(port, arrays.get(port.name), where) for port in whole.inputs}
    known = [port.name for port in whole.outputs]
    outputs = {name: value for name, value in arrays.items() if name not in inputs}
    if unknown := sorted(outputs.keys() - {*known}):
        hint = nearest(unknown[0], [*inputs, *known])
        raise InputError(f"{unknown[0]!r} is neither an input nor an output of the file", where=where, hint=hint)
    if strange := next((name for name, value in outputs.items() if value.dtype.kind not in "fiub"), None):
        raise InputError(f"{strange!r} holds no numbers of NumPy's: {outputs[strange].dtype}", where=where)
    if not outputs:
        raise InputError("holds no output of the file", where=where, hint=f"it has {', '.join(known)}")
    values = tuple(port.name for port in whole.inputs if port.dtype in FORMATS)
    first = next(iter(inputs.values())).shape
    batch, sequence = (*first, 1, 1)[:2]
    return WholeCase(path.name, batch, sequence, False, inputs, values), outputs


def _read(path: Path, where: str) -> Mapping[str, Array]:
    """Raises InputError for what is no archive of NumPy's, or holds objects, which are pickled."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, BadZipFile, EOFError, TypeError) as error:
        problem = f"cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise InputError(problem, where=where, hint="numpy.savez(path, INPUT=…, OUTPUT=…), of numbers") from None


def _fitting(port: WholeInput, value: Array | None, where: str) -> Array:
    """The array for an input, in the input's format. Raises InputError where it has none, or one of another shape."""
    if value is None:
        raise InputError(f"holds no array for the input {port.name!r}", where=where, hint="each input needs one")
    fixed = tuple(port.shape or ())
    sizes = zip(fixed, value.shape, strict=False)
    if len(fixed) != value.ndim or any(isinstance(size, int) and size != given for size, given in sizes):
        due = f"[{', '.join(map(str, fixed))}]"
        raise InputError(f"{port.name!r} has the shape {list(value.shape)}, and the file takes {due}", where=where)
    kind = np.dtype(port.dtype)
    if (value.dtype.kind in "iub") != (kind.kind in "iub"):
        raise InputError(f"{port.name!r} is of {value.dtype}, and the file takes {port.dtype}", where=where)
    return value.astype(kind)

"""Compares a file with outputs that were saved, of whatever it was made from: that itself is not there to be asked.

σ is measured on the file's own graph, computed in float64 and disturbed, as it is on a source that can be run.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from encoder_conformance.blackbox.comparing import Outputs
from encoder_conformance.blackbox.given import given_case, given_inputs, read_arrays
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.blackbox.measured import ExpectedOutputs, Measure, Source
from encoder_conformance.commands.validate.against_whole import answers_of, compared, unasked
from encoder_conformance.commands.validate.evidence import ExaminedFile
from encoder_conformance.commands.validate.runtimes import RuntimeRun
from encoder_conformance.commands.validate.whole import WholeComparison
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.progress import Progress
from encoder_conformance.protocol.description import WholeFile
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
            raise InputError(f"σ cannot be measured: {problem.message}", where=where)
        progress.step("is it the same twice")
        measured = measure.expected([case], progress)
    if measure.changed:
        raise InputError(f"σ cannot be measured: {measure.changed.message}", where=where)
    expected = [_beside(each, outputs, held) for each in measured]
    files = list(answers_of(runs, file, [each.case for each in expected], logs, progress))
    found = compared(source.target, expected, files, measure.failed)
    if not found.verdicts:
        raise InputError("; ".join(found.why_not), where=where)
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
    arrays = read_arrays(path, where, "numpy.savez(path, INPUT=…, OUTPUT=…), of numbers")
    inputs = given_inputs(arrays, whole, where)
    known = [port.name for port in whole.outputs]
    outputs = {name: value for name, value in arrays.items() if name not in inputs}
    if unknown := sorted(outputs.keys() - {*known}):
        hint = nearest(unknown[0], [*inputs, *known])
        raise InputError(f"{unknown[0]!r} is neither an input nor an output of the file", where=where, hint=hint)
    if strange := next((name for name, value in outputs.items() if value.dtype.kind not in "fiub"), None):
        raise InputError(f"{strange!r} holds no numbers of NumPy's: {outputs[strange].dtype}", where=where)
    if not outputs:
        raise InputError("holds no output of the file", where=where, hint=f"it has {', '.join(known)}")
    return given_case(path.name, inputs, whole), outputs

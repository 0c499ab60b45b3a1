"""What `conform validate` says of a file, in two levels of one runtime, and what a comparison of numbers says.

The comparison knows nothing of layers: it runs the file and what it was made from on the same inputs, at other sizes
than the example's.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnxruntime as ort
import torch
from torch import nn

from encoder_conformance.commands.validate.evidence import ValidationRequest
from encoder_conformance.commands.validate.results import Validation
from encoder_conformance.commands.validate.validation import validate
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.platform.progress import Progress
from encoder_conformance.readers.onnx_file.inspection import inspect
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import Constants
from encoder_conformance.subjects.subject import SubjectRequest

LEVELS = (("onnxruntime", "disable"), ("onnxruntime", "all"))
PHASES = "encoder_conformance.commands.validate.phases.table"
FEWER = {
    f"{PHASES}.SIZES": ((1, 1), (2, 7)),
    f"{PHASES}.MASKS": (
        "padding-right", "padded-item", "causal", "causal-padding-left", "mask-per-item", "mask-per-head",
    ),
    f"{PHASES}.NUMBERS": ("no-mask", "low-variance"), f"{PHASES}.PROPERTIES": ("invariant-padding-content",),
}  # fmt: skip
"""What a fault is asked: enough to be seen, in half the time."""
FAR = {"float32": 1e-3, "float16": 0.1, "int": 0.5}
"""The relative error, rms, from which on a file of this format is not what it was made from."""


@contextmanager
def benchmarked(*, fewer: bool) -> Iterator[None]:
    """In two levels, or with `fewer` situations in one. What a file should give is computed here, once for all files
    that hold the same numbers."""
    with ExitStack() as stack:
        stack.enter_context(
            patch("encoder_conformance.commands.validate.runtimes.RUNTIMES", LEVELS[1:] if fewer else LEVELS)
        )
        stack.enter_context(patch("encoder_conformance.oracle.golden.build.compute_all", _compute_here))
        for name, value in FEWER.items() if fewer else ():
            stack.enter_context(patch(name, value))
        yield


_KNOWN: dict[tuple[object, ...], Expected] = {}


def _compute_here(
    cases: list[Case], constants: Constants, jobs: int, *, whole: bool
) -> Iterator[tuple[Case, Expected]]:
    for case in cases:
        assert case.held is not None
        asked = case.id, case.layer.model_dump_json(), case.situation.model_dump_json()
        key = *asked, case.held.digest, constants.condition_runs
        if key not in _KNOWN:
            _KNOWN[key] = compute(case, constants, whole=whole)
        yield case, _KNOWN[key]


def validated(path: Path, against: Path | None, folder: Path) -> Validation:
    quiet = Progress(begin=lambda what, total: None, step=lambda what: None)
    source = SubjectRequest(str(against), folder=folder) if against else None
    asked = ValidationRequest(path, None, None, None, (), {}, None, against=source)
    return validate(asked, folder / "out", 1, quiet)


def validated_row(path: Path, source: Path | None, folder: Path) -> dict[str, Any]:
    found = validated(path, source, folder)
    came = {"not_judged": "refused", "wrong": "wrong", "runtime_wrong": "runtime wrong"}.get(found.conclusion, "right")
    said = next((error.message for error in found.errors), "").replace(f"{folder}/", "")
    return {"came": came, "said": said[:300], "warnings": len(found.warnings)}


def inspected_row(path: Path) -> dict[str, Any]:
    """Right is what has no error and was proved by a run."""
    seen = inspect(path, None)
    errors = seen.findings.errors()
    layer = seen.inferred.layer if seen.inferred else None
    facts = {fact.key: fact.value for fact in seen.inferred.facts} if seen.inferred else {}
    came = "refused" if layer is None else "wrong" if errors or not facts.get("proved") else "right"
    said = errors[0].message if errors else "" if came == "right" else "the run does not prove it"
    warnings = sum(finding.severity == "warning" for finding in seen.findings.found)
    return {"came": came, "said": said[:300], "warnings": warnings}


def sentences(found: Validation) -> list[str]:
    """All that names what is wrong."""
    said = [finding.message for finding in found.findings if finding.severity != "note"]
    said += [str(name) for diagnosis in found.diagnoses for name in diagnosis.deviations]
    return said + [equation.stage for diagnosis in found.diagnoses for equation in diagnosis.equations]


def feeds(path: Path, batch: int = 3, sequence: int = 11) -> dict[str, Any]:
    """Drawn inputs of a file, whose masks let every position be seen."""
    draw, found = np.random.default_rng(5), dict[str, Any]()
    for each in _session(path).get_inputs():
        sizes = [size if isinstance(size, int) else (batch, sequence)[min(at, 1)] for at, size in enumerate(each.shape)]
        if each.type in ("tensor(float)", "tensor(float16)"):
            kind = np.float32 if each.type == "tensor(float)" else np.float16
            found[each.name] = draw.normal(size=sizes).astype(kind)
        elif each.type == "tensor(bool)":
            found[each.name] = np.ones(sizes, np.bool_)
        else:
            ones = "mask" in each.name or "type" in each.name
            found[each.name] = np.full(sizes, int("mask" in each.name)) if ones else draw.integers(3, 60, sizes)
    return found


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def error_against_file(path: Path, source: Path) -> float:
    """The relative error, rms, of the first output."""
    given = feeds(source)
    kinds = {each.name: each.type for each in _session(path).get_inputs()}
    own = {
        name: value.astype(np.float16) if kinds[name] == "tensor(float16)" else value for name, value in given.items()
    }
    return _apart(_session(path).run(None, own)[0], _session(source).run(None, given)[0])


def error_against_module(path: Path, made: Callable[[], nn.Module]) -> float:
    given = feeds(path)
    module = made()
    mask = given["mask"] if type(module).__name__ == "Layer" else ~given["mask"]
    with torch.no_grad():
        due = module(torch.from_numpy(given["x"]), torch.from_numpy(mask))
    return _apart(_session(path).run(None, {**given, "mask": mask})[0], due.numpy())


def _apart(one: Any, other: Any) -> float:
    wide = np.asarray(other, np.float64)
    return float(np.sqrt(((np.asarray(one, np.float64) - wide) ** 2).mean() / (wide**2).mean()))

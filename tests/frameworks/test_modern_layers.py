"""Black boxes of today's layers: σ is measured, right files are within 3 of it, and planted bugs 100 away."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.onnx_files import modern_layers
from benchmarks.onnx_files.modern_layers import BUGS, LAYERS, D, made
from encoder_conformance.blackbox.comparing import judged
from encoder_conformance.blackbox.inputs import WholeCase, WholeInputs
from encoder_conformance.blackbox.measured import ExpectedOutputs, Measure, Source
from encoder_conformance.platform.progress import SILENT
from encoder_conformance.protocol.description import WholeFile, WholeInput
from encoder_conformance.subjects.opening import source_session
from encoder_conformance.subjects.subject import SubjectRequest

INPUTS = WholeInputs(
    WholeFile(
        inputs=(
            WholeInput(name="x", dtype="float32", shape=("batch", "sequence", D)),
            WholeInput(name="mask", dtype="bool", shape=("batch", "sequence")),
        ),
        outputs=(),
        held="float32",
    ),
    {"mask": "attend"},
)
SEEDS = range(3)


@contextmanager
def expected(name: str, folder: Path) -> Iterator[list[ExpectedOutputs]]:
    """What the right layer gives in float64, and σ, as `conform` measures it."""
    request = SubjectRequest(f"{modern_layers.__file__}:made", {"named": name}, folder=folder)
    session = source_session(request, folder / "source.log")
    assert session is not None
    try:
        measure = Measure(Source(request, session, "float32"), few=False)
        cases = INPUTS.cases()
        assert measure.unfit(cases[0]) is None
        yield measure.expected(cases, SILENT)
    finally:
        session.close()


def largest(right: list[ExpectedOutputs], answer: object) -> float:
    """The largest rms of any case, in σ; `answer`: of the inputs of a case."""
    found = []
    for each in right:
        rms, problem, _ = judged(answer(each.case), each.outputs["output"], each.sigma["output"])  # type: ignore[operator]
        found.append(float("inf") if problem or rms is None else rms)
    return max(found)


def in_float32(named: str, case: WholeCase) -> np.ndarray:
    with torch.no_grad():
        x, mask = (torch.from_numpy(np.array(case.inputs[name])) for name in ("x", "mask"))
        return np.asarray(made(named)(x, mask).numpy())


def exported(named: str, path: Path) -> object:
    """The layer as a file, in ONNX Runtime."""
    import onnxruntime

    x, mask = torch.randn(2, 7, D), torch.ones(2, 7, dtype=torch.bool)
    axes = {name: {0: "batch", 1: "sequence"} for name in ("x", "mask", "y")}
    torch.onnx.export(
        made(named), (x, mask), path, dynamo=False, input_names=["x", "mask"], output_names=["y"], dynamic_axes=axes
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda case: session.run(None, dict(case.inputs))[0]


def test_there_are_sixty_bugs_in_twelve_layers() -> None:
    assert BUGS.keys() == LAYERS.keys()
    assert (len(LAYERS), sum(map(len, BUGS.values()))) == (12, 60)


@pytest.mark.release
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("layer", LAYERS)
def test_right_files_are_within_three_sigma_and_bugs_a_hundred_away(layer: str, seed: int, tmp_path: Path) -> None:
    with expected(f"{layer}@{seed}", tmp_path) as right:
        assert largest(right, exported(f"{layer}@{seed}", tmp_path / "layer.onnx")) <= 3
        found = {
            bug: largest(right, lambda case, bug=bug: in_float32(f"{layer}:{bug}@{seed}", case)) for bug in BUGS[layer]
        }
    print(layer, seed, {bug: f"{rms:.3g}" for bug, rms in found.items()})
    assert {bug: rms for bug, rms in found.items() if rms < 100} == {}

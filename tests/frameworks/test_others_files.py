"""A few of the files of docs/onnx-files.md, made anew: what was said of them is said again."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT), *sys.path])
        return importlib.import_module("benchmarks.onnx_files.__main__")


@pytest.mark.parametrize(
    "name",
    ["post-gelu traced, all", "post-gelu traced, half-inside", "post-gelu traced, int8", "post-gelu traced, int4"],
)
def test_a_file_that_a_tool_made_is_proved(benchmark: ModuleType, name: str) -> None:
    [file] = [each for each in benchmark.files() if each.name == name]
    row = benchmark.row_of(file, False)
    assert (row["came"], row["differs"]) == ("right", False), row


@pytest.mark.release
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("key-of-the-query, int8", marks=pytest.mark.release),
        pytest.param("scale-of-d-model, float16", marks=pytest.mark.release),
        "mask-turned-round, float32",
    ],
)
def test_a_planted_fault_is_named_against_its_source(benchmark: ModuleType, name: str) -> None:
    [fault] = [each for each in benchmark.planted() if each.name == name]
    row = benchmark.row_of(fault, True)
    assert (row["caught"], row["named"]) == (True, True), row

"""Layers of transformers by torch's exporter: two in a row, and one by the operators of opset 23, are inferred and
proved, as docs/published_files.json says of them."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import onnx
import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.release


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT), *sys.path])
        found = importlib.import_module("benchmarks.onnx_files.published_layers")
    found.quiet()
    return found


@pytest.mark.parametrize("name", ["t5", "modernbert", "whisper"])
def test_two_layers_are_inferred_and_proved(benchmark: ModuleType, name: str, tmp_path: Path) -> None:
    """A table that both have, a window and a rotation, and keys without a bias."""
    row = benchmark.record(name, 2, 18, benchmark.exported(name, 2, 18, tmp_path / "model.onnx"))
    assert (row["verdict"], row["sentence"]) == ("passes", "inferred and proved")


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("dinov2", {"Attention"}),
        ("eurobert", {"Attention", "RMSNormalization"}),
        ("siglip", {"Attention"}),
    ],
)
def test_a_layer_by_the_operators_of_opset_23_is_inferred_and_proved(
    benchmark: ModuleType, name: str, operators: set[str], tmp_path: Path
) -> None:
    path = benchmark.exported(name, 1, 23, tmp_path / "model.onnx")
    assert operators <= {node.op_type for node in onnx.load(path).graph.node}
    row = benchmark.record(name, 1, 23, path)
    assert (row["verdict"], row["sentence"]) == ("passes", "inferred and proved")


def test_a_second_layer_that_the_mask_does_not_reach_is_an_error(benchmark: ModuleType, tmp_path: Path) -> None:
    """As a stack of T5 was until its mask was given to each layer: transformers' bias no longer has it inside."""

    def unmasked(self: object, x: object, mask: object) -> object:
        first, second = self.layers  # type: ignore[attr-defined]
        return second(first(x, mask[:, None, None, :]), None)  # type: ignore[index]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark.Exported, "forward", unmasked)
        path = benchmark.exported("bert", 2, 18, tmp_path / "model.onnx")
    row = benchmark.record("bert", 2, 18, path)
    assert row["verdict"] == "fails"
    assert "mask" in row["sentence"]

"""`conform export`, the harness's side: what an exporter is given, what becomes of what it answers, what is refused."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save_file

from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load as load_specification

LAYER = load_specification().layers["post-relu"]

EXPORTER = """
    def write(self, layer, parameters, dtype, mask):
        import json
        from safetensors.numpy import save
        said = {"layer": layer["layer"], "dtype": dtype, "mask": mask, "level": self.choices.get("level", "")}
        return save(parameters, {"said": json.dumps(said)})

    def read_checkpoint(self, layer, like, dtype, path):
        from safetensors.numpy import load_file
        held = {name.removeprefix("own."): value for name, value in load_file(path).items()}
        if "norm1.gain" not in held:
            raise ValueError("own.norm1.gain is missing")
        return held
"""


@pytest.fixture
def exporter(fake: Callable) -> Callable[..., Path]:
    """A fake whose files are safetensors of what it was given."""

    def write(lie: str = EXPORTER) -> Path:
        folder: Path = fake("exporter", lie, stages="all\n  export: true")
        return folder

    return write


def test_what_is_written_is_what_the_exporter_was_given(conform: Callable, exporter: Callable, tmp_path: Path) -> None:
    target = tmp_path / "model.file"
    ended = conform("export", exporter(), "--layer", "post-relu", "--to", target)
    assert ended.status == 0, ended.stderr
    assert "post-relu in float32 by exporter" in ended.stdout
    held = load(target.read_bytes())
    due = layer_parameters(LAYER, {})
    assert set(held) == set(due)
    for name, value in due.items():
        assert held[name].dtype == np.float32
        assert np.array_equal(held[name], value)
    assert b'\\"mask\\": \\"padding\\"' in target.read_bytes()


def test_parameters_of_a_file_of_ones_own(conform: Callable, exporter: Callable, tmp_path: Path) -> None:
    mine = {name: np.full(value.shape, 0.5, np.float32) for name, value in layer_parameters(LAYER, {}).items()}
    save_file(mine, tmp_path / "mine.safetensors")
    save_file({f"own.{name}": value * 3 for name, value in mine.items()}, tmp_path / "mine.ckpt")
    for option, name, expected in (("--parameters", "mine.safetensors", 0.5), ("--checkpoint", "mine.ckpt", 1.5)):
        (tmp_path / "exporter").exists() or exporter()
        target = tmp_path / f"{name}.out"
        ended = conform(
            "export",
            tmp_path / "exporter",
            "--layer",
            "post-relu",
            option,
            tmp_path / name,
            "--to",
            target,
            "--mask",
            "full",
        )
        assert ended.status == 0, ended.stderr
        assert {float(value.min()) for value in load(target.read_bytes()).values()} == {expected}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--parameters", "absent.safetensors"], "--parameters absent.safetensors: cannot be read"),
        (["--parameters", "less.safetensors"], "holds no parameters of post-relu: attention.output.bias missing"),
        (["--parameters", "other.safetensors"], "norm1.gain is [3], and the layer's is ["),
        (["--parameters", "full.safetensors", "--checkpoint", "less.safetensors"], "are given twice"),
        (["--checkpoint", "empty.safetensors"], "own.norm1.gain is missing"),
        (["--layer", "post-rellu"], "no layer 'post-rellu'"),
        (["--to", "no-such-folder/model.onnx"], "cannot be written"),
        (["--to", "."], "cannot be written"),
        (["--to", "less.safetensors/model.onnx"], "cannot be written"),
        (["--to", "m" * 300], "cannot be written: File name too long"),
        pytest.param(["--to", "/proc/model.onnx"], "cannot be written: ", marks=pytest.mark.linux),
    ],
)
def test_what_cannot_be_exported_is_said(
    conform: Callable, exporter: Callable, tmp_path: Path, arguments: list[str], said: str
) -> None:
    full = {name: value.astype(np.float32) for name, value in layer_parameters(LAYER, {}).items()}
    save_file(full, tmp_path / "full.safetensors")
    save_file({k: v for k, v in full.items() if k != "attention.output.bias"}, tmp_path / "less.safetensors")
    save_file(full | {"norm1.gain": np.ones(3, np.float32)}, tmp_path / "other.safetensors")
    save_file({"nothing": np.ones(1, np.float32)}, tmp_path / "empty.safetensors")
    before = sorted(tmp_path.iterdir())
    folder = exporter()
    usual = [] if "--layer" in arguments else ["--layer", "post-relu"]
    usual += [] if "--to" in arguments else ["--to", "model.onnx"]
    ended = conform("export", folder, *usual, *arguments)
    assert ended.status == 2, ended.stdout
    assert said in ended.stderr, ended.stderr
    assert sorted(tmp_path.iterdir()) == sorted([*before, folder])


def test_an_exporter_that_fails_leaves_nothing_behind(conform: Callable, exporter: Callable, tmp_path: Path) -> None:
    target = tmp_path / "model.onnx"
    target.write_bytes(b"before")
    refused = conform("export", exporter(), "--layer", "post-relu", "--to", target)
    assert (refused.status, "model.onnx: is there already" in refused.stderr) == (2, True), refused.stderr
    shutil.rmtree(tmp_path / "exporter")
    failing = "\n    def write(self, layer, parameters, dtype, mask):\n        raise RuntimeError('no such operator')\n"
    ended = conform("export", exporter(failing), "--layer", "post-relu", "--to", target, "--overwrite")
    assert ended.status == 1
    assert "exporter cannot export post-relu: export: RuntimeError: no such operator" in ended.stderr
    assert target.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["exporter", "model.onnx"]


def test_an_implementation_that_exports_nothing_says_who_does(conform: Callable, honest: Path) -> None:
    ended = conform("export", honest, "--layer", "post-relu", "--to", "model.onnx")
    assert ended.status == 2
    assert "honest exports nothing" in ended.stderr

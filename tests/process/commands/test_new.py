"""`conform new`: a folder that works but for its blanks, and names that it refuses; how long an adapter is."""

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from encoder_conformance.commands.new.command import FRAMEWORKS
from encoder_conformance.implementation.manifest import known_folders, read_implementation_manifest
from encoder_conformance.platform.paths import IMPLS

LINES, FILES = 100, 2
"""What an adapter for a new Python backend takes, beside impl.yaml and an encoder of its own."""


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_new_folder_is_whole_and_its_blanks_are_named(conform: Callable, tmp_path: Path, framework: str) -> None:
    ended = conform("new", "my_backend", "--framework", framework)
    assert ended.status == 0, ended.stderr
    folder = tmp_path / "my_backend"
    assert {"impl.yaml", "adapter.py", "requirements.txt"} <= {path.name for path in folder.iterdir()}
    assert read_implementation_manifest(folder).framework == FRAMEWORKS[framework].title
    for path in folder.glob("*.py"):
        ast.parse(path.read_text())
    text = "".join(path.read_text() for path in folder.iterdir())
    assert "$" not in text, "a placeholder was left"
    said = [line for line in ended.stdout.splitlines() if ": BLANK: " in line]
    assert 1 <= len(said) <= 3
    for line in said:
        file, number, _ = line.strip().split(":", 2)
        assert "NotImplementedError" in (tmp_path / file).read_text().splitlines()[int(number) - 1]
        assert "[B, S, D]" in line or "[batch, sequence, D]" in line
    assert "conform smoke ./my_backend" in ended.stdout


def test_the_plain_form_passes_smoke_once_its_blanks_are_filled(
    conform: Callable, filled: Callable, tmp_path: Path
) -> None:
    assert conform("new", "plain", "--framework", "numpy", "--out", "made/here").status == 0
    empty = conform("smoke", tmp_path / "made" / "here" / "plain", "--json")
    assert empty.status == 1
    assert json.loads(empty.stdout)["verdict"] == "blank"
    folder = filled("numpy")
    ended = conform("smoke", folder)
    assert ended.status == 0, ended.stdout + ended.stderr
    cases = ("--case", "pre-gelu-tanh/*padding-right", "--case", "post-relu/causal*")
    ran = conform("run", "--impl", folder, *cases, "--dtype", "float32")
    assert ran.status == 0, ran.stdout + ran.stderr
    assert "pass" in ran.outcomes()
    told_nothing = "--case", "pre-gelu-512/no-mask", "--case", "pre-gelu-512/length-5", "--dtype", "float32"
    ran = conform("run", "--impl", f"{folder}:defaults=own", *told_nothing)
    assert ran.status == 0, ran.stdout + ran.stderr
    encoder = folder / "encoder.py"
    encoder.write_text(encoder.read_text().replace('"num_heads": 8', '"num_heads": 7'))
    ran = conform("run", "--impl", f"{folder}:defaults=own", *told_nothing[2:])
    assert ran.outcomes() == ["error"]
    assert "d_model = 512 is not divisible by num_heads = 7" in ran.messages()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MyBackend", "is no name for an implementation"),
        ("my-backend", "is no name for an implementation"),
        ("2nd", "is no name for an implementation"),
        ("class", "is no name for an implementation"),
        ("../elsewhere", "is no name for an implementation"),
        ("json", "is the name of a module, which the folder would shadow"),
        ("torch", "is the name of a module, which the folder would shadow"),
        ("numpy", "for example numpy_layer"),
        ("pytorch", "is an implementation already"),
        ("taken", "exists already"),
    ],
)
def test_a_name_that_would_not_do_is_refused_and_nothing_is_written(
    conform: Callable, tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "taken").mkdir()
    ended = conform("new", name, "--framework", "numpy")
    assert ended.status == 2
    assert said in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert not any((tmp_path / "taken").iterdir())


def test_what_cannot_be_written_leaves_nothing_behind(conform: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = conform("new", "my_backend", "--framework", "jax", "--out", "file")
    assert ended.status == 2
    assert "Traceback" not in ended.stderr
    ended = conform("new", "my_backend", "--framework", "fortran")
    assert ended.status == 2
    assert "'pytorch', 'keras', 'jax', 'onnx', 'numpy'" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def lines_of(folder: Path) -> tuple[int, list[str]]:
    """Lines of Python in an adapter, and its files; `__init__.py` makes it a package of this repository's."""
    files = [
        path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in ("impl.yaml", "encoder.py")
    ]
    files = [path for path in files if path.name != "__init__.py"]
    return sum(len(p.read_text().splitlines()) for p in files if p.suffix == ".py"), [path.name for path in files]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_adapter_that_new_makes_is_short(conform: Callable, tmp_path: Path, framework: str) -> None:
    conform("new", "my_backend", "--framework", framework)
    count, files = lines_of(tmp_path / "my_backend")
    assert 20 < count <= LINES
    assert len(files) <= FILES, files


def of_a_library() -> list[str]:
    """Those that drive a layer which a library has: no encoder.py, and neither an export of ours, nor a file of the
    user's, nor one layer for each published encoder."""
    found = []
    for name, folder in known_folders().items():
        manifest = read_implementation_manifest(folder)
        exports = manifest.capabilities.export or manifest.runs_by_name_alone
        if (
            manifest.command[0] == "python"
            and folder.parent == IMPLS
            and not (folder / "encoder.py").exists()
            and not exports
        ):
            found.append(name)
    return found


def test_there_are_adapters_of_libraries_to_count() -> None:
    assert "mlx_nn" in of_a_library()


@pytest.mark.parametrize("name", of_a_library())
def test_an_adapter_of_a_library_s_own_layer_is_short(name: str) -> None:
    count, files = lines_of(IMPLS / name)
    assert 20 < count <= LINES
    assert len(files) <= FILES, files

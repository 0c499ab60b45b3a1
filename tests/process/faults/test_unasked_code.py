"""No code runs that the user did not ask for: no interpreter that lies about, no package on the way to another."""

import json
import os
import sys
from collections.abc import Callable
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from encoder_conformance.implementation.interpreter import passed_on
from encoder_conformance.implementation.lookup import is_there, places

ONE = ("--case", "pre-gelu/no-mask", "--dtype", "float32")


def leaves_a_mark(path: Path, mark: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\ntouch {mark}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    "command",
    [("list", "impls"), ("run", "--impl", "keras_tf"), pytest.param(("smoke", "keras_tf"), marks=pytest.mark.release)],
    ids=str,
)
def test_no_interpreter_of_the_working_directory_is_executed(
    conform: Callable, tmp_path: Path, command: tuple[str, ...]
) -> None:
    mark = tmp_path / "executed"
    for name in ("keras_tf", "mlx_nn", "node_onnx"):
        leaves_a_mark(tmp_path / ".tox" / name / "bin" / "python", mark)
    hidden = tmp_path / "without"  # this interpreter must lack what is required, or no other is looked for
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hide:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('keras', 'tensorflow', 'mlx'): raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hide())\n"
    )
    path = os.pathsep.join([str(hidden), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = conform(*command, *(ONE if command[0] == "run" else ()), env={**os.environ, "PYTHONPATH": path})
    assert ended.status in (0, 2), ended.stderr
    assert "Traceback" not in ended.stderr
    assert not mark.exists()


def test_a_module_of_the_working_directory_is_not_imported_to_look_for_another(
    conform: Callable, fake: Callable, tmp_path: Path
) -> None:
    """A named interpreter is asked which modules it has; `python -c` would have the working directory on its path."""
    (tmp_path / "importlib").mkdir()
    (tmp_path / "importlib" / "__init__.py").write_text("raise SystemExit('imported')\n")
    folder = fake("honest_copy", requires="[numpy]")
    ended = conform("run", "--impl", folder, *ONE, "--python", f"honest_copy={sys.executable}")
    assert ended.status == 0, ended.stdout + ended.stderr


PACKAGE = "open({mark!r}, 'w').close()\nraise SystemExit('imported')\n"


@pytest.mark.parametrize(
    ("module", "there"),
    [
        ("trap", True),
        ("trap.inner", True),
        ("trap.inner.leaf", True),
        ("trap.inner.other", False),
        ("trap.missing.leaf", False),
        ("missing.inner", False),
        ("trap.inner.leaf.more", False),
        ("", False),
        (".inner", False),
        ("trap..leaf", False),
        ("trap/inner", False),
    ],
)
def test_a_module_is_looked_for_without_importing_what_is_on_the_way(
    module: str, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "imported"
    for folder in ("trap", "trap/inner"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text(PACKAGE.format(mark=str(mark)))
    (tmp_path / "trap" / "inner" / "leaf.py").write_text(PACKAGE.format(mark=str(mark)))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert is_there(module) is there
    assert not mark.exists()


@pytest.mark.parametrize("requires", ["[pkg_that_is_missing.sub]", "[numpy.nowhere.at.all]", "['', '..x']"])
def test_a_missing_parent_is_no_traceback(conform: Callable, fake: Callable, requires: str) -> None:
    folder = fake("needy", requires=requires)
    for command in (("run", "--impl", folder, *ONE), ("smoke", folder)):
        ended = conform(*command)
        assert ended.status == 2
        assert "Traceback" not in ended.stderr
        assert "not importable" in ended.stderr


SECRETS = (
    "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "SSH_AUTH_SOCK", "NODE_AUTH_TOKEN", "HF_TOKEN", "DATABASE_URL",
    "ONNX_API_KEY", "TORCH_PASSWORD", "GOOGLE_APPLICATION_CREDENTIALS", "CONFORM_PRIVATE_KEY",
)  # fmt: skip
NEEDED = (
    "PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "XLA_FLAGS",
    "TF_CPP_MIN_LOG_LEVEL", "KMP_AFFINITY", "PYTHONPATH", "PYTHONHASHSEED", "NODE_PATH", "MALLOC_ARENA_MAX",
    "ONEDNN_MAX_CPU_ISA",
)  # fmt: skip


def test_what_a_worker_needs_is_passed_on_and_no_secret_is() -> None:
    assert passed_on(dict.fromkeys((*SECRETS, *NEEDED), "x")) == dict.fromkeys(NEEDED, "x")


def test_a_worker_sees_no_secret_but_what_its_manifest_names(conform: Callable, fake: Callable, tmp_path: Path) -> None:
    lie = """
    def start(self, device, threads):
        import json
        with open("seen.json", "w") as seen:
            json.dump(sorted(os.environ), seen)
        return super().start(device, threads)
    """
    folder = fake("curious", lie)
    with (folder / "impl.yaml").open("a") as manifest:
        manifest.write("environment: [LICENCE_KEY]\n")
    secrets = dict.fromkeys((*SECRETS, "LICENCE_KEY"), "secret")
    ended = conform("run", "--impl", folder, *ONE, env={**os.environ, **secrets})
    assert ended.status == 0, ended.stdout + ended.stderr
    seen = set(json.loads((folder / "seen.json").read_text()))
    assert seen & set(secrets) == {"LICENCE_KEY"}
    assert {"PATH", "OMP_NUM_THREADS", "CONFORM_WIRE"} <= seen


def test_where_an_interpreter_imports_from_is_found_without_importing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages of an editable install, too, whose place only a finder knows."""
    for package in ("on_the_path", "found"):
        (tmp_path / package / package).mkdir(parents=True)
        (tmp_path / package / package / "__init__.py").write_text(PACKAGE.format(mark=str(tmp_path / "imported")))

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> object:
            place = tmp_path / name / name
            return spec_from_file_location(name, place / "__init__.py") if name == "found" else None

    linked = tmp_path / "on_the_path" / "found-1.dist-info"  # as pip leaves it of an editable install (PEP 610)
    linked.mkdir()
    (linked / "METADATA").write_text("Name: found\nVersion: 1\n")
    (linked / "direct_url.json").write_text('{"url": "file:///somewhere", "dir_info": {"editable": true}}')
    monkeypatch.syspath_prepend(str(tmp_path / "on_the_path"))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    found = [*places()]
    assert {str(tmp_path / "on_the_path"), str(tmp_path / "found" / "found")} <= {*found}
    assert str(Path(sys.prefix, "lib")) in found
    assert sys.prefix not in found  # it may be a project's folder, or a home
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('title: !!python/object/apply:os.system ["touch executed"]', "could not determine a constructor"),
        ("base: ../../elsewhere", "base"),
        ("base: /etc/passwd", "base"),
    ],
)
def test_yaml_executes_nothing_and_a_base_is_no_path(conform: Callable, tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"layer: mine\n{line}\n")
    ended = conform("trace", "--layer", "mine.yaml")
    assert (ended.status, said in ended.stderr) == (2, True), ended.stderr
    assert "root:" not in ended.stderr
    assert not (tmp_path / "executed").exists()

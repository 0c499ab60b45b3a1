"""--isolate: a worker is judged like any other, and where there is no sandbox it is refused. test_untrusted_page.py
attacks it.

Without bubblewrap, or where it may make no namespaces, the tests marked `sandbox` are not selected, and pytest's end
says so with the reason (conftest.py).
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from encoder_conformance.commands.main import cli
from encoder_conformance.platform.errors import InputError
from encoder_conformance.worker import sandbox

ONE = ("--case", "pre-gelu/no-mask", "--dtype", "float32")


@pytest.mark.sandbox
def test_an_isolated_worker_is_judged_like_any_other(conform: Callable, honest: Path, tmp_path: Path) -> None:
    folder = tmp_path / "honest"
    shutil.copytree(honest, folder)
    ended = conform("run", "--impl", folder, *ONE, "--isolate")
    assert ended.outcomes() == ["pass", "pass", "pass"], ended.messages()
    assert ended.report["implementations"][0]["peak_memory"] > 20 << 20


@pytest.mark.sandbox
@pytest.mark.parametrize(("end", "said"), [("os._exit(3)", "exited with status 3"), ("os.kill(os.getpid(), 9)", "")])
def test_an_isolated_worker_that_ends_is_a_crash(
    conform: Callable, honest: Path, tmp_path: Path, end: str, said: str
) -> None:
    """A child in the sandbox holds the wire open meanwhile, and does not outlive it."""
    folder = tmp_path / "honest"
    shutil.copytree(honest, folder)
    adapter = (folder / "adapter.py").read_text()
    stages = "    def stages(self, x: Any, masks: Any, run: Any) -> Tensors:\n"
    assert adapter.count(stages) == 1
    lie = ("import os, signal", "os.fork() or signal.pause()", end)
    at_no_mask = "".join(f"            {line}\n" for line in lie)
    changed = adapter.replace(stages, f"{stages}        if masks.joined() is None:\n{at_no_mask}")
    (folder / "adapter.py").write_text(changed)
    ended = conform("run", "--impl", folder, *ONE, "--isolate")
    assert ended.outcomes() == ["pass", "crash", "pass"], ended.messages()
    assert said in ended.messages()


def refused(folder: Path) -> str:
    """What is said of `--isolate` in this process, in which nothing is judged."""
    ended = CliRunner().invoke(cli, ["run", "--impl", str(folder), *ONE, "--isolate", "--out", "report"])
    assert isinstance(ended.exception, InputError), ended.output
    assert not Path("report").exists()
    return str(ended.exception)


def test_without_bubblewrap_it_is_refused(fake: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sandbox, "find_spec", lambda _: None)
    assert "--isolate: needs bubblewrap" in refused(fake("honest_copy"))


def test_where_no_namespace_may_be_made_it_is_refused_with_the_reason(
    fake: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), os.environ["PATH"]]))
    said = refused(fake("honest_copy"))
    assert "cannot make a sandbox here: bwrap: setting up uid map: Permission denied" in said

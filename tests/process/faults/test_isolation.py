"""--isolate: a worker has no network, no home, no golden, and no file system to write to but its scratch folder.

Without bubblewrap, or where it may make no namespaces, the tests marked `sandbox` are not selected, and pytest's end
says so with the reason (conftest.py).
"""

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from encoder_conformance.commands.main import cli
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import SPECS

ONE = ("--case", "pre-gelu/no-mask", "--dtype", "float32")


LOOKS = """
import json, os, pathlib, socket, sys
from encoder_conformance.protocol.descriptors import open_wire
from encoder_conformance.protocol.frames import read_frame, write_frame

def attempt(action):
    try:
        return repr(action())
    except OSError as error:
        return "failed: " + str(error.strerror)

requests, answers = open_wire()
request = read_frame(requests)
found = {{
    "network": [name for _, name in socket.if_nameindex()],
    "connect": attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 1)),
    "home": attempt(lambda: os.listdir({home!r})),
    "secret": attempt(lambda: pathlib.Path({secret!r}).read_text()),
    "write-here": attempt(lambda: open("written", "w")),
    "write-system": attempt(lambda: open("/usr/written", "w")),
    "write-code": attempt(lambda: open(sys.modules["encoder_conformance"].__path__[0] + "/written", "w")),
    "scratch": attempt(lambda: pathlib.Path("/tmp/scratch").write_text("x")),
    "scratch-home": attempt(lambda: pathlib.Path.home().joinpath("x").write_text("x")),
    "golden": [str(p) for folder in {goldens!r} for p in pathlib.Path(folder).glob("*")],
    "their-code": attempt(lambda: __import__("theirs").VALUE),
    "processes": [pid for pid in os.listdir("/proc") if pid.isdigit()],
    "signal": attempt(lambda: os.kill({pid}, 0)),
    "environment": sorted(os.environ),
}}
write_frame(answers, {{"id": request.message["id"], "ok": True, "protocol": 3, "settings": found}})
read_frame(requests)
"""


@pytest.mark.sandbox
def test_an_isolated_worker_reaches_nothing(conform: Callable, fake: Callable, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    secret = home / "secret.txt"
    secret.write_text("secret")
    checkout = tmp_path / "checkout"
    installed = checkout / "encoder_conformance" / "_specs" / "golden"
    installed.mkdir(parents=True)
    (installed / "expected").write_text("")
    (checkout / "theirs.py").write_text("VALUE = 'imported'")
    with socket.create_server(("127.0.0.1", 0)) as server:
        facts = {
            "port": server.getsockname()[1], "home": str(home), "secret": str(secret),
            "goldens": [str(SPECS / "golden"), str(installed)], "pid": os.getpid(),
        }  # fmt: skip
        script = LOOKS.format(**facts)
        folder = fake("looker", script=script)
        with (folder / "impl.yaml").open("a") as manifest:
            manifest.write("environment: [LICENCE_KEY]\n")
        # What the interpreter imports from is there, as after an editable install; a home as a whole is not.
        path = os.pathsep.join([str(checkout), str(home)])
        environment = {**os.environ, "HOME": str(home), "LICENCE_KEY": "secret", "PYTHONPATH": path}
        ended = conform("run", "--impl", folder, *ONE, "--isolate", env=environment)
    [judged] = ended.report["implementations"]
    found = judged["settings"]
    assert found["network"] in ([], ["lo"]), ended.stdout
    assert found["connect"].startswith("failed: ")
    assert found["home"] == "failed: No such file or directory"
    assert found["secret"].startswith("failed: ")
    for place in ("write-here", "write-system", "write-code"):
        assert found[place] == "failed: Read-only file system", place
    assert found["scratch"] == found["scratch-home"] == "1"
    assert found["golden"] == []
    assert found["their-code"] == "'imported'"
    assert len(found["processes"]) <= 3
    assert found["signal"] == "failed: No such process"
    assert "LICENCE_KEY" not in found["environment"]


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

"""What docs/untrusted.md says of `--isolate`, sentence by sentence: each is attacked for real, by an adapter that is
started by the user of this session, and by nobody where root can start something as nobody.

Without bubblewrap, or where it may make no namespaces, these tests are not selected, and pytest's end says so with the
reason (conftest.py).
"""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from other_user import UID, as_other_user

from encoder_conformance.platform.paths import SPECS

ONE = ("--case", "pre-gelu/no-mask", "--dtype", "float32", "--jobs", "1")
HONEST = Path(__file__).resolve().parents[2] / "fakes" / "honest"
CONFORM = Path(sys.executable).with_name("conform")
SYSTEM = {"bin", "dev", "etc", "lib", "lib32", "lib64", "nix", "proc", "sbin", "sys", "tmp", "usr", "var"}
DENIED = ("failed: Operation not permitted", "failed: Permission denied")
READ_ONLY = "failed: Read-only file system"

pytestmark = pytest.mark.sandbox


NOBODY = pytest.param("nobody", marks=[pytest.mark.other_user, pytest.mark.release])


@pytest.fixture(scope="module", params=["own", NOBODY])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[Path, list[str]]]:
    """A folder that belongs to a user, with a home in it, and what starts a command as that user."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as made:
        folder, before = Path(made), as_other_user() if request.param == "nobody" else []
        (folder / "home" / ".cargo" / "bin").mkdir(parents=True)
        (folder / "home" / "secret.txt").write_text("SECRET")
        (folder / "home" / ".cargo" / "credentials.toml").write_text("SECRET")
        shutil.copy("/bin/sh", folder / "home" / ".cargo" / "bin" / "cargo")
        golden = folder / "checkout" / "encoder_conformance" / "_specs" / "golden"
        golden.mkdir(parents=True)
        (golden / "expected").touch()
        (folder / "checkout" / "theirs.py").write_text("VALUE = 'imported'")
        (folder / "alias").symlink_to("checkout")
        yield folder, before


def belongs(place: tuple[Path, list[str]]) -> None:
    """All below it is its user's."""
    folder, before = place
    for each in (folder, *folder.rglob("*")) if before else ():
        os.chown(each, UID, UID, follow_symlinks=False)


def told(place: tuple[Path, list[str]], *words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command of the user's, in that folder."""
    folder, before = place
    belongs(place)
    environment = {**os.environ, "HOME": str(folder / "home"), **variables}
    command = [*before, str(CONFORM), *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def implementation(folder: Path, command: str, **replaced: str) -> Path:
    """The honest fake's manifest with another command."""
    folder.mkdir()
    lines = (HONEST / "impl.yaml").read_text().splitlines()
    given = {"name": folder.name, "command": command, "requires": "[]", **replaced}
    changed = [f"{key}: {given[key]}" if (key := line.partition(":")[0]) in given else line for line in lines]
    (folder / "impl.yaml").write_text("\n".join(changed) + "\n")
    return folder


def key_of_session(name: str) -> int:
    """The number of a key of this name in the keyring of this session, whose content is SECRET."""
    number = 248 if os.uname().machine == "x86_64" else 217
    return int(ctypes.CDLL(None).syscall(number, b"user", name.encode(), b"SECRET", 6, -3))


@pytest.fixture(scope="module")
def found(place: tuple[Path, list[str]]) -> dict[str, Any]:
    """What a hostile adapter saw and did, in one run."""
    folder, _ = place
    evil = implementation(folder / "attacker", "[python, attacker.py]")
    shutil.copy(Path(__file__).with_name("attacker.py"), evil)
    (evil / "link").symlink_to(folder / "home")
    with (evil / "impl.yaml").open("a") as manifest:
        manifest.write("environment: [LICENCE_KEY]\n")
    goldens = [SPECS, *(folder / name / "encoder_conformance" / "_specs" for name in ("checkout", "alias"))]
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0conform-{folder.name}")
        abstract.listen()
        facts = {
            "port": server.getsockname()[1], "abstract": f"conform-{folder.name}", "home": str(folder / "home"),
            "secret": str(folder / "home" / "secret.txt"), "pid": os.getpid(),
            "goldens": [str(each / "golden") for each in goldens], "key": key_of_session(folder.name),
            "key-name": folder.name,
        }  # fmt: skip
        (evil / "told.json").write_text(json.dumps(facts))
        paths = os.pathsep.join(str(folder / name) for name in ("checkout", "alias", "home"))
        variables = {"PYTHONPATH": paths, "LICENCE_KEY": "SECRET", "GITHUB_TOKEN": "SECRET"}
        ended = told(
            place, "run", "--impl", evil, *ONE, "--isolate", "--memory", "500MiB", "--out", "seen", **variables
        )
    settings = json.loads((folder / "seen" / "report.json").read_text())["implementations"][0]["settings"]
    assert settings, ended.stderr + (folder / "seen" / "logs" / "attacker.log").read_text()
    return {**settings, "conform": ended}


def test_there_is_no_network_the_loopback_interface_of_the_host_included(found: dict[str, Any]) -> None:
    assert found["interfaces"] in ([], ["lo"])
    for tried in ("connect", "outside", "abstract"):
        assert found[tried].startswith("failed: "), tried


def test_the_home_and_other_users_files_are_not_there_by_any_path(found: dict[str, Any]) -> None:
    assert found["home"] == "failed: No such file or directory"
    assert {*found["secret"].values()} <= {"failed: No such file or directory", "failed: Permission denied"}
    interpreter = {part for prefix in (sys.prefix, sys.base_prefix, SPECS) for part in Path(prefix).parts}
    assert {*found["top"], *found["own-home"]} - interpreter <= SYSTEM


def test_all_is_read_only_but_the_scratch_folders(found: dict[str, Any]) -> None:
    assert {*found["write"].values()} <= {READ_ONLY, *DENIED, "failed: No such file or directory"}, found["write"]
    assert not [each for each in ("/usr/written", "/written", "/dev/written") if Path(each).exists()]


def test_nothing_is_remounted_uncovered_or_made_whoever_starts_it(found: dict[str, Any]) -> None:
    assert {*found["remount"].values(), *found["uncover"], found["device"], found["root"]} <= {*DENIED}
    assert {line.split()[1] for line in found["capabilities"]} == {"0000000000000000"}
    for tried in found["namespace"]:
        assert tried.startswith("failed: ")


def test_scratch_is_empty_limited_by_the_memory_and_a_home(found: dict[str, Any]) -> None:
    interpreter = {part for prefix in (sys.prefix, sys.base_prefix) for part in Path(prefix).parts}
    for name in ("tmp", "shm"):
        assert {*found[name]} <= interpreter, "nothing but the way to Python, where that lies there"
        assert found[f"{name}-size"] == 500 << 20
        assert found[f"{name}-write"] == "1"
    assert found["home-write"] == "1"


def test_expected_values_are_not_there_by_any_path(found: dict[str, Any]) -> None:
    assert found["goldens"] == []


def test_no_process_outside_is_seen_or_signalled(found: dict[str, Any]) -> None:
    assert len(found["processes"]) <= 3
    assert found["signal"] == "failed: No such process"


def test_no_variable_of_the_users_is_passed_on_even_if_the_manifest_names_it(found: dict[str, Any]) -> None:
    assert not {"LICENCE_KEY", "GITHUB_TOKEN"} & {*found["environment"]}


def test_no_descriptor_is_left_open(found: dict[str, Any]) -> None:
    kept = [at for at, leads in found["descriptors"].items() if not leads.startswith("failed: ")]
    assert {*map(int, kept)} <= {0, 1, 2, 3, 4}  # the wire twice, and the log
    assert {found["descriptors"][at].partition(":")[0] for at in kept} <= {"'/dev/null'", "'pipe"}


def test_nothing_that_the_kernel_keeps_for_the_user_is_there(found: dict[str, Any]) -> None:
    """Keys of a session are no files, and no namespace takes them away."""
    assert found["names-of-keys"] == "''" or found["names-of-keys"].startswith("failed: ")
    *tried, read = found["keys"].items()
    assert read == ("read", "b''")
    for name, came in tried:
        assert came in ("failed: Operation not permitted", "failed: Function not implemented"), name


def test_there_are_no_devices_but_those_of_every_program(found: dict[str, Any]) -> None:
    usual = {"core", "fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty"}
    assert {*found["devices"]} <= {*usual, "urandom", "zero"}


def test_what_the_interpreter_imports_from_is_there(found: dict[str, Any]) -> None:
    assert found["their-code"] == "'imported'"


SPELLED = {
    "absolute": "[{home}/.cargo/bin/cargo, steal.sh]",
    "relative": "[../home/.cargo/bin/cargo, steal.sh]",
    "dots": "[{home}/.cargo/../../home/.cargo/bin/cargo, steal.sh]",
    "symlink": "[bin/run, steal.sh]",
    "path-lookup": "[cargo, steal.sh]",
    "python": "[python, ../home/adapter.py]",
    "python-symlink": "[python, link/adapter.py]",
    "env": "[/usr/bin/env, HOME={home}, sh, steal.sh]",
    "shell": "[sh, -c, 'cat {home}/.cargo/credentials.toml ~/.cargo/credentials.toml >&2']",
}


@pytest.mark.release
@pytest.mark.parametrize("spelled", SPELLED)
def test_no_word_of_a_manifest_chooses_what_is_shown(place: tuple[Path, list[str]], spelled: str) -> None:
    folder, _ = place
    home = folder / "home"
    evil = implementation(folder / f"by_{spelled.replace('-', '_')}", SPELLED[spelled].format(home=home))
    (evil / "steal.sh").write_text(f"cat {home}/.cargo/credentials.toml {home}/secret.txt >&2\n")
    (home / "adapter.py").write_text("import sys; sys.exit(open(sys.argv[0]).read() + 'SECRET')\n")
    (evil / "bin").mkdir()
    (evil / "bin" / "run").symlink_to(home / ".cargo" / "bin" / "cargo")
    (evil / "link").symlink_to(home)
    out = folder / f"out_{spelled}"
    path = os.pathsep.join([str(home / ".cargo" / "bin"), os.environ["PATH"]])
    ended = told(place, "run", "--impl", evil, *ONE, "--isolate", "--out", out, PATH=path)
    kept = "".join(file.read_text() for file in out.rglob("*") if file.is_file())
    assert "SECRET" not in kept + ended.stdout + ended.stderr
    assert ended.returncode in (1, 2)
    if spelled in ("absolute", "path-lookup"):
        name = evil.name
        assert f"{home}/.cargo/bin/cargo lies outside of what a sandbox shows: name it, --python {name}=PATH" in kept
        assert "(see " not in kept  # it was never started, so that there is no log


@pytest.mark.release
def test_no_word_of_a_manifest_is_executed_outside(place: tuple[Path, list[str]]) -> None:
    """What starts a worker in Python is asked, outside, what it has installed: a manifest's program never is."""
    from encoder_conformance.implementation.interpreter import LAUNCH

    folder, _ = place
    evil = implementation(folder / "launched", f"[{folder}/launched/run, {LAUNCH}]", requires="[impl.yaml]")
    (evil / "run").write_text(f"#!/bin/sh\ntouch {folder}/escaped\n")
    (evil / "run").chmod(0o755)
    told(place, "run", "--impl", evil, *ONE, "--isolate", "--out", "out_launched")
    assert (folder / "out_launched" / "report.json").exists()
    assert not (folder / "escaped").exists()


@pytest.mark.release
def test_a_bwrap_that_lies_in_its_folder_is_not_taken_for_bubblewrap(place: tuple[Path, list[str]]) -> None:
    folder, _ = place
    evil = implementation(folder / "own_bwrap", "[sh, -c, exit 0]")
    (evil / "bwrap").write_text(f"#!/bin/sh\ntouch {folder}/escaped_by_bwrap\n")
    (evil / "bwrap").chmod(0o755)
    shutil.copy(evil / "bwrap", folder / "bwrap")
    path = os.pathsep.join([".", "", os.environ["PATH"]])
    told(place, "run", "--impl", evil, *ONE, "--isolate", "--out", "out_bwrap", PATH=path)
    assert not (folder / "escaped_by_bwrap").exists()


@pytest.mark.release
def test_a_program_that_the_user_names_is_shown(place: tuple[Path, list[str]]) -> None:
    folder, _ = place
    plain = implementation(folder / "named", "[cargo, steal.sh]")
    (plain / "steal.sh").write_text(f"cat {folder}/home/.cargo/credentials.toml >&2; echo started >&2\n")
    program = folder / "home" / ".cargo" / "bin" / "cargo"
    told(place, "run", "--impl", plain, *ONE, "--isolate", "--python", f"named={program}", "--out", "out_named")
    log = (folder / "out_named" / "logs" / "named.log").read_text()
    assert "started" in log
    assert "SECRET" not in log


@pytest.mark.release
def test_an_interpreter_of_a_home_is_shown_and_the_home_is_not(place: tuple[Path, list[str]]) -> None:
    """An environment in a project's folder, by links from elsewhere: the folder itself is no part of it."""
    folder, _ = place
    project = folder / "home" / "project"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", project], check=True, timeout=60)
    (project / ".env").write_text("SECRET")
    (project / "bin" / "by_link").symlink_to(project / "bin" / "python")
    adapter = f"import os, sys\nsys.stderr.write(str([sys.prefix, os.listdir({str(project)!r})]))\n"
    theirs = implementation(folder / "in_project", "[python, adapter.py]")
    (theirs / "adapter.py").write_text(adapter)
    site = [path for path in sys.path if path.endswith("site-packages")]
    named = f"in_project={project}/bin/by_link"
    told(
        place, "run", "--impl", theirs, *ONE, "--isolate", "--python", named, "--out", "out_project",
        PYTHONPATH=os.pathsep.join(site),
    )  # fmt: skip
    log = (folder / "out_project" / "logs" / "in_project.log").read_text()
    assert str(project) in log
    assert ".env" not in log


def test_a_home_or_a_folder_that_holds_one_is_not_shown_whole(place: tuple[Path, list[str]]) -> None:
    folder, _ = place
    evil = implementation(folder / "a_home", "[sh, -c, 'ls >&2']")
    ended = told(place, "run", "--impl", evil, *ONE, "--isolate", "--out", "out_home", HOME=str(evil))
    assert ended.returncode == 2
    assert "is a home, or holds one, and a sandbox would show it" in ended.stderr


HOLDS = {
    "shm": "open('/dev/shm/held', 'wb').write",
    "tmp": "open('/tmp/held', 'wb').write",
    "memfd": "lambda part: os.write(kept, part)",
    "shared": "shared.write",
}


@pytest.mark.release
@pytest.mark.parametrize("held", HOLDS)
def test_files_in_memory_are_memory(place: tuple[Path, list[str]], held: str) -> None:
    folder, _ = place
    hog = implementation(folder / f"hog_{held}", "[python, adapter.py]")
    lines = (
        "import mmap, os, signal",
        "kept, shared = os.memfd_create('x'), mmap.mmap(-1, 196 << 20)",
        f"keep = {HOLDS[held]}",
        "for _ in range(196): keep(bytes(1 << 20))",
        "signal.pause()",
    )
    (hog / "adapter.py").write_text("\n".join(lines) + "\n")
    out = folder / f"out_{held}"
    ended = told(place, "run", "--impl", hog, *ONE, "--isolate", "--memory", "200MiB", "--out", out)
    assert ended.returncode == 1
    [message] = {record["message"] for record in json.loads((out / "report.json").read_text())["records"]}
    assert "more than its limit (--memory), and was ended" in message


WRONG = """
import runpy
from pathlib import Path
import numpy as np
from encoder_conformance import Adapter, Environment, serve


class Wrong(Adapter):
    def start(self, device, threads):
        return Environment(versions={"numpy": np.__version__})

    def build(self, layer, parameters, dtype):
        return parameters

    def output(self, x, masks, run):
        try:
            Path("MARK").write_text("escaped")
        except OSError:
            pass
        raise ValueError("wrong from the start")


serve(Wrong())
"""


@pytest.mark.release
def test_what_follows_an_isolated_run_is_isolated(place: tuple[Path, list[str]]) -> None:
    """The command that repeats a case, and the script that shows it, which is run once."""
    folder, _ = place
    wrong = implementation(folder / "wrong", "[python, adapter.py]", checks="[output]")
    manifest = (wrong / "impl.yaml").read_text().replace("checks: [output, weights,", "checks: [output] #")
    (wrong / "impl.yaml").write_text(manifest)
    (wrong / "adapter.py").write_text(WRONG.replace("MARK", str(folder / "escaped_by_script")))
    judged = told(place, "run", "--impl", "./wrong", *ONE, "--isolate", "--memory", "1GiB", "--out", "out_wrong")
    assert judged.returncode == 1, judged.stderr
    explained = told(place, "explain", "--out", "out_wrong")
    repeat = explained.stdout.partition("Repeat: ")[2]
    assert "--isolate" in repeat.split()
    assert "--memory 1GiB" in repeat
    shown = told(place, "reproduce", "--impl", "./wrong", "--out", "out_wrong", "--to", "script.py")
    assert (shown.returncode, "It shows" in shown.stdout) == (0, True), shown.stdout + shown.stderr
    assert not (folder / "escaped_by_script").exists()
    merged = told(place, "merge", "out_wrong", "--to", "merged")
    again = told(place, "reproduce", "--impl", "./wrong", "--out", "merged", "--to", "again.py")
    assert "It shows" in again.stdout, merged.stderr + again.stdout + again.stderr
    assert not (folder / "escaped_by_script").exists()

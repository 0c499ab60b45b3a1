"""Files that are none, or that are far larger than they look: each is refused in a sentence by what would read it, and
nothing waits for what never comes."""

import io
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import chdir
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from products import daily

from encoder_conformance.blackbox.given import read_arrays
from encoder_conformance.platform.errors import InputError

KINDS = {
    "pipe": os.mkfifo,
    "socket": lambda path: socket.socket(socket.AF_UNIX).bind(path.name),  # a whole path may be too long for one
    "endless": lambda path: path.symlink_to("/dev/zero"),
}
READERS = {
    "explain": (("explain", "--out", "run"), "run/report.json"),
    "summarize": (("summarize", "run", "--junit", "junit.xml"), "run/report.json"),
    "report": (("report", "run", "--to", "site"), "run/report.json"),
    "judge": (("judge", "odd.safetensors", "--asked", "asked.safetensors"), "odd.safetensors"),
    "judge-asked": (("judge", "asked.safetensors", "--asked", "odd.safetensors"), "odd.safetensors"),
    "layer": (("run", "--layer", "odd.yaml"), "odd.yaml"),
}
DAILY = (("explain", "pipe"), ("judge", "pipe"))


@pytest.mark.linux
@pytest.mark.parametrize(("reader", "kind"), daily(DAILY, product(READERS, KINDS)))
def test_what_is_no_regular_file_is_refused(conform: Callable, tmp_path: Path, reader: str, kind: str) -> None:
    words, name = READERS[reader]
    if reader.startswith("judge"):
        assert conform("ask", "--layer", "pre-gelu", "--dtype", "float32", "--to", "asked.safetensors").status == 0
    odd = tmp_path / name
    odd.parent.mkdir(exist_ok=True)
    with chdir(odd.parent):
        KINDS[kind](odd)
    ended = conform(*words)
    assert (ended.status, "regular file" in ended.stderr) == (2, True), ended.stderr


@pytest.mark.release
@pytest.mark.linux
def test_the_records_of_a_run_that_did_not_end_are_no_pipe(conform: Callable, honest: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("--impl", honest, "--case", "pre-gelu/no-mask", "--dtype", "float32", "--out", run)
    assert conform("run", *words).status == 0
    report = (run / "report.json").read_text()
    assert report.count('"complete": true') == 1
    (run / "report.json").write_text(report.replace('"complete": true', '"complete": false'))
    (run / "records.jsonl").unlink(missing_ok=True)
    os.mkfifo(run / "records.jsonl")
    ended = conform("explain", "--out", run)
    assert (ended.status, "records.jsonl: is no regular file" in ended.stderr) == (2, True), ended.stderr


@pytest.mark.release
@pytest.mark.linux
def test_a_pipe_that_nobody_reads_yet_is_said_and_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    words = [Path(sys.executable).with_name("conform"), "ask", "--layer", "pre-gelu", "--dtype", "float32"]
    with subprocess.Popen([*words, "--to", "pipe"], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as asking:
        assert asking.stderr is not None
        assert asking.stderr.readline() == "conform: pipe: is a pipe; waiting for somebody to read it\n"
        assert (tmp_path / "pipe").read_bytes()
        assert asking.wait(timeout=60) == 0


def test_a_line_that_no_memory_should_hold_is_refused(conform: Callable, tmp_path: Path) -> None:
    """3 GiB, of which the disk holds nothing."""
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / "report.json").open("wb") as file:
        file.truncate(3 << 30)
    ended = conform("explain", "--out", "run")
    assert (ended.status, "it has a line of more than 128 MiB" in ended.stderr) == (2, True), ended.stderr


def archive(path: Path, held: bytes, promised: int) -> None:
    """An .npz of one array that promises so many numbers, and has these bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (promised,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", header.getvalue() + held)


def test_an_archive_that_promises_more_than_it_has_is_refused(tmp_path: Path) -> None:
    for promised in (100, 1 << 50):
        archive(tmp_path / "x.npz", bytes(8), promised)
        with pytest.raises(InputError, match="cannot be read: ") as refused:
            read_arrays(tmp_path / "x.npz", "--data x.npz", "an .npz")
        assert refused.value.where == "--data x.npz"


def test_an_archive_that_is_small_until_it_is_unpacked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is 2 GiB; a smaller one takes less time to fill."""
    monkeypatch.setattr("encoder_conformance.blackbox.given._LARGEST", 1 << 20)
    archive(tmp_path / "x.npz", bytes(1 << 20), 1 << 18)
    assert (tmp_path / "x.npz").stat().st_size < 1 << 14
    with pytest.raises(InputError, match="unpacked it has 1048704 bytes; at most 1048576 are read"):
        read_arrays(tmp_path / "x.npz", "--data x.npz", "an .npz")
    archive(tmp_path / "x.npz", bytes(1 << 19), 1 << 17)
    assert read_arrays(tmp_path / "x.npz", "--data x.npz", "an .npz")["x"].shape == (1 << 17,)


def test_an_archive_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([Unpickled(tmp_path / "unpickled")], dtype=object))
    with pytest.raises(InputError, match="Object arrays cannot be loaded"):
        read_arrays(tmp_path / "x.npz", "--data x.npz", "an .npz")
    assert not (tmp_path / "unpickled").exists()


class Unpickled:
    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.made,)

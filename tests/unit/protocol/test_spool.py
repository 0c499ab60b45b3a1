"""Values and tensors that lie in a temporary file, and matrices that are nearly all zeros."""

import gc
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from encoder_conformance.judging.checks.training.probe import Probe
from encoder_conformance.protocol.spool import Spool
from encoder_conformance.protocol.streamed import PART
from encoder_conformance.spec.load import load
from encoder_conformance.spec.parameters import parameters_of

SIZE, FLOAT = 2 * PART + 5, np.dtype(np.float32)
VALUES = np.arange(SIZE, dtype=FLOAT)


class Source:
    """Parts of VALUES; it counts how many were made."""

    made = 0

    def __iter__(self) -> Iterator[np.ndarray]:
        for begin in range(0, SIZE, PART):
            self.made += 1
            yield VALUES[begin : begin + PART]


def read(file: Spool, source: Source, key: str = "weight") -> np.ndarray:
    return np.concatenate(list(file.parts(key, source, VALUES.nbytes)))


def test_a_tensor_is_made_once_and_read_with_the_same_bits() -> None:
    file, source = Spool(), Source()
    for _ in range(3):
        assert np.array_equal(read(file, source), VALUES)
    assert source.made == 3, "three parts, once"
    assert np.array_equal(read(file, Source(), "another"), VALUES)


def test_a_tensor_whose_parts_were_not_all_taken_is_made_again() -> None:
    """A comparison ends at the first difference."""
    file, source = Spool(), Source()
    taken = file.parts("weight", source, VALUES.nbytes)
    next(taken)
    assert np.array_equal(read(file, Source()), VALUES), "by another thread meanwhile"
    taken.close()  # type: ignore[attr-defined]
    assert np.array_equal(read(file, source), VALUES)
    made = source.made
    assert np.array_equal(read(file, source), VALUES)
    assert source.made == made


def test_a_file_has_a_largest_size() -> None:
    file, source = Spool(largest=SIZE * 4), Source()
    read(file, source)
    beyond = Source()
    for _ in range(2):
        assert np.array_equal(read(file, beyond, "another"), VALUES)
    assert beyond.made == 6
    read(file, source)
    assert source.made == 3


def test_a_full_disk_costs_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    file, source = Spool(), Source()
    for _ in range(2):
        assert np.array_equal(read(file, source), VALUES)
    assert source.made == 6


@pytest.mark.parametrize("file", ["none can be made", "one that is nearly full"])
def test_a_disk_without_room_gets_no_file(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have temporary files too: three fourths of what is free are left."""
    if file == "none can be made":
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    else:
        disk = os.statvfs(tmp_path)
        free = -(-4 * SIZE * FLOAT.itemsize // disk.f_frsize) - 1
        monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=disk.f_frsize))
    spool, source = Spool(), Source()
    for _ in range(2):
        assert np.array_equal(read(spool, source), VALUES)
    assert source.made == 6


def test_a_spool_uses_the_room_of_what_was_freed() -> None:
    spool = Spool()
    extents = [spool.put(np.full(1000, number)) for number in range(10)]
    for extent in extents[::2]:
        spool.free(extent)
    again = [spool.put(np.full(1000, -number)) for number in range(5)]
    assert {extent.begin for extent in again} == {extent.begin for extent in extents[::2]}
    assert [int(spool.get(extent)[0]) for extent in extents[1::2]] == [1, 3, 5, 7, 9]
    assert [int(spool.get(extent)[-1]) for extent in again] == [0, -1, -2, -3, -4]


def test_a_spool_gives_back_what_it_was_given() -> None:
    """Small arrays, large ones, more of them than one call of the system takes, and none at all."""
    spool = Spool()
    many = {number: np.full(2000, number) for number in range(1200)}
    mixed = {
        "small": np.arange(3.0),
        "large": np.arange(5000.0)[::2].reshape(50, 50).T,
        "empty": np.empty((0, 4)),
        "n": 7,
    }
    many_at, mixed_at = spool.put(many), spool.put(mixed)
    again = spool.get(mixed_at)
    assert again["n"] == 7
    for name in ("small", "large", "empty"):
        assert np.array_equal(again[name], mixed[name])
    again["large"][0, 0] = -1.0  # nobody else has it
    assert spool.get(mixed_at)["large"][0, 0] == 0.0
    assert all((value == number).all() and value.flags.aligned for number, value in spool.get(many_at).items())


def test_a_spool_without_a_disk_keeps_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    spool = Spool()
    extent = spool.put({"a": 1})
    assert spool.get(extent) == {"a": 1}
    spool.free(extent)


@pytest.mark.parametrize("layer", ["pre-gelu", "post-gelu-512"])
def test_the_parts_of_a_probes_matrix_are_its_elements(layer: str) -> None:
    layers = load().layers
    probe = Probe(layers[layer], block=1)
    for parameter in parameters_of(probe.layer):
        sparse, whole = probe.sparse(parameter), probe.parameter(parameter)
        assert (sparse is None) == (whole.ndim == 1)
        if sparse is not None:
            assert np.array_equal(np.concatenate(list(sparse.parts())), whole.reshape(-1)), parameter.name


@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_its_file_is_closed_with_it() -> None:
    file = Spool()
    place = file.put(VALUES)
    assert np.array_equal(file.get(place), VALUES)
    del file
    gc.collect()

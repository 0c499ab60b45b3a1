"""Tensors that are drawn once and then read from a file, and matrices that are nearly all zeros."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from encoder_conformance.checks.training.probe import Probe
from encoder_conformance.spec.load import load
from encoder_conformance.spec.parameters import parameters_of
from encoder_conformance.wire.streamed import PART
from encoder_conformance.worker.parts_file import PartsFile

SIZE, FLOAT = 2 * PART + 5, np.dtype(np.float32)
VALUES = np.arange(SIZE, dtype=FLOAT)


class Source:
    """Parts of VALUES; it counts how many were made."""

    made = 0

    def __iter__(self) -> Iterator[np.ndarray]:
        for begin in range(0, SIZE, PART):
            self.made += 1
            yield VALUES[begin : begin + PART]


def read(file: PartsFile, source: Source, key: str = "weight") -> np.ndarray:
    return np.concatenate(list(file.parts(key, source, SIZE, FLOAT)))


def test_a_tensor_is_made_once_and_read_with_the_same_bits() -> None:
    file, source = PartsFile(), Source()
    for _ in range(3):
        assert np.array_equal(read(file, source), VALUES)
    assert source.made == 3, "three parts, once"
    assert np.array_equal(read(file, Source(), "another"), VALUES)


def test_a_tensor_whose_parts_were_not_all_taken_is_made_again() -> None:
    """A comparison ends at the first difference."""
    file, source = PartsFile(), Source()
    taken = file.parts("weight", source, SIZE, FLOAT)
    next(taken)
    assert np.array_equal(read(file, Source()), VALUES), "by another thread meanwhile"
    taken.close()  # type: ignore[attr-defined]
    assert np.array_equal(read(file, source), VALUES)
    made = source.made
    assert np.array_equal(read(file, source), VALUES)
    assert source.made == made


def test_a_file_has_a_largest_size() -> None:
    file, source = PartsFile(largest=SIZE * 4), Source()
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

    monkeypatch.setattr(os, "pwrite", full)
    file, source = PartsFile(), Source()
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
    parts_file, source = PartsFile(), Source()
    for _ in range(2):
        assert np.array_equal(read(parts_file, source), VALUES)
    assert source.made == 6


@pytest.mark.parametrize("layer", ["pre-gelu", "post-gelu-512"])
def test_the_parts_of_a_probes_matrix_are_its_elements(layer: str) -> None:
    layers = load().layers
    probe = Probe(layers[layer], block=1)
    for parameter in parameters_of(probe.layer):
        sparse, whole = probe.sparse(parameter), probe.parameter(parameter)
        assert (sparse is None) == (whole.ndim == 1)
        if sparse is not None:
            assert np.array_equal(np.concatenate(list(sparse.parts())), whole.reshape(-1)), parameter.name

"""PyTorch checkpoints that somebody sent: nothing in them is run, and nobody is told to run it."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from encoder_conformance.impls.pytorch.checkpoint import read
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load


class _Runs:
    """Unpickled as it asks for, it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def script(path: Path, ran: Path) -> None:
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), path)


CHECKPOINTS = {
    "runs-a-program": lambda path, ran: torch.save({"weight": _Runs(ran)}, path),
    "runs-a-program-in-the-old-format": lambda path, ran: torch.save(
        {"weight": _Runs(ran)}, path, _use_new_zipfile_serialization=False
    ),
    "bare-pickle": lambda path, ran: path.write_bytes(pickle.dumps(_Runs(ran))),
    "whole-module": lambda path, ran: torch.save(torch.nn.Linear(2, 2), path),
    "script": script,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_more_than_tensors_is_refused_without_bad_advice(tmp_path: Path, name: str) -> None:
    """PyTorch's message says that `weights_only=False` will likely succeed. It would: it runs the file."""
    path, ran = tmp_path / "trained.pt", tmp_path / "ran"
    CHECKPOINTS[name](path, ran)
    layer = load().layers["post-relu"]
    like = {key: np.asarray(value, np.float32) for key, value in layer_parameters(layer, {}).items()}
    with pytest.raises(ValueError, match="it is no state dict, or holds more than tensors") as raised:
        read(path, layer.model_dump(mode="json"), like)
    assert "weights_only" not in str(raised.value)
    assert "trusted" not in str(raised.value)
    assert not ran.exists()

"""Reading the encoder's parameters out of a state dict that was saved."""

import pickle
from pathlib import Path
from typing import Any

import torch

from encoder_conformance import Tensors
from encoder_conformance.impls.bases.torch_module.tensors import to_numpy
from encoder_conformance.impls.pytorch.adapter import PARAMETERS

_MORE = "a file with other objects may run any program; ask its author for torch.save(encoder.state_dict(), path)"


def read(path: Path, layer: dict[str, Any], like: Tensors) -> Tensors:
    """Under the specification's names. Nothing but tensors is unpickled.

    Raises KeyError for names that are not the encoder's, ValueError for what is no state dict, or of other sizes, or
    holds more than tensors.
    """
    own = PARAMETERS.to_own(like, layer)
    try:
        held = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # PyTorch's own message recommends to load it without this protection, which runs what the file says.
        if isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error):
            raise ValueError(f"it is no state dict, or holds more than tensors, and is not loaded: {_MORE}") from None
        raise
    if not isinstance(held, dict) or not all(isinstance(value, torch.Tensor) for value in held.values()):
        raise ValueError("it is no state dict: torch.save(encoder.state_dict(), path) writes one")
    for name in set(own) & set(held):
        if own[name].shape != tuple(held[name].shape):
            raise ValueError(f"{name} is {list(held[name].shape)}, and the layer's is {list(own[name].shape)}")
    return PARAMETERS.to_spec({name: to_numpy(value) for name, value in held.items()})

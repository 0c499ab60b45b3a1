"""Whether a module of PyTorch leaves the program's random numbers random: none of its calls sets where they begin."""

import random
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from encoder_conformance.impls.bases.torch_module.tensors import to_tensor
from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.protocol.findings import SourceLine, said_at
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.live import Feeds

_FOREIGN = (str(Path(torch.__file__).parent), str(PACKAGE), "<")
_SETTING = (
    (torch, "manual_seed"), (torch, "seed"), (torch, "set_rng_state"), (torch.random, "manual_seed"),
    (torch.random, "set_rng_state"), (np.random, "seed"), (np.random, "set_state"), (random, "seed"),
    (random, "setstate"),
)  # fmt: skip
_SAID = {"torch": "PyTorch's", "numpy": "NumPy's", "random": "Python's"}


def generator_answer(calls: Mapping[str, Callable[..., Tensor]], feeds: Feeds) -> WayBackAnswer:
    """`calls`: what is said of a mode → (x, masks) → the output."""
    for mode, call in calls.items():
        lines: list[str] = []
        with _watched(lines):
            _run(call, feeds)
        first, again, other = (_states(call, feeds, seed) for seed in (1, 1, 2))
        for name, said in _SAID.items():
            if first[name] == other[name] or (lines and first[name] != again[name]):
                line = next(iter(lines), "")
                begin = f"where {said} random numbers begin{said_at(line)}"
                text = f"{mode} each call sets {begin}, and so the program's other draws"
                source = SourceLine.of(line)
                return WayBackAnswer(name="generators", outcome="fail", message=text, source=source)
    return WayBackAnswer(name="generators", outcome="pass")


def _run(call: Callable[..., Tensor], feeds: Feeds) -> None:
    tensors = {name: to_tensor(np.ascontiguousarray(value)) for name, value in feeds.items()}
    call(tensors.pop("x"), tensors)


def _states(call: Callable[..., Tensor], feeds: Feeds, seed: int) -> dict[str, bytes | str]:
    """After a call that begins with this seed."""
    for begin in (torch.manual_seed, random.seed, np.random.seed):
        begin(seed)
    _run(call, feeds)
    torchs = torch.get_rng_state().numpy().tobytes()
    return {"torch": torchs, "numpy": repr(np.random.get_state()), "random": repr(random.getstate())}


@contextmanager
def _watched(lines: list[str]) -> Generator[None]:
    """The lines of the user that set a generator are added."""
    with ExitStack() as stack:
        for owner, name in _SETTING:
            stack.enter_context(patch.object(owner, name, _noting(lines, getattr(owner, name))))
        yield


def _noting(lines: list[str], set_it: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        frames = [each for each in traceback.extract_stack() if not each.filename.startswith(_FOREIGN)]
        lines.extend(f"{Path(each.filename).name}:{each.lineno}: {each.line}" for each in frames[-1:])
        return set_it(*args, **kwargs)

    return noted

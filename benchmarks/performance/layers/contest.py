"""What every framework's contest has alike: the layer, its inputs, the sizes, and contenders that take turns.

A module of this package with the name of a framework is run as a program, and prints a JSON object: `rows` has a row of
the page → contender → seconds of each turn, and `others` the cores that others used meanwhile.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.performance.measuring import in_turns
from encoder_conformance import Array, Tensors
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load

LAYER = "post-relu-512"
BATCH, SEQUENCES = 32, (50, 512)
REPEATS = {50: 15, 512: 3}
THREADS = os.cpu_count() or 1
SETTLED = 0.05
"""Seconds in which the threads of the contender before stop waiting busily for more work."""
OURS = "ours, "
"""How the name of a contender begins that is a layer of this project."""
ALONE = "its matrix products alone, "
"""How the name of a part begins that is timed beside the contenders, to say where their time goes."""
AGREE_TO = 1e-3
"""How far apart contenders may be before they do not compute the same layer: float32's noise here is below 1e-5."""

Taken = dict[str, list[float]]
"""Contender → seconds of each turn."""


@dataclass(frozen=True)
class Subject:
    """One size of the layer: `layer` and `parameters` are the specification's, x is [BATCH, sequence, d_model]."""

    layer: dict[str, object]
    parameters: Tensors
    x: Array
    cotangent: Array

    @property
    def sequence(self) -> int:
        return int(self.x.shape[1])


def subject(sequence: int) -> Subject:
    layer, random = load().layers[LAYER], np.random.default_rng(sequence)
    x, cotangent = random.standard_normal((2, BATCH, sequence, layer.d_model), dtype=np.float32)
    parameters = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    return Subject(layer.model_dump(mode="json"), parameters, x, cotangent)


def timed(contender: Callable[[], object]) -> float:
    """Seconds of one call."""
    time.sleep(SETTLED)
    begun = time.perf_counter()
    contender()
    return time.perf_counter() - begun


class Contest:
    """Rows of the page, contested one after the other."""

    def __init__(self) -> None:
        self.rows: dict[str, Taken] = {}
        self.others = 0.0

    def row(self, name: str, contenders: Mapping[str, Callable[[], object]], sequence: int) -> None:
        """Seconds of each contender in each turn; a turn comes first that counts for nothing."""
        for contender in contenders.values():
            contender()
        found = in_turns({name: partial(timed, call) for name, call in contenders.items()}, REPEATS[sequence])
        self.rows[name], self.others = found.taken, max(self.others, found.others)

    def show(self) -> None:
        sys.stdout.write(json.dumps({"others": self.others, "rows": self.rows}) + "\n")


def check_alike(outputs: Mapping[str, Array]) -> None:
    """Every contender computes the same layer, or the contest is none."""
    first, *others = outputs
    for other in others:
        apart = float(np.abs(outputs[first] - outputs[other]).max())
        if not apart <= AGREE_TO:
            raise RuntimeError(f"{first} and {other} are {apart:.2g} apart: they are not the same layer")


def forward(sequence: int) -> str:
    return f"forward, S={sequence}"


def both_ways(sequence: int) -> str:
    return f"forward and backward, S={sequence}"

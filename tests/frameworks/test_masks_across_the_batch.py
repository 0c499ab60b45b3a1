"""A mask that hides is a mask, whatever goes from item to item beside it."""

import numpy as np
import pytest

from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.onnx_file.interface.input_semantics import semantics_of
from encoder_conformance.readers.onnx_file.interface.mask_semantics import IGNORE
from encoder_conformance.readers.onnx_file.interface.ports import Interface
from encoder_conformance.readers.onnx_file.interface.probe_runs import ProbeRun
from encoder_conformance.spec.axes import Array

SHAPE = (3, 5, 8)


class Attention:
    """One head without parameters. `one_scale`: x in int8, by one scale for the batch; `shut`: what hides a key."""

    def __init__(self, *, one_scale: bool = False, shut: float = -np.inf) -> None:
        self.one_scale, self.shut = one_scale, shut

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        x, scale = feeds["x"].astype(np.float64), float(np.abs(feeds["x"]).max()) / 127
        y = np.round(x / scale) * scale if self.one_scale else x
        scores = 0.1 * y @ y.swapaxes(1, 2) + np.where(feeds["mask"], self.shut, 0.0)[:, None]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return {"output": x + weights / weights.sum(-1, keepdims=True) @ y}


@pytest.mark.parametrize(
    ("layer", "across", "leaks"),
    [
        (Attention(one_scale=True), True, False),
        (Attention(), False, False),
        (Attention(shut=-5.0), False, True),
    ],
    ids=["one scale for the batch", "right", "hides in part"],
)
def test_a_mask_is_known_beside_what_goes_across_the_batch(layer: Attention, across: bool, leaks: bool) -> None:
    x, output = (Port(name=name, dtype="float32", shape=SHAPE) for name in ("x", "output"))
    mask = Port(name="mask", dtype="bool", shape=SHAPE[:2])
    drawn = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    probe = ProbeRun(layer, Interface(x, output, (mask,)), drawn, {"mask": SHAPE[:2]})  # type: ignore[arg-type]
    found = semantics_of(probe)
    assert found.across_batch is across
    assert found.masks[0].polarity == IGNORE
    assert (found.masks[0].leakage > 0) is leaks

"""Proves an inferred layer by numbers: the file's answers against the oracle's, in units of σ."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from encoder_conformance.impls.onnx_file.graph.execution import Array, Failed, Runner, Tensors
from encoder_conformance.impls.onnx_file.interface.input_semantics import MaskRole, Roles
from encoder_conformance.judge.expected import ExpectedTensor
from encoder_conformance.judge.verdict import TensorVerdict, judge_tensor
from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF, Spread
from encoder_conformance.oracle.encoder import Given, forward
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.layer import Layer

RUNS, RUNS_OF_LARGE = 8, 4
LARGE = 2_000_000
"""Numbers among the parameters."""


@dataclass(frozen=True)
class Proof:
    """`verdicts` of the output and of each stage that a graph value is, without masks."""

    verdicts: tuple[TensorVerdict, ...]

    @property
    def agrees(self) -> bool:
        return all(verdict.conforms for verdict in self.verdicts)

    @property
    def first_off(self) -> TensorVerdict | None:
        return next((verdict for verdict in self.verdicts if not verdict.conforms), None)


def prove(
    layer: Layer, parameters: Mapping[str, Array], x: Array, seen: Tensors, constants: Constants, format: Format
) -> Proof:
    """`parameters` are float64; `x` [B, S, D] is what the file was given, `seen` what it gave, by stage, in the order
    of computation, in the dtype of `format`."""
    what = Given(x.astype(np.float64), dict(parameters), None)
    with np.errstate(all="ignore"):
        exact = forward(layer, what, Arithmetic(np.float64))
        spread = Spread(exact)
        large = sum(value.size for value in parameters.values()) > LARGE
        for run in range(RUNS_OF_LARGE if large else RUNS):
            spread.add(forward(layer, what, Rounded(SAMPLE_ROUNDOFF, run)))
        conditions = spread.conditions()
    verdicts = []
    for name, value in exact.items():
        if name in seen:
            expected = ExpectedTensor(
                value.shape, np.arange(value.size), value.reshape(-1), conditions[name].reshape(-1)
            )
            verdicts.append(judge_tensor(name, seen[name], expected, format, constants))
    return Proof(tuple(verdicts))


def empty_row(
    layer: Layer,
    parameters: Mapping[str, Array],
    roles: Roles,
    mask: MaskRole,
    runner: Runner,
    feeds: Tensors,
    x: Array,
) -> str | None:
    """What the file does with a query that has no key: zero, uniform or nan; None where it is none of them.

    Every key of the first item is hidden; the specification's answers are compared with the file's. `parameters` are
    float64.
    """
    assert mask.meaning is not None
    hidden = feeds[mask.name].copy()
    first = (slice(None),) * (mask.axes.index("B") if "B" in mask.axes else 0)
    if "B" in mask.axes:
        hidden[(*first, 0)] = mask.meaning.shut
    else:
        hidden[...] = mask.meaning.shut
    try:
        seen = roles.batch_first(runner.run({**feeds, mask.name: hidden})[roles.output.name])[:1].astype(np.float64)
    except Failed:
        return None
    if np.isnan(seen).any():
        return "nan"
    off = {}
    allowed = np.zeros((1, 1, 1, x.shape[1]), np.bool_)
    for row in ("zero", "uniform"):
        attention = layer.attention.model_copy(update={"fully_masked_row": row})
        chosen = layer.model_copy(update={"attention": attention})
        given = Given(x[:1].astype(np.float64), dict(parameters), allowed)
        with np.errstate(all="ignore"):
            due = forward(chosen, given, Arithmetic(np.float64))["output"]
        off[row] = float(np.abs(due - seen).max())
    best = min(off, key=lambda row: off[row])
    return best if off[best] <= 0.05 * max(off.values()) else None

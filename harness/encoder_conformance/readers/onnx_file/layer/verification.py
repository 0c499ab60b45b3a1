"""Verifies an inferred layer by a run: the file's stages and output against the oracle's, in units of σ."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from encoder_conformance import Tensors
from encoder_conformance.judging.verdict import TensorVerdict, judge_tensor
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.expected import ExpectedTensor
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.oracle.measured import sampled_conditions
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_semantics import MaskSemantics
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import Format
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.parameters import parameter_count

_RUNS, _RUNS_OF_LARGE, _RUNS_TO_BE_SURE = 8, 4, 64
_DOUBTFUL = 30.0
"""σ by which a number may be off and be in line after all: few runs measure its σ too coarsely to accuse by it."""
_LARGE = 2_000_000
"""Parameters."""
_LONG = 1_000_000_000
"""Parameters times positions."""


def runs_of(layer: Layer) -> int:
    """Monte-Carlo runs behind the σ that a file is proved in."""
    return _RUNS_OF_LARGE if parameter_count(layer) > _LARGE else _RUNS


def items_proved(layer: Layer, S: int) -> slice:
    """The items of a run that are compared with the oracle: the first alone, where many positions are fixed for many
    parameters."""
    return slice(1 if parameter_count(layer) * S > _LONG else None)


def exact_stages(layer: Layer, inputs: LayerInputs) -> dict[str, Array]:
    """The oracle's stages in float64, by name; overflow and NaN are theirs, and no warning."""
    with np.errstate(all="ignore"):
        return forward(layer, inputs, Arithmetic(np.float64))


@dataclass(frozen=True)
class TracedRun:
    """One run of the file on a drawn x [B, S, D], with masks that hide nothing; `values` has every graph value."""

    runner: ModelRunner
    semantics: InputSemantics
    x: Array
    feeds: Tensors
    values: Tensors

    @classmethod
    def of(cls, runner: ModelRunner, semantics: InputSemantics) -> "TracedRun":
        """Raises ExecutionError."""
        shape = semantics.B, semantics.S, semantics.d_model
        x = np.random.default_rng(3).normal(size=shape).astype(np.dtype(semantics.x.dtype))
        feeds = {semantics.x.name: np.ascontiguousarray(semantics.laid_out(x)), **semantics.open_masks()}
        return cls(runner, semantics, x, feeds, {**feeds, **runner.trace(feeds)})

    def of_these(self, names: Collection[str]) -> "TracedRun":
        """The same run, with the values of these names alone."""
        return replace(self, values={name: value for name, value in self.values.items() if name in names})


def verify(layer: Layer, inputs: LayerInputs, stages: Tensors, format: Format) -> tuple[TensorVerdict, ...]:
    """Judges each of the file's `stages`, in the order of computation.

    `inputs` are in float64; `stages` have the dtype of `format`.
    """
    exact = exact_stages(layer, inputs)
    due = {name: value for name, value in exact.items() if name in stages}

    def judged(runs: int) -> dict[str, TensorVerdict]:
        with np.errstate(all="ignore"):
            conditions = sampled_conditions(layer, inputs, exact, runs)
        return judge_whole_tensors(due, conditions, stages, format)

    return tuple(sure(layer, judged).values())


def sure(layer: Layer, judged: Callable[[int], dict[str, TensorVerdict]]) -> dict[str, TensorVerdict]:
    """The verdicts that are `judged` by the σ of so many runs: of few, and where one of these is doubtful, of many."""
    verdicts = judged(runs_of(layer))
    off = [verdict for verdict in verdicts.values() if not verdict.conforms]
    is_doubtful = all(each.problem is None and (each.max or 0.0) < _DOUBTFUL for each in off)
    return judged(_RUNS_TO_BE_SURE) if off and is_doubtful and parameter_count(layer) <= _LARGE else verdicts


def judge_whole_tensors(
    exact: Mapping[str, Array], conditions: Mapping[str, Array], observed: Mapping[str, Array], format: Format
) -> dict[str, TensorVerdict]:
    """Judges every element of each tensor in `exact`; three arrays of one shape to a name."""
    verdicts = {}
    for name, value in exact.items():
        expected = ExpectedTensor(value.shape, np.arange(value.size), value.reshape(-1), conditions[name].reshape(-1))
        verdicts[name] = judge_tensor(name, observed[name], expected, format)
    return verdicts


def fully_masked_row(layer: Layer, parameters: Mapping[str, Array], mask: MaskSemantics, run: TracedRun) -> str | None:
    """The file's result for a query without any key: zero, uniform or nan; None where it is none of them.

    Every key of the first item is hidden, and the output compared with the oracle's.
    """
    assert mask.polarity is not None
    hidden = run.feeds[mask.name].copy()
    hidden[(slice(None),) * mask.axes.index("B") + (0,) if "B" in mask.axes else ...] = mask.polarity.shut
    try:
        outputs = run.runner.run({**run.feeds, mask.name: hidden})
    except ExecutionError:
        return None
    observed = run.semantics.batch_first(outputs[run.semantics.output.name])[:1].astype(np.float64)
    if np.isnan(observed).any():
        return "nan"
    errors = {}
    allowed = np.zeros((1, 1, 1, run.x.shape[1]), np.bool_)
    for row in ("zero", "uniform"):
        attention = layer.attention.model_copy(update={"fully_masked_row": row})
        inputs = LayerInputs(run.x[:1].astype(np.float64), parameters, allowed)
        expected = exact_stages(layer.model_copy(update={"attention": attention}), inputs)["output"]
        errors[row] = float(np.abs(expected - observed).max())
    best = min(errors, key=lambda row: errors[row])
    return best if errors[best] <= 0.05 * max(errors.values()) else None

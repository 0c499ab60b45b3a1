"""What an implementation was seen to give in a case, kept small: its values where the golden keeps values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.golden.expected import Expected
from harness.judge.outcome import Outcome
from harness.plan import Task
from harness.report.model import Record
from harness.spec.case import Case
from harness.spec.dtypes import FORMATS, Format
from harness.spec.stages import stages

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sighting:
    """`values` by stage, in the order of computation; None where shape or dtype left nothing to compare."""

    case: Case
    expected: Expected
    dtype: Format
    values: dict[str, Array | None]
    failed: bool

    def sigma(self, stage: str, foretold: Array) -> Array:
        """The golden's σ; where a hypothesis foretells more than the golden has, the noise of that much more.

        A masked weight has no noise, but the weight that an inverted mask gives in its place has.
        """
        tensor = self.expected.tensors[stage]
        golden, condition = np.square(tensor.golden).mean(), np.square(tensor.condition).mean()
        relative = max(4.0, float(np.sqrt(condition / golden)) if golden else 0.0)
        with np.errstate(invalid="ignore", over="ignore"):
            beyond = relative * np.maximum(np.abs(foretold) - np.abs(tensor.golden), 0.0)
        noise = np.fmax(tensor.condition, beyond)
        return np.asarray(np.maximum(self.dtype.roundoff * noise, self.dtype.smallest_normal))

    def errors(
        self, wrong: Mapping[str, Array] | None, condition: Mapping[str, Array] | None = None
    ) -> dict[str, tuple[Array | None, Array | None]]:
        """By stage, in σ: (observed − foretold, foretold − golden). `wrong` is a played layer, None for the right one.
        `condition` is the played layer's own, where it has been measured; else it is guessed from the golden's.

        None stands for what cannot be compared: another shape, or values that are not finite on one side.
        """
        found: dict[str, tuple[Array | None, Array | None]] = {}
        for name, value in self.values.items():
            tensor = self.expected.tensors[name]
            foretold = tensor.golden if wrong is None else _at(wrong[name], tensor.shape, tensor.positions)
            sigma = self.sigma(name, tensor.golden if foretold is None else foretold)
            own = None if condition is None else _at(condition[name], tensor.shape, tensor.positions)
            if own is not None:
                sigma = np.maximum(self.dtype.roundoff * np.nan_to_num(own), self.dtype.smallest_normal)
            found[name] = self._apart(value, foretold, sigma), self._apart(foretold, tensor.golden, sigma)
        return found

    def _apart(self, one: Array | None, other: Array | None, sigma: Array) -> Array | None:
        """(one − other) / σ, with 0 where both are the same NaN or infinity."""
        if one is None and other is None:
            return np.zeros(1)
        if one is None or other is None:
            return None
        finite = np.isfinite(one) & np.isfinite(other)
        if np.any(~finite & (np.isfinite(one) | np.isfinite(other))):
            return None
        with np.errstate(invalid="ignore", over="ignore"):
            return np.where(finite, (one - other) / sigma, 0.0)


def _at(value: Array, shape: tuple[int, ...], positions: npt.NDArray[np.int64]) -> Array | None:
    if value.shape != shape:
        return None
    return value.reshape(-1)[positions]


def sighting(case: Case, expected: Expected, dtype: Format, answers: Mapping[str, Array], *, failed: bool) -> Sighting:
    """`answers` holds stages, and "output" from the fused path if the implementation shows no stages."""
    values: dict[str, Array | None] = {}
    for name in stages(case.layer):
        if name in answers:
            tensor = expected.tensors[name]
            fits = answers[name].dtype == dtype.numpy
            found = _at(answers[name], tensor.shape, tensor.positions) if fits else None
            values[name] = None if found is None else found.astype(np.float64)
    return Sighting(case, expected, dtype, values, failed)


class Seen:
    """What one implementation was seen to give in a run, case by case and dtype by dtype."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], dict[str, Sighting]] = {}

    def see(self, task: Task, expected: Expected, record: Record, observation: Mapping[str, Array]) -> None:
        if task.check == "gradients" or record.outcome == Outcome.ERROR:
            return
        failed = record.outcome == Outcome.FAIL
        found = sighting(task.case, expected, FORMATS[task.dtype], observation, failed=failed)
        self._found.setdefault((task.dtype, task.case.id), {})[task.check] = found

    def by_dtype(self) -> dict[str, list[Sighting]]:
        """One sighting a case: its stages, unless there are none, or they pass where the output fails."""
        chosen: dict[str, list[Sighting]] = {}
        for (dtype, _), checks in self._found.items():
            output, stages_seen = checks.get("output"), checks.get("stages")
            fused_alone = output and stages_seen and output.failed and not stages_seen.failed
            best = output if fused_alone or stages_seen is None else stages_seen
            if best:
                chosen.setdefault(dtype, []).append(best)
        return chosen

"""Reads the dropout before a residual sum off the live module: in training, the sum shows what dropout left.

A dropout is no stage: T-1 shows what stands before it. But `residual1 = x + dropout(attention_output)`. So
`residual1 − x` is what the module's own dropout made of `attention_output`. The layer is asked once more, in training.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from encoder_conformance.commands.inspect.trace import TracedRow
from encoder_conformance.implementation.task import Task
from encoder_conformance.oracle.forms import FORMS
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.streamed import Array
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.plan import plan
from encoder_conformance.spec.stages import layer_stage, step_of
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

SUFFIX = "_dropped"
"""The suffix of a row for what dropout left of a stage: `attention_output_dropped`."""


@dataclass(frozen=True)
class _Sum:
    branch: str
    of: tuple[str, ...]
    """The names that the sum may be shown by."""
    beside: str
    """The other term of the sum: a stage, or x."""


def with_dropped(session: Session, task: Task, rows: list[TracedRow]) -> list[TracedRow]:
    """The rows, and after each branch of a residual sum that dropout follows one for what dropout left of it.

    Rows are added only where the implementation trains and shows the sum. They describe, and nothing of them fails: the
    check `dropout` judges.
    """
    rates = task.case.layer.dropout.rates()
    situation = task.case.situation.model_copy(update={"mode": "train"})
    training = replace(task, case=replace(task.case, situation=situation))
    if not rates or task.implementation.opt_out(training.case, task.dtype, "stages") is not None:
        return rows
    shown = session.observe(training, np.zeros((0, 2), dtype=np.int64))
    if isinstance(shown, Failure):
        return rows
    dropped = {row.stage: row for row in _dropped_rows(training, shown) if rates.get(_branch_of(row.stage))}
    with_them: list[TracedRow] = []
    for row in rows:
        with_them.append(row)
        if (left := dropped.get(row.stage + SUFFIX)) is not None:
            with_them.append(left)
    return with_them


def _branch_of(name: str) -> str:
    return step_of(name.removesuffix(SUFFIX))


def _dropped_rows(task: Task, shown: Tensors) -> Iterator[TracedRow]:
    layer, dtype = task.case.layer, task.format.numpy
    tensors = dict(shown) if layer.embedding else {"x": task.case.x().astype(dtype), **shown}
    for each in _sums(layer):
        total = next((tensors[name] for name in each.of if name in tensors), None)
        branch, beside = tensors.get(each.branch), tensors.get(each.beside)
        if total is None or branch is None or beside is None or not total.shape == branch.shape == beside.shape:
            continue
        left = total.astype(np.float64) - beside.astype(np.float64)
        valid = task.case.valid()  # what an implementation makes of padding is its own
        note = _describe(left[valid], branch[valid].astype(np.float64), total[valid], task.format.roundoff)
        if note is not None:
            yield TracedRow(each.branch + SUFFIX, left.shape, note)


def _sums(layer: Layer) -> Iterator[_Sum]:
    """The residual sums of a layer (E-3, E-4), or of each layer of a stack.

    Without the first of a stack of token ids: what it is given has a dropout of its own.
    """
    steps = plan(layer)
    sums = [step for step in steps if step.form == "sum"]
    for k in range(layer.stack.layers):
        around = {"x": layer_stage(k - 1) if k else "x", "output": layer_stage(k)} if layer.is_stack else {}
        inside = f"{layer_stage(k)}." if layer.is_stack else ""
        for step in sums if k or layer.embedding is None else sums[1:]:
            same = [s.makes for s in steps if s.reads == (step.makes,) and FORMS[s.form].makes_no_tensor]
            beside, branch, *of = (around.get(stage, inside + stage) for stage in (*step.reads, step.makes, *same))
            yield _Sum(branch, tuple(of), beside)


def _describe(left: Array, branch: Array, total: Array, roundoff: float) -> str | None:
    """The share of the branch that is 0 in training, and the factor of the rest. None if they cannot be read.

    All are [n, D]. Elements that the sum's rounding may hide are left out.
    """
    read = np.abs(branch) > np.sqrt(roundoff) * np.abs(total)
    if not np.isfinite(left).all() or not read.any():
        return None
    factor = left[read] / branch[read]
    zero = np.abs(factor) < 0.5
    share = float(zero.mean())
    kept = float(np.median(factor[~zero])) if not zero.all() else 0.0
    return f"what dropout left of it in training: {share:.1%} is 0, the rest is multiplied by {kept:.3f} (A-1)"

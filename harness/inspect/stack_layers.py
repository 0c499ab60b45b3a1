"""The stages inside the layers of a stack: each layer is asked by itself, with what the live stack gave the one before.

Clause T-3 has a stack show no stage inside a layer. So each layer k is built alone, of the same implementation and with
the stack's own parameters `layers.k.`, and is given the stage that the stack showed before it and the same masks. The
token embedding is told from the positions in the same way: it is asked without them.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from encoder_conformance.inspect.trace import Row, trace
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer, Stack
from encoder_conformance.spec.parameters import parameters_of, prefix
from encoder_conformance.spec.stages import kind_of
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import Tensors
from encoder_conformance.wire.messages import AsGiven, Build, Run
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.marshalling import causal_flag, encode_inputs
from encoder_conformance.worker.session import Session

Answered = Callable[[Tensors | Failure], Tensors]


def input_rows(task: Task) -> list[Row]:
    """What the implementation is handed: x or token ids, and the masks."""
    return [Row(name, tensor.shape, f"given, {tensor.dtype}") for name, tensor in encode_inputs(task).items()]


def inside(session: Session, answered: Answered, task: Task, rows: list[Row], shown: Tensors) -> list[Row]:
    """`rows` of a stack, and before each `layer_k` those of the stages inside it, named `layer_k.norm1` and so on.

    `shown` is what the stack answered. An implementation that cannot be asked for one layer's stages keeps `rows`.
    """
    alone = replace(task, case=replace(task.case, layer=_named_alone(task.case.layer)))
    if task.implementation.opt_out(alone.case, task.dtype, "stages") is not None:
        return rows
    given, found = shown.get("embedded", encode_inputs(task).get("x")), list[Row]()
    for row in rows:
        if row.stage == "embedded" and _has_positions(task.case.layer):
            found.append(_token_embedding(session, answered, task))
        if kind_of(row.stage) == "layer_k":
            fits = given is not None and given.shape == task.case.x_shape and given.dtype == task.format.numpy
            if given is not None and fits:  # else the row of what gave it says what is wrong
                held = _of_layer(task, int(row.stage.removeprefix("layer_")))
                seen = _asked(session, answered, alone, row.stage, held, {**_masks(task), "x": given})
                found += _named(trace(alone, seen, None), row.stage)
                row = _compared(row, seen, shown, task)
            given = shown.get(row.stage)
        found.append(row)
    return found


def _named(rows: list[Row], stage: str) -> list[Row]:
    """Those inside the layer whose output is `stage`; that has a row of its own."""
    return [replace(row, stage=f"{stage}.{row.stage}") for row in rows if row.stage != "output"]


def _compared(row: Row, alone: Tensors, shown: Tensors, task: Task) -> Row:
    """`row` of a `layer_k`, with what is wrong where the layer by itself gives something else than in the stack.

    Both are of one implementation: they differ by rounding, which is far below the root of the format's roundoff.
    """
    if not row.conforms or "output" not in alone or alone["output"].shape != shown[row.stage].shape:
        return row
    rows = task.case.specified()
    one, other = (each[rows].astype(np.float64) for each in (alone["output"], shown[row.stage]))
    apart = float(np.sqrt(np.sum((one - other) ** 2) / max(np.sum(other**2), np.finfo(np.float64).tiny)))
    if not apart > np.sqrt(task.format.roundoff):
        return row
    problem = f"is not what layer {row.stage.removeprefix('layer_')} gives by itself: {apart:.1e} of its size apart"
    return replace(row, conforms=False, problem=problem)


def _token_embedding(session: Session, answered: Answered, task: Task) -> Row:
    layer = task.case.layer
    assert layer.embedding is not None
    without = layer.model_copy(
        update={
            "layer": f"{layer.layer}-tokens",
            "embedding": layer.embedding.model_copy(update={"positions": "none"}),
            "stack": Stack(layers=1, final_norm=False),
        }
    )
    names = {parameter.name for parameter in parameters_of(without)}
    held = {name: value for name, value in task.case.parameters().items() if name in names}
    asked = replace(task, case=replace(task.case, layer=without))
    seen = _asked(session, answered, asked, "token_embedding", held, encode_inputs(task))
    [row] = [row for row in trace(asked, seen, None) if row.stage == "embedded"]
    return replace(row, stage="token_embedding", note="the tokens' rows (E-15), before their positions")


def _asked(session: Session, answered: Answered, task: Task, what: str, held: Tensors, tensors: Tensors) -> Tensors:
    """`what` tells this layer from the others that are made to look into."""
    case, dtype = task.case, task.format.numpy
    build = Build(layer=case.layer, dtype=task.dtype)
    run = Run(check="stages", mode=case.situation.mode, given=_given(case))
    parameters = {name: np.ascontiguousarray(value.astype(dtype)) for name, value in held.items()}
    return answered(session.observe_made(("inside", what), build, parameters, run, tensors))


def _given(case: Case) -> AsGiven:
    given = case.situation.given
    return AsGiven(layout=given.layout, masks=given.masks, causal_flag=causal_flag(case), checkpoint=given.checkpoint)


def _named_alone(layer: Layer) -> Layer:
    return layer.one_of_it.model_copy(update={"layer": f"{layer.layer}-layer"})


def _of_layer(task: Task, number: int) -> Tensors:
    own = prefix(number)
    return {name.removeprefix(own): value for name, value in task.case.parameters().items() if name.startswith(own)}


def _masks(task: Task) -> Tensors:
    return {name: value for name, value in encode_inputs(task).items() if name not in ("x", "ids")}


def _has_positions(layer: Layer) -> bool:
    return layer.embedding is not None and layer.embedding.positions != "none"

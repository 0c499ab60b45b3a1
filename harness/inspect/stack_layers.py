"""Traces the stages inside the layers of a stack: each layer is run by itself, on its input in the live stack.

By clause T-3 a stack shows no stages inside its layers. So each layer k is built alone, by the same implementation and
with the stack's own parameters `layers.k.`. Its input is the output of the layer before it in the stack, with the same
masks. The token embedding is separated from the positions in the same way: it is run without them.
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

RequireAnswer = Callable[[Tensors | Failure], Tensors]


def input_rows(task: Task) -> list[Row]:
    """A row for each input of the implementation: x or token ids, and the masks."""
    return [Row(name, tensor.shape, f"given, {tensor.dtype}") for name, tensor in encode_inputs(task).items()]


def trace_inside(
    session: Session, require_answer: RequireAnswer, task: Task, rows: list[Row], shown: Tensors
) -> list[Row]:
    """The `rows` of a stack and, before each `layer_k`, those of the stages inside it, named `layer_k.norm1` and so on.

    `shown` is the stack's answer. If the implementation opts out of a single layer's stages, `rows` are unchanged.
    """
    alone = replace(task, case=replace(task.case, layer=_single_layer(task.case.layer)))
    if task.implementation.opt_out(alone.case, task.dtype, "stages") is not None:
        return rows
    layer_input, traced = shown.get("embedded", encode_inputs(task).get("x")), list[Row]()
    for row in rows:
        if row.stage == "embedded" and _has_positions(task.case.layer):
            traced.append(_token_embedding(session, require_answer, task))
        if kind_of(row.stage) == "layer_k":
            fits = (
                layer_input is not None
                and layer_input.shape == task.case.x_shape
                and layer_input.dtype == task.format.numpy
            )
            if layer_input is not None and fits:  # else the row of the stage before says what is wrong
                parameters = _layer_parameters(task, int(row.stage.removeprefix("layer_")))
                observed = _observe_stages(
                    session, require_answer, alone, row.stage, parameters, {**_mask_inputs(task), "x": layer_input}
                )
                traced += _prefix_stages(trace(alone, observed, None), row.stage)
                row = _compare_with_stack(row, observed, shown, task)
            layer_input = shown.get(row.stage)
        traced.append(row)
    return traced


def _prefix_stages(rows: list[Row], stage: str) -> list[Row]:
    """The rows inside the layer whose output is `stage`, without the output, which has a row of its own."""
    return [replace(row, stage=f"{stage}.{row.stage}") for row in rows if row.stage != "output"]


def _compare_with_stack(row: Row, alone: Tensors, shown: Tensors, task: Task) -> Row:
    """`row` of a `layer_k`, with a problem if the layer by itself and in the stack give different outputs.

    Both are of one implementation and differ by rounding only, far below the square root of the format's roundoff.
    """
    if not row.conforms or "output" not in alone or alone["output"].shape != shown[row.stage].shape:
        return row
    rows = task.case.specified()
    one, other = (each[rows].astype(np.float64) for each in (alone["output"], shown[row.stage]))
    distance = float(np.sqrt(np.sum((one - other) ** 2) / max(np.sum(other**2), np.finfo(np.float64).tiny)))
    if not distance > np.sqrt(task.format.roundoff):
        return row
    problem = f"is not what layer {row.stage.removeprefix('layer_')} gives by itself: {distance:.1e} of its size apart"
    return replace(row, conforms=False, problem=problem)


def _token_embedding(session: Session, require_answer: RequireAnswer, task: Task) -> Row:
    layer = task.case.layer
    assert layer.embedding is not None
    layer_without_positions = layer.model_copy(
        update={
            "layer": f"{layer.layer}-tokens",
            "embedding": layer.embedding.model_copy(update={"positions": "none"}),
            "stack": Stack(layers=1, final_norm=False),
        }
    )
    names = {parameter.name for parameter in parameters_of(layer_without_positions)}
    parameters = {name: value for name, value in task.case.parameters().items() if name in names}
    embedding_task = replace(task, case=replace(task.case, layer=layer_without_positions))
    observed = _observe_stages(
        session, require_answer, embedding_task, "token_embedding", parameters, encode_inputs(task)
    )
    [row] = [row for row in trace(embedding_task, observed, None) if row.stage == "embedded"]
    return replace(row, stage="token_embedding", note="the tokens' rows (E-15), before their positions")


def _observe_stages(
    session: Session, require_answer: RequireAnswer, task: Task, label: str, parameters: Tensors, tensors: Tensors
) -> Tensors:
    """The stages of the task's layer with these parameters. `label` identifies the layer among those built here."""
    case, dtype = task.case, task.format.numpy
    build = Build(layer=case.layer, dtype=task.dtype)
    run = Run(check="stages", mode=case.situation.mode, given=_input_format(case))
    arrays = {name: np.ascontiguousarray(value.astype(dtype)) for name, value in parameters.items()}
    return require_answer(session.observe_made(("inside", label), build, arrays, run, tensors))


def _input_format(case: Case) -> AsGiven:
    given = case.situation.given
    return AsGiven(layout=given.layout, masks=given.masks, causal_flag=causal_flag(case), checkpoint=given.checkpoint)


def _single_layer(layer: Layer) -> Layer:
    return layer.one_of_it.model_copy(update={"layer": f"{layer.layer}-layer"})


def _layer_parameters(task: Task, number: int) -> Tensors:
    own = prefix(number)
    return {name.removeprefix(own): value for name, value in task.case.parameters().items() if name.startswith(own)}


def _mask_inputs(task: Task) -> Tensors:
    return {name: value for name, value in encode_inputs(task).items() if name not in ("x", "ids")}


def _has_positions(layer: Layer) -> bool:
    return layer.embedding is not None and layer.embedding.positions != "none"

"""Traces the stages inside the layers of a stack that does not show them: each layer is run by itself, on its input.

By clause T-3 a stack of more than four layers shows no stages inside them, and another need not. So each layer k is
built alone, by the same implementation and with the stack's own parameters `layers.k.`. Its input is the output of the
layer before it in the stack, with the same masks. The token embedding is separated from the positions in the same way:
it is run without them.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

import numpy as np

from encoder_conformance.commands.inspect.trace import TracedRow, trace
from encoder_conformance.implementation.task import Task
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.protocol.messages import Build, Run
from encoder_conformance.protocol.streamed import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer, Stack
from encoder_conformance.spec.parameters import parameters_of, prefix
from encoder_conformance.spec.stages import kind_of, layer_of
from encoder_conformance.worker.marshalling import encode_inputs, given_as
from encoder_conformance.worker.session import Session


def input_rows(task: Task) -> list[TracedRow]:
    """A row for each input of the implementation: x or token ids, and the masks."""
    return [TracedRow(name, tensor.shape, f"given, {tensor.dtype}") for name, tensor in encode_inputs(task).items()]


def trace_inside(session: Session, task: Task, rows: list[TracedRow], shown: Tensors) -> list[TracedRow]:
    """The `rows` of a stack and, before each `layer_k`, those of the stages inside it, named `layer_k.norm1` and so on.

    `shown` is the stack's answer. Where it has the stages inside, no layer is run by itself. If the implementation
    opts out of a single layer's stages, its architecture is fixed, and `rows` are unchanged.
    """
    alone = replace(task, case=_single_layer(task.case, 0))
    opts_out = task.implementation.opt_out(alone.case, task.dtype, "stages") is not None
    if opts_out and not any(map(layer_of, shown)):
        return rows
    has_positions = _adds_sines_alone(task.case.layer)
    ask = partial(_observe_stages, session)
    layer_input, traced = shown.get("embedded", encode_inputs(task).get("x")), list[TracedRow]()
    for row in rows:
        if row.stage == "embedded" and not opts_out and has_positions:
            tokens = _token_embedding(ask, task)
            traced += [_token_row(tokens, task), *_position_rows(tokens.get("embedded"), shown, task)]
        if kind_of(row.stage) == "layer_k" and not any(name.startswith(f"{row.stage}.") for name in shown):
            due = task.case.x_shape, task.format.numpy
            # Else the row of the stage before says what is wrong.
            if layer_input is not None and (layer_input.shape, layer_input.dtype) == due:
                number = int(row.stage.removeprefix("layer_"))
                parameters, alone = (
                    _layer_parameters(task, number),
                    replace(task, case=_single_layer(task.case, number)),
                )
                masks = {name: value for name, value in encode_inputs(alone).items() if name not in ("x", "ids")}
                observed = ask(alone, row.stage, parameters, {**masks, "x": layer_input})
                inside = (each for each in trace(alone, observed, None) if each.stage != "output")  # it has its own row
                traced += [replace(each, stage=f"{row.stage}.{each.stage}") for each in inside]
                row = _compare_with_stack(row, observed, shown, task)
        if kind_of(row.stage) == "layer_k":
            layer_input = shown.get(row.stage)
        traced.append(row)
    return traced


def _compare_with_stack(row: TracedRow, alone: Tensors, shown: Tensors, task: Task) -> TracedRow:
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


def _embedding_task(task: Task) -> Task:
    """The task of a layer that embeds tokens and adds no positions."""
    layer = task.case.layer
    assert layer.embedding is not None
    embedding, stack = layer.embedding.model_copy(update={"positions": "none"}), Stack(layers=1, final_norm=False)
    changes = {"layer": f"{layer.layer}-tokens", "embedding": embedding, "stack": stack}
    return replace(task, case=replace(task.case, layer=layer.model_copy(update=changes)))


def _token_embedding(ask: Callable[[Task, str, Tensors, Tensors], Tensors], task: Task) -> Tensors:
    alone = _embedding_task(task)
    names = {parameter.name for parameter in parameters_of(alone.case.layer)}
    parameters = {name: value for name, value in task.case.parameters().items() if name in names}
    return ask(alone, "token_embedding", parameters, encode_inputs(task))


def _token_row(observed: Tensors, task: Task) -> TracedRow:
    [row] = [row for row in trace(_embedding_task(task), observed, None) if row.stage == "embedded"]
    return replace(row, stage="token_embedding", note="the tokens' rows (E-15), before their positions")


def _position_rows(tokens: Array | None, shown: Tensors, task: Task) -> list[TracedRow]:
    """A row for the positions, [1, S, D]: what the stack added to the tokens' rows, the same in each item.

    No row where either has another shape than it should, which its own row says, or is not finite.
    """
    embedded = shown.get("embedded")
    if tokens is None or embedded is None or not tokens.shape == embedded.shape == task.case.x_shape:
        return []
    positions = embedded.astype(np.float64) - tokens.astype(np.float64)
    if not np.isfinite(positions).all():
        return []
    note = "what is added to the tokens' rows (E-16), the same in each item"
    row = TracedRow("positions", (1, *positions.shape[1:]), note)
    apart = np.abs(positions - positions[:1])
    # Rounding alone is far below the square root of the format's roundoff.
    if np.all(apart <= np.sqrt(task.format.roundoff) * np.abs(embedded).max(initial=1.0)):
        return [row]
    item = int(apart.max(axis=(1, 2)).argmax())
    problem = f"item {item} has other positions than item 0: {apart.max():.1e} apart"
    return [replace(row, shape=positions.shape, conforms=False, problem=problem)]


def _observe_stages(session: Session, task: Task, label: str, parameters: Tensors, tensors: Tensors) -> Tensors:
    """The stages of the task's layer with these parameters. `label` identifies the layer among those built here."""
    case, dtype = task.case, task.format.numpy
    build = Build(layer=case.layer, dtype=task.dtype)
    run = Run(check="stages", mode=case.situation.mode, given=given_as(case))
    arrays = {name: np.ascontiguousarray(value.astype(dtype)) for name, value in parameters.items()}
    size = sum(map(prod, case.expected_shapes("stages").values())) * dtype.itemsize
    return session.require(session.observe_made(("inside", label), build, arrays, run, tensors, size))


def _adds_sines_alone(layer: Layer) -> bool:
    """Whether what stands before the layers are tokens' rows and sines, the same in each item (E-16)."""
    embedding = layer.embedding
    if embedding is None or embedding.vocabulary is None or embedding.positions != "sinusoidal":
        return False
    return embedding.token_types is None and not embedding.norm


def _single_layer(case: Case, number: int) -> Case:
    """A case of one of the stack's layers, which is given a mask where the stack makes one of token ids."""
    layer = case.layer.of_number(number).model_copy(update={"layer": f"{case.layer.layer}-layer"})
    given = case.situation.given.model_copy(update={"padding": "mask"})
    return replace(case, layer=layer, situation=case.situation.model_copy(update={"given": given}))


def _layer_parameters(task: Task, number: int) -> Tensors:
    own, parameters = prefix(number), task.case.parameters()
    found = {name.removeprefix(own): value for name, value in parameters.items() if name.startswith(own)}
    if task.case.layer.stack.shared_position_bias:  # which layer 0 holds (E-34)
        found["attention.position_bias.table"] = parameters[f"{prefix(0)}attention.position_bias.table"]
    return found

"""Judges a whole model: what stands before the encoder, where it is an embedding, and from its inputs to hidden states.

The file runs once as it is. Rows of tables, their sum, a norm and a linear map are computed by the oracle's arithmetic;
what the file computes otherwise, as a convolution, is taken from the run.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from encoder_conformance import Tensors
from encoder_conformance.judging.verdict import TensorVerdict
from encoder_conformance.oracle.arithmetic import Arithmetic, Rounded
from encoder_conformance.oracle.condition import SAMPLE_ROUNDOFF
from encoder_conformance.oracle.inputs import LayerInputs
from encoder_conformance.oracle.measured import conditions_of, disturbed
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, values_of
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.interface.cutting import Cut
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.ports import FLOATS, INTEGERS, port_of
from encoder_conformance.readers.onnx_file.layer.front import Front, Unfollowed
from encoder_conformance.readers.onnx_file.layer.inference import InferredLayer
from encoder_conformance.readers.onnx_file.layer.verification import (
    exact_stages,
    items_proved,
    judge_whole_tensors,
    sure,
)
from encoder_conformance.spec.axes import Array

_LONGER = (1, 8, 64, 512)
"""Samples or frames for a position of the encoder, at most."""


def judge_whole(graph: Graph, cut: Cut, inferred: InferredLayer, semantics: InputSemantics, findings: Findings) -> bool:
    """Says how far a whole file is off, or why it was not judged as a whole; and whether what stands before the encoder
    was judged, too. `graph` is that of the whole file."""
    front = _followed(graph, cut.x)
    try:
        run = _run(graph, cut, front, semantics)
    except ExecutionError as error:
        message = f"from its inputs on it does not run: {error}"
        findings.error("interface", "file-does-not-run", message, "the encoder inside was judged alone")
        return False
    if run is None or run[cut.x].ndim != 3 or run[cut.x].shape[-1] != semantics.d_model:
        return False
    verdicts = _verdicts(cut, inferred, semantics, front, run)
    described = _described(graph, front, run) if front else ""
    _report(cut, findings, described, verdicts, quantised=graph.quantised)
    if front:
        _check_positions(graph, front, run, findings)
    return front is not None


def _run(graph: Graph, cut: Cut, front: Front | None, semantics: InputSemantics) -> Tensors | None:
    """What the whole file takes and makes; None where an input is not known. Raises ExecutionError where it runs at no
    length. Of samples or frames a convolution takes no fewer than it spans."""
    for longer in _LONGER:
        feeds = _feeds(graph, cut, front, semantics.at_length(semantics.S * longer))
        if feeds is None:
            return None
        try:
            names = [cut.x, cut.output, *sorted(front.traced - feeds.keys() if front else ())]
            return {**feeds, **values_of(graph.model, names, feeds)}
        except ExecutionError:
            if front is not None or longer == _LONGER[-1]:
                raise
    raise AssertionError


def _followed(graph: Graph, x: str) -> Front | None:
    """What stands before the encoder, where all of it is followed."""
    front = Front(graph)
    try:
        front.plan(x)
    except Unfollowed:
        return None
    return front if front.rows and not graph.quantised else None


def _verdicts(
    cut: Cut, inferred: InferredLayer, semantics: InputSemantics, front: Front | None, run: Tensors
) -> dict[str, TensorVerdict]:
    """Judges the output, and where `front` was followed what the encoder takes, `before`; both [B, S, D]."""
    layer = inferred.layer
    assert layer is not None
    items = items_proved(layer, semantics.S) if front is None else slice(None)
    seen_by = np.tri(semantics.S, dtype=bool)[None, None] if semantics.causal else None  # that it is causal is told
    inputs = replace(inferred.given(semantics.batch_first(run[cut.x])[items]), mask=seen_by)

    def before(a: Arithmetic) -> LayerInputs:
        if front is None:
            return inputs
        return replace(inputs, x=np.broadcast_to(semantics.batch_first(front.value(cut.x, a, run)), inputs.x.shape))

    def of_whole(given: LayerInputs, stages: Mapping[str, Array]) -> dict[str, Array]:
        found = {"output": stages["output"]}
        return found if front is None else {"before": given.x, **found}

    format = inferred.format_at(semantics.x.dtype)
    values = {"before": run[cut.x], "output": run[cut.output]}
    seen = {name: semantics.batch_first(value)[items].astype(format.numpy) for name, value in values.items()}
    with np.errstate(all="ignore"):
        right = before(Arithmetic(np.float64))
        exact = of_whole(right, exact_stages(layer, right))

    def judged(runs: int) -> dict[str, TensorVerdict]:
        with np.errstate(all="ignore"):
            samples = [before(Rounded(SAMPLE_ROUNDOFF, number)) for number in range(runs)]
            pairs = zip(samples, disturbed(layer, samples), strict=True)
            conditions = conditions_of([of_whole(*each) for each in pairs], exact)
        return judge_whole_tensors(exact, conditions, seen, format)

    return sure(layer, judged)


def _report(
    cut: Cut, findings: Findings, before: str, verdicts: Mapping[str, TensorVerdict], *, quantised: bool
) -> None:
    inputs = ", ".join(cut.inputs) or "its inputs"
    far = {name: each.problem.text if each.problem else f"rms {each.rms or 0:.2g} σ" for name, each in verdicts.items()}
    first = next((name for name, each in verdicts.items() if not each.conforms), None)
    if first == "before":
        message = f"{cut.x!r} is not {before}: {far['before']}"
        hint = "what stands before the encoder computes something else beside these rows"
        findings.error("interface", "front-out-of-line", message, hint, tensor=cut.x, rms=verdicts["before"].rms)
    elif first is not None and not quantised:
        message = f"from {inputs} to {cut.output!r} it is off: {far['output']}"
        hint, rms = "the encoder inside was judged alone, see below", verdicts["output"].rms
        findings.error("interface", "whole-out-of-line", message, hint, tensor=cut.output, rms=rms)
    elif first is None:
        stands = f"{before}: {far['before']}; " if before else ""
        message = f"as a whole, from {inputs} to {cut.output!r}: {stands}hidden states {far['output']}"
        rms = verdicts["output"].rms
        findings.note("interface", "whole-in-line", message, inputs=cut.inputs, output=cut.output, rms=rms)


def _described(graph: Graph, front: Front, run: Tensors) -> str:
    """Names the tables whose rows are summed, and by what rows are chosen."""
    parts = []
    for node in front.rows:
        rows, source = graph.initializers[node.input[0]].dims[0], graph.origin(node.input[1])
        by = source if source in {info.name for info in graph.inputs} else "position"
        by_one = by == "position" and _is_one(run[node.input[1]])
        parts.append(f"row {run[node.input[1]].flat[0]} of {rows}" if by_one else f"a row of {rows} by {by}")
    return f"the sum of {', '.join(parts)}{', normed' if front.normed else ''}"


def _is_one(rows: Array) -> bool:
    """Whether it is one row everywhere, as of token types that no input gives."""
    return rows.size > 1 and bool((rows == rows.flat[0]).all())


def _in_order(rows: Array) -> bool:
    return rows.ndim > 0 and rows.shape[-1] > 1 and bool((np.diff(rows, axis=-1) == 1).all())


def _check_positions(graph: Graph, front: Front, run: Tensors, findings: Findings) -> None:
    """Rows that no input chooses are those of positions, one after the other; beside those, one row of token types."""
    inputs = {info.name for info in graph.inputs}
    chosen = [(node, run[node.input[1]]) for node in front.rows if graph.origin(node.input[1]) not in inputs]
    placed = any(_in_order(rows) for _, rows in chosen)
    for node, rows in chosen:
        if rows.ndim and rows.shape[-1] > 1 and not _in_order(rows) and not (placed and _is_one(rows)):
            taken = rows.reshape(-1, rows.shape[-1])[0][:6].tolist()
            message = f"positions take rows {taken} of {node.input[0]!r}, which are not one after the other"
            hint = "position ids were folded from an example, or are computed otherwise"
            findings.warning("interface", "positions-out-of-order", message, hint, table=node.input[0], rows=taken)


def _feeds(graph: Graph, cut: Cut, front: Front | None, semantics: InputSemantics) -> Tensors | None:
    """Drawn inputs of the whole file, with masks that hide nothing; None where one of them is not known."""
    draw, open_masks = np.random.default_rng(4), semantics.open_masks()
    chosen = front.rows if front else [node for node in graph.nodes if graph.table_of(node) is not None]
    tables = {graph.origin(node.input[1]): graph.initializers[node.input[0]].dims[0] for node in chosen}
    found: Tensors = {}
    for port in map(port_of, graph.inputs):
        shape = _shape(port.shape, semantics)
        if port.name in open_masks:
            found[port.name] = open_masks[port.name]
        elif shape is None:
            return None
        elif port.dtype in INTEGERS and port.name in tables:
            rows = tables[port.name]
            found[port.name] = draw.integers(rows // 2, rows, shape).astype(np.dtype(port.dtype))
        elif port.dtype in FLOATS and port.name in cut.inputs:
            found[port.name] = draw.normal(size=shape).astype(np.dtype(port.dtype))
        else:
            return None
    return found


def _shape(shape: tuple[int | str | None, ...] | None, semantics: InputSemantics) -> tuple[int, ...] | None:
    """Sizes, with the batch first and the sequence after it where they are free; None where another axis is."""
    if shape is None or any(not isinstance(size, int) for size in shape[2:]):
        return None
    if len(shape) > 2 and not all(isinstance(size, int) for size in shape[1:]):
        return None
    free = (semantics.B, semantics.S)
    return tuple(size if isinstance(size, int) else free[axis] for axis, size in enumerate(shape))

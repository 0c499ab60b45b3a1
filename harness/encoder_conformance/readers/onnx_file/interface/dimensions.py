"""Checks batch and sequence: fixed sizes, shared symbols, sizes at which the file does not run."""

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.protocol.description import Port, Size
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError, ModelRunner
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_inputs import mask_feeds
from encoder_conformance.readers.onnx_file.interface.ports import Interface


def check_dimensions(interface: Interface, layout: str, findings: Findings) -> None:
    """The declared sizes of batch and sequence."""
    x, output = interface.x, interface.output
    if x.shape is None:
        message = f"x, {x.name!r}, has no shape"
        findings.warning(
            "dimensions", "shape-missing", message, "declare it as [batch, sequence, d_model]", name=x.name
        )
        return
    if len(x.shape) == 3:
        _check_axes(x, x.shape, layout, findings)
    if x.shape and not isinstance(x.shape[-1], int):
        message = f"d_model is not fixed in {x}"
        findings.warning("dimensions", "d-model-not-fixed", message, "declare the last axis as a number", name=x.name)
    if output.shape is None:
        message = f"the output {output.name!r} has no shape"
        findings.warning("dimensions", "shape-missing", message, "declare it", name=output.name)
    elif len(output.shape) == len(x.shape):
        differ = [(own, size) for own, size in zip(x.shape, output.shape, strict=True) if own != size]
        if any(size is not None or isinstance(own, int) for own, size in differ):
            message = f"the output's sizes do not follow x: {output}, {x}"
            about = {"name": output.name, "shape": output.shape, "x": x.name, "x_shape": x.shape}
            hint = "declare the output with the sizes and symbols of x"
            findings.warning("dimensions", "output-shape-unlike-x", message, hint, **about)
    if len(x.shape) == 3:
        batch, sequence = x.shape[1::-1] if layout == "SBD" else x.shape[:2]
        for mask in interface.masks:
            _check_mask(mask, batch, sequence, findings)


def _names(layout: str) -> tuple[Size, Size]:
    return ("sequence", "batch") if layout == "SBD" else ("batch", "sequence")


def _check_axes(x: Port, shape: tuple[int | str | None, ...], layout: str, findings: Findings) -> None:
    for name, size in zip(_names(layout), shape, strict=False):
        if isinstance(size, int):
            hint = f"export with a symbolic {name} (dynamic_shapes, dynamic_axes)"
            message = f"{name} is fixed to {size} in {x}"
            findings.warning("dimensions", "size-fixed", message, hint, axis=name, size=size)
    if layout == "SBD":
        _check_sequence_first(x, shape, findings)
    if isinstance(shape[0], str) and shape[0] == shape[1]:
        message = f"batch and sequence are one symbol, {shape[0]!r}, in {x}"
        hint, about = "give the two axes two names", {"name": x.name, "symbol": shape[0]}
        findings.error("dimensions", "sizes-one-symbol", message, hint, **about)


def _check_sequence_first(x: Port, shape: tuple[int | str | None, ...], findings: Findings) -> None:
    """The names of the first two axes say that the sequence comes before the batch."""
    first, second = (size.lower() if isinstance(size, str) else "" for size in shape[:2])
    hint = "was it exported with batch_first=False? Export with batch_first=True, or name the axes right"
    if "batch" in first:
        message = f"attention goes along the first axis, which is named {shape[0]!r}, in {x}"
        findings.error("dimensions", "axis-misnamed", message, hint, name=x.name, axis=0, symbol=shape[0])
    elif "seq" in second:
        message = f"attention does not go along the second axis, which is named {shape[1]!r}, in {x}"
        findings.error("dimensions", "axis-misnamed", message, hint, name=x.name, axis=1, symbol=shape[1])
    elif not ("seq" in first or "len" in first or "batch" in second):
        message = f"attention goes along the first axis, x is [sequence, batch, features], and no name in {x} says so"
        hint = "who gives it [batch, sequence, features] mixes items: export with batch_first=True, or name the axes"
        findings.warning("dimensions", "sequence-first-unnamed", message, hint, name=x.name)


def _check_mask(mask: Port, batch: int | str | None, sequence: int | str | None, findings: Findings) -> None:
    """The last axis, of keys, is named as the sequence and not as the batch."""
    shape = mask.shape or ()
    if not isinstance(batch, str):
        return
    if len(shape) > 1 and shape[-1] == batch != sequence and sequence not in shape:
        message = f"the last axis of {mask} is named {batch!r}, as the batch of x is, and none {sequence!r}"
        hint = "name the axis of the keys as the sequence of x"
        about = {"name": mask.name, "axis": len(shape) - 1, "symbol": batch}
        findings.error("dimensions", "axis-misnamed", message, hint, **about)
    elif shape.count(batch) > 1:
        message = f"{batch!r}, the batch of x, is two axes of {mask}"
        findings.error("dimensions", "sizes-one-symbol", message, "name them apart", name=mask.name, symbol=batch)


def check_free_sizes(
    interface: Interface, semantics: InputSemantics, runner: ModelRunner, findings: Findings
) -> dict[Size, int]:
    """The file runs at other sizes wherever it declares batch or sequence free. Returns the sizes where it does not."""
    shape = interface.x.shape or ()
    free = [name for name, size in zip(_names(semantics.layout), shape, strict=False) if not isinstance(size, int)]
    if len(shape) != 3 or not free:
        return {}
    traced: dict[Size, int] = {"batch": semantics.B, "sequence": semantics.S}
    if baked := [name for name in free if not runs_at(semantics, runner, **{**traced, name: traced[name] + 2})]:
        alone = ", ".join(f"{name} {traced[name]}" for name in baked)
        declared = f"{' and '.join(baked)} {'is' if len(baked) == 1 else 'are'} declared free"
        findings.error(
            "dimensions",
            "size-baked-in",
            f"{declared}, and the file runs at {alone} alone",
            "a Reshape in it holds the sizes of the example: take sizes from x.shape in the module, and export with "
            "dynamo=True and dynamic_shapes, which refuses sizes that are not free",
            sizes={name: traced[name] for name in baked},
        )
    return {name: traced[name] for name in baked}


def runs_at(semantics: InputSemantics, runner: ModelRunner, batch: int, sequence: int) -> bool:
    """Whether the file gives an output in the shape of x at other sizes, with masks that hide nothing."""
    x = np.zeros(semantics.x_shape(batch, sequence), np.dtype(semantics.x.dtype))
    open_masks = mask_feeds(semantics, Masks(None, None), batch, sequence, semantics.num_heads)
    try:
        output = runner.run({semantics.x.name: x, **open_masks})[semantics.output.name]
    except ExecutionError:
        return False
    return bool(output.shape == x.shape)

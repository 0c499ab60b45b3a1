"""What goes in and what comes out: which input is x, which are masks, which output is the layer's."""

from dataclasses import dataclass

import numpy as np
import onnx

from encoder_conformance.impls.onnx_file.findings import Findings
from encoder_conformance.impls.onnx_file.graph.graph import Graph, used_by
from encoder_conformance.impls.onnx_file.interface.embedding import embedding

Dim = int | str | None
FLOATS = {"float32", "float64", "float16", "bfloat16"}
INTEGERS = {"int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"}
X_NAMES = ("x", "src", "input", "inputs", "hidden_states", "inputs_embeds", "embeddings", "features", "query")
OUTPUT_NAMES = ("output", "y", "out", "last_hidden_state", "hidden_states", "encoded")


@dataclass(frozen=True)
class Port:
    """An input or output, as it is declared. `shape` None: no rank is said."""

    name: str
    dtype: str
    shape: tuple[Dim, ...] | None

    def as_json(self) -> dict[str, object]:
        return {"name": self.name, "dtype": self.dtype, "shape": None if self.shape is None else list(self.shape)}

    def said(self) -> str:
        shape = "" if self.shape is None else f" [{', '.join('?' if d is None else str(d) for d in self.shape)}]"
        return f"{self.name!r} {self.dtype}{shape}"


@dataclass(frozen=True)
class Interface:
    x: Port
    output: Port
    masks: tuple[Port, ...]


def numpy_dtype(name: str) -> np.dtype:
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def port(info: onnx.ValueInfoProto) -> Port:
    kind = info.type.WhichOneof("value")
    if kind != "tensor_type":
        return Port(info.name, kind or "unknown", None)
    tensor = info.type.tensor_type
    try:
        name = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    except ValueError:
        name = "unknown"
    dtype = {"float": "float32", "double": "float64"}.get(name, name)
    if not tensor.HasField("shape"):
        return Port(info.name, dtype, None)
    return Port(info.name, dtype, tuple(_dim(dim) for dim in tensor.shape.dim))


def _dim(dim: onnx.TensorShapeProto.Dimension) -> Dim:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return dim.dim_param or None


def interface(graph: Graph, findings: Findings) -> Interface | None:
    """None after a finding of stage `interface`."""
    inputs, outputs = [port(info) for info in graph.inputs], [port(info) for info in graph.model.graph.output]
    every = "; ".join(p.said() for p in inputs) or "none"
    floats = [p for p in inputs if p.dtype in FLOATS and (p.shape is None or len(p.shape) in (2, 3))]
    results = [p for p in outputs if p.dtype in FLOATS]
    if not results:
        findings.error(
            "interface", "no output holds floating-point numbers", "an encoder layer gives [batch, sequence, d_model]"
        )
        return None
    if not floats:
        takes, hint = f"the inputs are {every}", "export the encoder layers by themselves, with x as their input"
        if found := embedding(graph, [p.name for p in inputs if p.dtype in INTEGERS]):
            ids = next(p for p in inputs if p.name == found.ids)
            takes = f"{ids.said()} are token ids of an embedding over {found.rows} ids ({found.node})"
            cut = f"{[found.output, *found.beside]}, {[p.name for p in results if p.name != found.output]}"
            hint = (
                "validate the file from the embedding's output on: onnx.utils.extract_model(path, 'layers.onnx', "
                f"{cut}) cuts that out; or export the layers by themselves, as conform export does"
            )
        findings.error("interface", f"no floating-point input [batch, sequence, d_model]: {takes}", hint)
        return None
    x = _chosen(graph, floats, results, findings)
    output = _output(graph, x, results, findings)
    if output is None:
        return None
    masks = tuple(p for p in inputs if p.name != x.name)
    return Interface(x, output, masks)


def _chosen(graph: Graph, floats: list[Port], results: list[Port], findings: Findings) -> Port:
    """x: of three axes rather than two, as wide as an output, by name, first."""
    widths = {p.shape[-1] for p in results if p.shape}

    def rank(p: Port) -> tuple[bool, ...]:
        shape = p.shape or ()
        known = bool(shape) and isinstance(shape[-1], int)
        return len(shape) != 3, not known, not (known and shape[-1] in widths), p.name.lower() not in X_NAMES

    ranked = sorted(floats, key=rank)
    if len(ranked) > 1 and rank(ranked[0])[:3] == rank(ranked[1])[:3]:
        alike = " or ".join(p.said() for p in ranked if rank(p)[:3] == rank(ranked[0])[:3])
        alone = len([p for p in ranked if any(r.name in graph.depending_on(p.name) for r in results)]) < 2
        say = findings.warning if alone else findings.error
        say(
            "interface",
            f"x may be {alike}; {ranked[0].name!r} is taken",
            "name it x" if alone else "an encoder layer takes one sequence; a decoder takes its memory, too",
        )
    return ranked[0]


def _output(graph: Graph, x: Port, results: list[Port], findings: Findings) -> Port | None:
    """The layer's output: as wide as x, by name, or the one that most of the graph leads to."""
    moving = graph.depending_on(x.name)
    led = [p for p in results if p.name in moving]
    if not led:
        findings.error("interface", f"no output depends on {x.name!r}", "is it the input that is meant?")
        return None
    width = x.shape[-1] if x.shape else None
    fitting = [
        p for p in led if p.shape is None or (len(p.shape) == len(x.shape or p.shape) and p.shape[-1] in (width, None))
    ]
    fitting = fitting or [
        p for p in led if p.shape is None or not isinstance(p.shape[-1], int) or not isinstance(width, int)
    ]
    if not fitting:
        findings.error(
            "interface",
            f"no output has the shape of x, {x.said()}: {'; '.join(p.said() for p in led)}",
            "an encoder layer gives as many features as it takes; name what comes after it as an output of its own",
        )
        return None
    named = [p for p in fitting if p.name.lower() in OUTPUT_NAMES]
    best = (
        min(named, key=lambda p: OUTPUT_NAMES.index(p.name.lower()))
        if named
        else max(fitting, key=lambda p: _depth(graph, p.name))
    )
    if len(results) > 1:
        findings.note("interface", f"of {len(results)} outputs {best.name!r} is taken for the layer's")
    return best


def _depth(graph: Graph, name: str) -> int:
    """How many nodes lead to a value."""
    waiting, seen = [name], set()
    while waiting:
        node = graph.makers.get(waiting.pop())
        if node is not None and id(node) not in seen:
            seen.add(id(node))
            waiting += used_by(node)
    return len(seen)


def check_dimensions(of: Interface, layout: str, findings: Findings) -> None:
    """What is declared of batch and sequence: fixed sizes, one symbol for two axes, an output that does not follow."""
    x, output = of.x, of.output
    if x.shape is None:
        findings.warning("dimensions", f"x, {x.name!r}, has no shape", "declare it as [batch, sequence, d_model]")
        return
    if len(x.shape) == 3:
        names = ("sequence", "batch") if layout == "SBD" else ("batch", "sequence")
        for what, size in zip(names, x.shape, strict=False):
            if isinstance(size, int):
                findings.warning(
                    "dimensions",
                    f"{what} is fixed to {size} in {x.said()}",
                    f"export with a symbolic {what} (dynamic_shapes, dynamic_axes)",
                )
        for axis, (size, wrong) in enumerate(zip(x.shape, ("batch", "seq"), strict=False)):
            if layout == "SBD" and isinstance(size, str) and wrong in size.lower():
                along = "attention goes along" if axis == 0 else "attention does not go along"
                findings.error(
                    "dimensions",
                    f"{along} the {('first', 'second')[axis]} axis, which is named {size!r}, in {x.said()}",
                    "was it exported with batch_first=False? Export with batch_first=True, or name the axes right",
                )
                break
        if isinstance(x.shape[0], str) and x.shape[0] == x.shape[1]:
            findings.error(
                "dimensions",
                f"batch and sequence are one symbol, {x.shape[0]!r}, in {x.said()}",
                "give the two axes two names",
            )
    if x.shape and not isinstance(x.shape[-1], int):
        findings.warning("dimensions", f"d_model is not fixed in {x.said()}", "declare the last axis as a number")
    if output.shape is None:
        findings.warning("dimensions", f"the output {output.name!r} has no shape", "declare it")
    elif len(output.shape) == len(x.shape):
        differ = [(due, size) for due, size in zip(x.shape, output.shape, strict=True) if due != size]
        if any(size is not None or isinstance(due, int) for due, size in differ):
            findings.warning(
                "dimensions",
                f"the output's sizes do not follow x: {output.said()}, {x.said()}",
                "the output has the shape of x, and is to say so by the same symbols",
            )
    _check_symbols(of, layout, findings)


def _check_symbols(of: Interface, layout: str, findings: Findings) -> None:
    """A mask whose last axis, the keys', bears the batch's name and not the sequence's."""
    if of.x.shape is None or len(of.x.shape) != 3:
        return
    batch, sequence = of.x.shape[1::-1] if layout == "SBD" else of.x.shape[:2]
    for mask in of.masks:
        shape = mask.shape or ()
        if (
            isinstance(batch, str)
            and batch != sequence
            and len(shape) > 1
            and shape[-1] == batch
            and sequence not in shape
        ):
            findings.error(
                "dimensions",
                f"the last axis of {mask.said()} is named {batch!r}, as the batch of x is, and none {sequence!r}",
                "name the axis of the keys as the sequence of x",
            )
        elif isinstance(batch, str) and shape.count(batch) > 1:
            findings.error("dimensions", f"{batch!r}, the batch of x, is two axes of {mask.said()}", "name them apart")

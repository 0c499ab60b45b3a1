"""Selects x and the layer's output among a graph's inputs and outputs."""

from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.interface.angles import angle_tables
from encoder_conformance.readers.onnx_file.interface.cutting import embedding
from encoder_conformance.readers.onnx_file.interface.ports import FLOATS, INTEGERS, Interface, port_of

X_NAMES = ("x", "src", "input", "inputs", "hidden_states", "inputs_embeds", "embeddings", "features", "query")
OUTPUT_NAMES = ("output", "y", "out", "last_hidden_state", "hidden_states", "encoded")


def select_interface(graph: Graph, findings: Findings) -> Interface | None:
    """None after a finding of phase `interface`."""
    inputs, outputs = [port_of(info) for info in graph.inputs], [port_of(info) for info in graph.model.graph.output]
    shaped = [p for p in inputs if p.dtype in FLOATS and (p.shape is None or len(p.shape) in (2, 3))]
    floats = [p for p in shaped if 0 not in (p.shape or ())]
    results = [p for p in outputs if p.dtype in FLOATS]
    if not results:
        hint = "an encoder layer gives [batch, sequence, d_model]"
        findings.error("interface", "no-float-output", "no output holds floating-point numbers", hint)
        return None
    if shaped and not floats:
        message = f"{shaped[0]} has no items: nothing can be asked of it"
        hint = "export with a symbolic batch and sequence (dynamic_shapes, dynamic_axes)"
        findings.error("interface", "no-float-input", message, hint, inputs=[port.name for port in inputs])
        return None
    if not floats:
        _report_no_floats(graph, inputs, results, findings)
        return None
    angles = {port.name for port, _ in angle_tables(graph, floats)}
    x = _select_x(graph, [p for p in floats if p.name not in angles] or floats, results, findings)
    output = _select_output(graph, x, results, findings)
    if output is None:
        return None
    masks = tuple(p for p in inputs if p.name != x.name)
    return Interface(x, output, masks)


def _report_no_floats(graph: Graph, inputs: list[Port], results: list[Port], findings: Findings) -> None:
    takes = f"the inputs are {'; '.join(map(str, inputs)) or 'none'}"
    hint = "export the encoder layers by themselves, with x as their input"
    if found := embedding(graph, [p.name for p in inputs if p.dtype in INTEGERS]):
        ids = next(p for p in inputs if p.name == found.ids)
        takes = f"{ids} are token ids of an embedding over {found.rows} ids ({found.node})"
        cut = f"{[found.output, *found.beside]}, {[p.name for p in results if p.name != found.output]}"
        hint = (
            "validate the file from the embedding's output on: onnx.utils.extract_model(path, 'layers.onnx', "
            f"{cut}) cuts that out; or export the layers by themselves, as conform export does"
        )
    message = f"no floating-point input [batch, sequence, d_model]: {takes}"
    findings.error("interface", "no-float-input", message, hint, inputs=[port.name for port in inputs])


def _select_x(graph: Graph, floats: list[Port], results: list[Port], findings: Findings) -> Port:
    """x, by preference: three axes rather than two, as wide as an output, a usual name, the first."""
    widths = {p.shape[-1] for p in results if p.shape}

    def rank(p: Port) -> tuple[bool, ...]:
        shape = p.shape or ()
        known = bool(shape) and isinstance(shape[-1], int)
        return len(shape) != 3, not known, not (known and shape[-1] in widths), p.name.lower() not in X_NAMES

    ranked = sorted(floats, key=rank)
    if len(ranked) > 1 and rank(ranked[0])[:3] == rank(ranked[1])[:3]:
        alike = " or ".join(str(p) for p in ranked if rank(p)[:3] == rank(ranked[0])[:3])
        alone = len([p for p in ranked if any(r.name in graph.depending_on(p.name) for r in results)]) < 2
        findings.add(
            "interface",
            "warning" if alone else "error",
            "x-ambiguous",
            f"x may be {alike}; {ranked[0].name!r} is taken",
            "name it x" if alone else "an encoder layer takes one sequence; a decoder takes its memory, too",
            taken=ranked[0].name,
            candidates=[p.name for p in ranked if rank(p)[:3] == rank(ranked[0])[:3]],
        )
    return ranked[0]


def _select_output(graph: Graph, x: Port, results: list[Port], findings: Findings) -> Port | None:
    """The layer's output: as wide as x; of several one with a usual name, or the one that most nodes lead to."""
    values = graph.depending_on(x.name)
    dependent = [p for p in results if p.name in values]
    if not dependent:
        message = f"no output depends on {x.name!r}"
        findings.error("interface", "output-independent-of-x", message, "is it the input that is meant?", x=x.name)
        return None
    width = x.shape[-1] if x.shape else None
    fitting = [
        p
        for p in dependent
        if p.shape is None or (len(p.shape) == len(x.shape or p.shape) and p.shape[-1] in (width, None))
    ]
    fitting = fitting or [
        p for p in dependent if p.shape is None or not isinstance(p.shape[-1], int) or not isinstance(width, int)
    ]
    if not fitting:
        findings.error(
            "interface",
            "output-shape-unlike-x",
            f"no output has the shape of x, {x}: {'; '.join(map(str, dependent))}",
            "an encoder layer gives as many features as it takes; name what comes after it as an output of its own",
            x=x.name,
            outputs=[p.name for p in dependent],
        )
        return None
    named = [p for p in fitting if p.name.lower() in OUTPUT_NAMES]
    best = (
        min(named, key=lambda p: OUTPUT_NAMES.index(p.name.lower()))
        if named
        else max(fitting, key=lambda p: _depth(graph, p.name))
    )
    if len(results) > 1:
        message = f"of {len(results)} outputs {best.name!r} is taken for the layer's"
        findings.note("interface", "output-chosen", message, output=best.name, outputs=[p.name for p in results])
    return best


def _depth(graph: Graph, name: str) -> int:
    """The number of nodes that lead to a value."""
    return len({id(graph.producers[each]) for each in graph.needed_by([name]) if each in graph.producers})

"""Checks a model's own functions before they are inlined: no recursion, and no explosion of nodes."""

from collections.abc import Iterable

import onnx

from encoder_conformance.readers.onnx_file.graph.nodes import node_label, subgraphs
from encoder_conformance.readers.onnx_file.reading.loading import UnreadableFile

MOST_DEPTH = 12
"""Graphs inside of nodes of graphs. Every tool copies what is inside once more for each."""
OTHERS = "a function may call others, and not itself"
Key = tuple[str, str, str]


def check_functions(model: onnx.ModelProto, most_nodes: int) -> None:
    """Raises UnreadableFile."""
    count = _Counting(model).of(model.graph.node)
    if count > most_nodes:
        message = f"with its functions it has {count:.3g} nodes, and {most_nodes:,} are the most that are read"
        raise UnreadableFile(message, hint="export without functions, or allow more with --nodes")


class _Counting:
    """Counts the nodes after inlining; visits each function once, however often it is called."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.functions = {(f.domain, f.name, getattr(f, "overload", "")): f for f in model.functions}
        self.known: dict[Key, int] = {}
        self.within: list[Key] = []
        self.depth = 0

    def of(self, nodes: Iterable[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            key = node.domain, node.op_type, getattr(node, "overload", "")
            total += self._called(key) if key in self.functions else 1
            self.depth += 1
            if self.depth > MOST_DEPTH:
                message = f"its graphs are nested more than {MOST_DEPTH} deep, at {node_label(node)}"
                raise UnreadableFile(message, hint="unroll the loops and branches")
            total += sum(self.of(graph.node) for graph in subgraphs(node))
            self.depth -= 1
        return total

    def _called(self, key: Key) -> int:
        if key in self.within:
            raise UnreadableFile(f"the function {key[1]!r} calls itself", hint=OTHERS)
        if key not in self.known:
            self.within.append(key)
            if len(self.within) > 100:
                message = f"functions call each other {len(self.within)} deep, {key[1]!r} the last of them"
                raise UnreadableFile(message, hint=OTHERS)
            self.known[key] = self.of(self.functions[key].node)
            self.within.pop()
        return self.known[key]

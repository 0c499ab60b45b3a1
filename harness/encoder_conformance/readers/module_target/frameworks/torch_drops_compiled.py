"""Sees what the compiled code of a module of PyTorch drops: in the graph that is compiled, run operator by operator.

What compiles a graph is told by nobody what it makes of it. So its outputs are looked at as well, as they are.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn

from encoder_conformance.readers.module_target.frameworks.torch_drops import Drops, user_line

_FRAME = re.compile(r'File "(.+)", line (\d+), in ')


class GraphDrops(Drops):
    """Of the graphs that are made of a module's code, and of nothing else: no operator between two of them is seen."""

    def __init__(self, module: nn.Module, factors: tuple[float, ...], graphs: "_Graphs") -> None:
        super().__init__(module, factors)
        self.called = {name for name, _ in module.named_modules()}
        self._graphs = graphs
        self.node: fx.Node | None = None

    @contextmanager
    def seeing(self) -> Iterator[None]:
        self._graphs.seen, self._graphs.runs = self, 0
        with torch.compiler.set_stance("default", force_backend=self._graphs):
            yield

    def line(self) -> str:
        found = _FRAME.findall((self.node.stack_trace if self.node else None) or "")
        return user_line((path, int(number)) for path, number in reversed(found))

    def check_seen(self, output: Tensor) -> None:
        """Raises NotImplementedError where its code is not one graph: what is dropped between two is not seen."""
        if self._graphs.runs != 1 or _breaks() != self._graphs.breaks or not self.depends_on_x(output):
            raise NotImplementedError("what it drops in training, compiled, was not asked: its code is not one graph")


class _Graphs:
    """What runs a module's graphs, in place of what compiles them, under what is `seen`. `runs`: of graphs, in a call;
    `breaks`: places at which PyTorch had cut code into several, before."""

    def __init__(self) -> None:
        self.seen: GraphDrops | None = None
        self.runs, self.breaks = 0, _breaks()

    def __call__(self, graph: fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            assert self.seen is not None
            self.runs += 1
            with self.seen:
                return _Nodes(graph, self.seen).run(*given)

        return run


class _Nodes(fx.Interpreter):
    def __init__(self, graph: fx.GraphModule, seen: GraphDrops) -> None:
        super().__init__(graph)
        self._seen = seen

    def run_node(self, n: fx.Node) -> Any:
        self._seen.node = n
        return super().run_node(n)


def graph_drops() -> Callable[[nn.Module, tuple[float, ...]], Drops]:
    """(module, factors) → what sees its graphs, which are made once for all of these."""
    graphs = _Graphs()
    return lambda module, factors: GraphDrops(module, factors, graphs)


def _breaks() -> int:
    counted: Counter[str] = torch._dynamo.utils.counters["graph_break"]
    return counted.total()

"""A file of integers as a function of its inputs, with some operators left in float, and what its scales lose."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import onnx

from encoder_conformance import Tensors
from encoder_conformance.impls.bases.onnx_model.runtimes import Session
from encoder_conformance.protocol.quantised import IntegerPlace, RoundedAway
from encoder_conformance.readers.onnx_file.findings import Findings
from encoder_conformance.readers.onnx_file.graph.execution import loaded
from encoder_conformance.readers.onnx_file.graph.graph import Graph
from encoder_conformance.readers.onnx_file.quantised.activations import rounded_away
from encoder_conformance.readers.onnx_file.quantised.places import IntegerOperators, left_in_float
from encoder_conformance.readers.onnx_file.quantised.weights import StoredWeights, tensors_of
from encoder_conformance.readers.onnx_file.reading.loading import load
from encoder_conformance.readers.onnx_file.reading.node_order import check_order
from encoder_conformance.spec.axes import Array


class QuantisedFile:
    """The file at `path`, in the runtime of the worker, which `open` is of. `source`: the tensors that it was made
    from, as far as they are known."""

    def __init__(self, path: Path, open: Callable[[bytes | Path], Session], source: Iterable[Array]) -> None:
        self.path, self._open = path, open
        model, _ = load(path)
        check_order(model, Findings())
        self._graph = Graph(model)
        self._operators = [*IntegerOperators(self._graph, StoredWeights(self._graph, source)).found()]
        self._session: tuple[tuple[int, ...], Session] | None = None

    def places(self) -> list[IntegerPlace]:
        return [IntegerPlace(node=each.label, weight=each.weight) for each in self._operators]

    def lost(self, feeds: Tensors) -> list[RoundedAway]:
        """What its fixed scales lose of the activations of these inputs. Raises ExecutionError."""
        return [*rounded_away(self._graph, feeds)]

    def outputs(self, places: Sequence[int], feeds: Tensors) -> Tensors:
        """Every output with these places in float, by name."""
        if self._session is None or self._session[0] != tuple(places):
            self._session = tuple(places), loaded(lambda: self._with(places), self._open)
        found: Tensors = self._session[1].run(feeds)
        return found

    def write(self, places: Sequence[int], path: Path) -> None:
        """Writes the file with these places in float."""
        onnx.save(self._with(places), path)

    def _with(self, places: Sequence[int]) -> onnx.ModelProto:
        return left_in_float(self._graph.original, [self._operators[place] for place in places])


def source_tensors(message: dict[str, Any], tensors: Tensors) -> list[Array]:
    """Those of the source file that a request names, and those that came with it as `source/NAME`."""
    sent = [value for name, value in tensors.items() if name.startswith("source/")]
    if message["source"] is None:
        return sent
    model, _ = load(Path(message["source"]))
    return [*sent, *tensors_of(Graph(model, copied=False).original).values()]

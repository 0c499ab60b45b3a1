"""The lines of the user's source that a graph was exported from: of its values, and of the parameters that it reads."""

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.protocol.findings import Finding, source_of
from encoder_conformance.readers.module_target.calling_lines import SoughtLines
from encoder_conformance.readers.module_target.mapping import OwnParameters
from encoder_conformance.readers.onnx_file.graph.operators import IDENTITIES, MOVES
from encoder_conformance.readers.onnx_file.tracing.features import Feature
from encoder_conformance.spec.axes import Array

_TRACE, _CLASSES = "pkg.torch.onnx.stack_trace", "pkg.torch.onnx.class_hierarchy"
_OURS = str(PACKAGE)
_LAYERS = f"{os.sep}nn{os.sep}"
_CALLS = f"{os.sep}module.py"
"""PyTorch's own file that calls every module."""
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_FRAME = re.compile(r'File "([^"]+)", line (\d+)(?:, in (.+))?')
_OF_A_CALL = "forward", "__call__"
"""The methods by which a module is called."""
_READ_FOR = re.compile(r" at '[^']+', read for '([^']+)'")
"""Of a value that stands where another should: what is made of it."""
_CLASS = re.compile(r"'([\w.]+)'")
_NO_NORM = "no norm as norm2"
_OF_A_NAME = re.compile(r".*[nN]orm\w*\(\s*\w+\s*\).*")
"""A line that only hands a name on: where no frames tell the function, what the name is given is told."""
_SUM = "a residual sum was looked for"
_NORMS = {"LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization", "ReduceMean"}
_OF_NORMS = {*_NORMS, "Sub", "Pow", "Mul"}
"""Operators that first read what is normed: those of one alone, and all."""
_A_NORM = re.compile(r"\w*(Layer_?Norm(alization)?|RMS_?Norm)\w*|Norm")
_OF_A_NORM, _OF_A_MAP = re.compile(r"\w*[nN]orm\w*|\w*NORM\w*"), re.compile(r"\w*(Linear|Dense|Conv1[dD])|Affine")
"""The names of classes that norm, and do nothing else; of those that may do more; of those that are a linear map."""


_HIDING = {"Where", "Add"}
"""Operators that hide keys from queries, before a softmax."""
_OF_A_SOFTMAX = "Exp", "Sub"
"""Of a softmax in parts what stands before its division, the last first."""
_MAPS = {"MatMul", "Gemm"}
_GIVES_A_NAME, _TAKES_ITS_NAME = re.compile(r"\b\w+ = "), re.compile(r"\b(\w+) = .*\(\s*\1\s*[),]")
"""A line that gives something a name; and one that gives it the name of what it is made of, x = norm(x)."""
_At = tuple[re.Match[str], int]
"""A frame, and the number of its line in the trace."""


class GraphProblem(NamedTuple):
    """A sentence that quotes nodes and values of a graph, and the names by which what it says is known."""

    sentence: str
    features: tuple[Feature, ...] = ()


class SourceLines:
    """Lines as `model.py:12`. `library`: the folder of the framework, whose lines are not the user's. `sought`: finds
    the lines of a graph whose exporter keeps none; it is asked for those of a problem alone, for it takes long."""

    def __init__(self, model: onnx.ModelProto, library: str, sought: SoughtLines | None = None) -> None:
        self._model, self._library, self._sought = model, library, sought

    def of_problems(self, problems: Iterable[GraphProblem]) -> str:
        """The line of the first of these that has one."""
        return next(filter(None, map(self.of_problem, problems)), "")

    def of_values(self, values: Iterable[str | None]) -> str:
        """The line that makes the first of these values of the graph that is of one."""
        return self.of_problems(GraphProblem(repr(self._computed(each))) for each in values if each is not None)

    def of_problem(self, problem: GraphProblem) -> str:
        """The line that places the first value or node that its sentence quotes, or reads the first constant, and what
        stands there; "" for none."""
        sentence, features = problem
        node = self._quoted(sentence)
        reader = _READ_FOR.search(sentence)
        beside = next((each for each in self._model.graph.node if reader and reader[1] in each.output), None)
        if node is None:
            return ""
        if _NO_NORM in sentence and (found := self._of_missing_norm(node)):
            return found
        if _SUM in sentence and (found := self._of_missing_sum(node, beside)):
            return found
        if "normed_skip" in features and (found := self._of_a_name_of_its_own(node)):
            return found
        beside = None if "activated" in features else beside  # it is at its own line, wherever it is read
        node = self._before(node, _HIDING) if "own_mask" in features else node
        line = ": ".join(filter(None, self._own(self._made_at_a_line(node), _OF_A_NORM, beside)))
        return line or self._found(node, moved=f"(Reshape '{node.name}')" in sentence)

    def _of_a_name_of_its_own(self, node: onnx.NodeProto) -> str:
        """Of a norm whose result has a name of its own beside what is normed, the line of the sum that adds it: that
        could add the other one. "" where the name of what is normed is taken for it, and nothing else is left."""
        line = ": ".join(filter(None, self._own(node, _OF_A_NORM))) or self._found(node)
        sums = [each for each in self._read_by(node) if each.op_type == "Add"]
        if not sums or not _GIVES_A_NAME.search(line) or _TAKES_ITS_NAME.search(line):
            return ""
        return ": ".join(filter(None, self._own(sums[0], _OF_A_NORM))) or self._found(sums[0])

    def _before(self, node: onnx.NodeProto, kinds: Container[str]) -> onnx.NodeProto:
        """The node of such a kind that makes what a node reads, however it lies, or what a softmax reads that is in
        parts, of which the node is the last; itself where there is none."""
        makers = {name: each for each in self._model.graph.node for name in each.output}
        made = _made_of(node, makers)
        for part in _OF_A_SOFTMAX if node.op_type == "Div" else ():
            made = _made_of(made, makers) if made is not None and made.op_type == part else None
        return made if made is not None and made.op_type in kinds else node

    def _of_missing_norm(self, node: onnx.NodeProto) -> str:
        """The line that reads a residual sum which no norm stands behind, in the function that has both: that of the
        feed-forward network. Where no map reads it, the line of the sum."""
        readers = [each for each in self._read_by(node) if each.op_type != "Add"]
        mapped = [each for each in readers if each.op_type in _MAPS]
        if readers and not mapped:
            return ": ".join(filter(None, self._own(node, _OF_A_NORM)))
        return ": ".join(filter(None, self._own(readers[0], _OF_A_NORM, node))) if readers else ""

    def _of_missing_sum(self, node: onnx.NodeProto, beside: onnx.NodeProto | None) -> str:
        """The line where what a branch gives should be added: that of the norm which alone reads it, as of a post-norm
        layer; else, where the branch is all that is given, that of the function which norms and calls it."""
        readers = self._read_by(node)
        of_norms = (each.op_type in _OF_NORMS for each in readers)
        if any(each.op_type in _NORMS for each in readers) and all(of_norms):
            line = ": ".join(filter(None, self._own(readers[0], _OF_A_NORM)))
            return line or _OF_A_NAME.sub("", self._found(readers[0]))
        norm = self._norm_before(node) if beside is None else None
        return "" if norm is None else ": ".join(filter(None, self._own(self._made_at_a_line(node), _OF_A_NORM, norm)))

    def _read_by(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        """The nodes that compute with what a node gives, however it lies."""
        found, names = list[onnx.NodeProto](), set(node.output)
        for each in self._model.graph.node:
            if names.intersection(each.input):
                if each.op_type in MOVES | IDENTITIES:
                    names |= set(each.output)
                else:
                    found.append(each)
        return found

    def _norm_before(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        """The last norm that what a node gives is made of."""
        made_of, last = set(node.input), None
        for each in reversed(self._model.graph.node):
            if made_of.intersection(each.output):
                made_of |= set(each.input)
                last = each if last is None and each.op_type in _NORMS else last
        return last

    def _found(self, node: onnx.NodeProto, *, moved: bool = False) -> str:
        """The line of a node of which the exporter keeps none. `moved`: of what only arranges what it gives."""
        with suppress(Exception):  # what is found out of a graph's values is judged without its lines
            return "" if self._sought is None else self._sought(node.output[0], moved)
        return ""

    def _quoted(self, problem: str) -> onnx.NodeProto | None:
        nodes = self._model.graph.node
        made = (node for node in nodes if any(f"'{name}'" in problem for name in (node.name, *node.output)))
        constants = {tensor.name for tensor in self._model.graph.initializer}
        read = (node for node in nodes if any(f"'{name}'" in problem for name in constants.intersection(node.input)))
        return next(chain(made, read), None)

    def placed(self, finding: Finding) -> Finding:
        """A finding of the graph as one of the source: the line that makes the value that it is about."""
        value = finding.about.get("at")
        if value is None:
            return finding
        about = {key: each for key, each in finding.about.items() if key != "at"}
        return finding.model_copy(
            update={"about": about | source_of(self.of_problem(GraphProblem(repr(self._computed(value)))))}
        )

    def _computed(self, value: str) -> str:
        """The value whose numbers it has, where lines are sought by values: an exporter moves them for the map behind,
        which is of another line."""
        makers = {name: node for node in self._model.graph.node for name in node.output}
        while self._sought is not None and value in makers and makers[value].op_type in MOVES | IDENTITIES:
            value = makers[value].input[0]
        return value

    def at(self, evidence: str) -> str:
        """The line that makes it."""
        node = self._quoted(evidence)
        return "" if node is None else self._own(node)[0]

    def of_map(self, value: str) -> str:
        """The line that calls the map which makes this value: where its class is the user's own, no line in that."""
        node = self._quoted(repr(value))
        return "" if node is None else self._own(node, _OF_A_MAP)[0] or self._own(node)[0]

    def of_parameters(self, own: OwnParameters, marks: Array) -> Iterator[tuple[str, str]]:
        """Own parameter → the line that reads it, of several the last, as where one is read for another; of a norm's
        the line that calls it. `marks`: the number of each own element [n]."""
        readers = {name: node for node in self._model.graph.node for name in node.input}
        order = np.argsort(marks)
        ascending = marks[order]
        owners = list(_owners(own))
        for tensor in self._model.graph.initializer:
            values = numpy_helper.to_array(tensor).reshape(-1)
            if tensor.name not in readers or values.dtype != marks.dtype or not values.size:
                continue
            at = order[min(int(np.searchsorted(ascending, values[0])), len(marks) - 1)]
            if marks[at] == values[0]:
                line, _ = self._own(self._with_a_line(tensor.name, readers), _OF_A_NORM)
                yield next(name for end, name in owners if at < end), line

    def _with_a_line(self, name: str, readers: dict[str, onnx.NodeProto]) -> onnx.NodeProto:
        """The node that reads a value, or what is made of it, and is of a line."""
        node = readers[name]
        while not self._own(node)[0] and node.output and node.output[0] in readers:
            node = readers[node.output[0]]
        return node

    def _made_at_a_line(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """The node; or of one that an exporter adds, as to split, and that has no line, the nearest one before it that
        has, and computes."""
        if self._own(node)[0]:
            return node
        makers = {name: each for each in self._model.graph.node for name in each.output}
        nearest = node
        while nearest.op_type in MOVES | IDENTITIES or not self._own(nearest)[0]:
            made = next((makers[name] for name in nearest.input if name in makers), None)
            if made is None:
                return node
            nearest = made
        return nearest

    def _own(
        self, node: onnx.NodeProto, around: re.Pattern[str] | None = None, beside: onnx.NodeProto | None = None
    ) -> tuple[str, str]:
        """`around`: of a class of such a name the line that calls it, and none in its own file. `beside`: the line of
        the function that leads to this one, too."""
        lines, own = self._frames(node, around)
        if beside is not None:
            own = _shared(own, self._frames(beside, around)[1]) or own
        if not own:
            return "", ""
        found, at = own[-1]
        code = lines[at + 1] if at + 1 < len(lines) and not _FRAME.match(lines[at + 1]) else ""
        return f"{Path(found[1]).name}:{found[2]}", code

    def _frames(self, node: onnx.NodeProto, around: re.Pattern[str] | None) -> tuple[list[str], list[_At]]:
        """The lines of its trace, and those frames among them that may be told, the outermost first."""
        trace = next((entry.value for entry in node.metadata_props if entry.key == _TRACE), "")
        lines = [line.strip() for line in trace.splitlines() if line.strip()]
        frames = [(found, at) for at, line in enumerate(lines) if (found := _FRAME.match(line))]
        theirs = tuple(f"{folder}{os.sep}" for folder in (self._library or _OURS, _OURS))
        own = [each for each in frames if not each[0][1].startswith((*theirs, "<"))]  # "<…>" is code of no file
        own = _of_the_layer(own, node, around)
        layers = [each for each in frames if _LAYERS in each[0][1] and not each[0][1].endswith(_CALLS)]
        return lines, own or layers  # a framework's own module


def _made_of(node: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto]) -> onnx.NodeProto | None:
    """The node that computes what a node reads first, however it lies; None for an input. `makers`: of each value."""
    made = makers.get(node.input[0]) if node.input else None
    while made is not None and made.op_type in MOVES | IDENTITIES:
        made = makers.get(made.input[0])
    return made


def _shared(frames: list[_At], others: list[_At]) -> list[_At]:
    """The frames of the functions that lead to others as well, from the outermost to the one that calls both."""
    kept = []
    for (one, at), (other, _) in zip(frames, others, strict=False):
        if (one[1], one[3]) != (other[1], other[3]):
            break
        kept.append((one, at))
        if one[2] != other[2]:
            break
    return kept


def _of_the_layer(frames: list[_At], node: onnx.NodeProto, named: re.Pattern[str] | None) -> list[_At]:
    """Of installed packages the frames of those alone that the modules are of, which are called: what rearranges for
    them is another's."""
    classes = _CLASS.findall(next((entry.value for entry in node.metadata_props if entry.key == _CLASSES), ""))
    around = [*classes[:1], *classes][:-2]  # the last ones are the operator, and a module that may only rearrange
    packages = {name.partition(".")[0] for name in around}
    kept = [each for each in frames if (package := _package(each[0][1])) is None or package in packages]
    outside = _outside(kept, _outermost_norm(classes[:-1]), named) if named and len(classes) > 1 else kept
    return outside or kept or frames


def _outermost_norm(classes: list[str]) -> str:
    """The innermost class, or of classes that norm and hold one another the outermost."""
    at = len(classes) - 1
    while at > 0 and all(_A_NORM.fullmatch(each.rpartition(".")[2]) for each in classes[at - 1 : at + 1]):
        at -= 1
    return classes[at]


def _outside(frames: list[_At], innermost: str, named: re.Pattern[str]) -> list[_At]:
    """The frames that lead to the call of the `innermost` module, where that is `named` so, as a norm is, whose file
    may be the layer's, too; all where it is not."""
    module, _, name = innermost.rpartition(".")
    if not named.fullmatch(name):
        return frames
    within = [found[1].endswith(f"{module.replace('.', os.sep)}.py") for found, _ in frames]
    calls = [at for at, (found, _) in enumerate(frames) if within[at] and found[3] in _OF_A_CALL]
    return frames[: calls[-1]] if calls else [each for each, inside in zip(frames, within, strict=True) if not inside]


def _package(path: str) -> str | None:
    """The installed package that a file is of."""
    _, found, inside = path.rpartition(_INSTALLED)
    return inside.partition(os.sep)[0].removesuffix(".py") if found else None


def _owners(own: OwnParameters) -> Iterable[tuple[int, str]]:
    """The number of the element after its last, and the parameter, in order."""
    end = 0
    for name, shape in own.shapes.items():
        end += int(np.prod(shape, dtype=int))
        yield end, name

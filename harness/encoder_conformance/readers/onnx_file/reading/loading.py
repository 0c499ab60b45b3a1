"""Loads an untrusted file: no data from outside its folder, bounded memory, no crash.

Every reference to external data is checked before any of it is read.
"""

import resource
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import onnx
from google.protobuf.message import DecodeError
from onnx.external_data_helper import load_external_data_for_tensor

from encoder_conformance.readers.onnx_file.graph.size import size_of

LARGEST = 2**31 - 1
"""Bytes of a protobuf message, and of a file that is read here, what lies beside it included."""
OWN_MEMORY = 6 * 2**30
"""Address space that Python, ONNX and ONNX Runtime with its threads take for themselves."""
COPIES = 8
"""How often the file's bytes may lie in memory at once: as read, parsed, inlined, serialised, in a session …"""


_SHOWN = 4
"""Tensors without data that are named: where a file did not travel with its model, all of them lie in it."""


class UnreadableFile(Exception):
    """The file cannot be taken any further: `problems` are findings of phase `file`, `hint` is that of the last."""

    def __init__(self, *problems: str, hint: str = "") -> None:
        super().__init__(*problems)
        self.problems, self.hint = problems, hint


def bound_memory(file_bytes: int) -> None:
    """No more address space than a file of this size needs, from now on and for good."""
    wanted = OWN_MEMORY + COPIES * min(file_bytes, LARGEST)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def load(path: Path) -> tuple[onnx.ModelProto, set[str]]:
    """The model with its external data, and the names of the files that these are in; raises UnreadableFile."""
    bytes_beside = _check_file(path)
    bound_memory(path.stat().st_size + max(bytes_beside, 0))
    model = _parse(path)
    external = {e.value for tensor in tensors(model) for e in tensor.external_data if e.key == "location"}
    load_external(model, path.resolve().parent)
    return model, external


def _check_file(path: Path) -> int:
    """The bytes of the other files in its folder."""
    try:
        status = path.stat()
    except OSError as error:
        raise UnreadableFile(f"{path.name} cannot be opened: {error.strerror}", hint="check the path") from None
    except ValueError as error:  # a zero byte in the name
        raise UnreadableFile(f"the path cannot be opened: {error}", hint="check the path") from None
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableFile(f"{path.name} is a folder", hint="name the .onnx file in it")
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile(f"{path.name} is no plain file", hint="name an .onnx file")
    if not status.st_size:
        raise UnreadableFile(f"{path.name} is empty", hint="export it again")
    if status.st_size > LARGEST:
        message = f"{path.name} has {status.st_size} bytes, more than a protobuf message can (2 GiB)"
        raise UnreadableFile(message, hint="export with external data")
    return sum(other.stat().st_size for other in path.parent.iterdir() if other.is_file()) - status.st_size


def _parse(path: Path) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except OSError as error:
        raise UnreadableFile(f"{path.name} cannot be read: {error.strerror}", hint="check its permissions") from None
    except (DecodeError, RuntimeError) as error:  # upb raises one or the other, by the problem
        why = f" ({error})" if str(error) else ""
        message = f"{path.name} is no ONNX model, or is cut short: it does not parse{why}"
        raise UnreadableFile(message, hint="export it again") from None
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise UnreadableFile(f"{path.name} parses, but holds no graph", hint="is it an ONNX model?")
    return model


def load_external(model: onnx.ModelProto, folder: Path) -> None:
    """Read the external data, after all references are checked."""
    external = [tensor for tensor in tensors(model) if tensor.data_location == onnx.TensorProto.EXTERNAL]
    if problems := [problem for tensor in external if (problem := external_problem(tensor, folder))]:
        shown, left = problems[:_SHOWN], len(problems[_SHOWN:])
        more = (f"external data of {left} tensors more cannot be read, either",) if left else ()
        raise UnreadableFile(*shown, *more, hint="an external file lies beside the model, or in a folder there")
    if sum(size_of(tensor) for tensor in external) > LARGEST:
        message = "the model with its external data has more than 2 GiB"
        raise UnreadableFile(message, hint="export fewer layers of it at a time")
    for tensor in external:
        try:
            load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:
            message = f"external data of {tensor.name!r} cannot be read: {error}"
            raise UnreadableFile(message, hint="export it again") from None
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def external_problem(tensor: onnx.TensorProto, folder: Path) -> str:
    """Why this tensor's external data must not be read; "" if it may."""
    name, of = tensor.name or "a tensor without a name", "external data of"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not location:
        return f"{of} {name!r} has no location"
    pure = PurePosixPath(location.replace("\\", "/"))
    if pure.is_absolute() or ":" in location or ".." in pure.parts or "\0" in location:
        return f"{of} {name!r} points outside the model's folder: {location!r}"
    file = (folder / pure).resolve()
    if not file.is_relative_to(folder):
        return f"{of} {name!r} points outside the model's folder, by a link: {location!r}"
    if not file.is_file():
        return f"{of} {name!r} is missing: {location!r}"
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size_of(tensor)))
    except ValueError:
        return f"{of} {name!r} has an offset or length that is no number: {entries}"
    size = file.stat().st_size
    if offset < 0 or length < 0:
        return f"{of} {name!r} begins at byte {offset} of {location!r}, and is {length} long"
    if offset + length > size:
        return f"{of} {name!r} ends at byte {offset + length} of {location!r}, which has {size}"
    return ""


def tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor anywhere in a model: of its graph, of attributes, subgraphs, functions, sparse ones, training."""
    graphs = [model.graph]
    for training in model.training_info:
        graphs += [training.initialization, training.algorithm]
    nodes = [node for function in model.functions for node in function.node]
    attributes = [a for function in model.functions for a in function.attribute_proto]
    while graphs or nodes or attributes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            nodes += graph.node
        elif nodes:
            attributes += nodes.pop().attribute
        else:
            attribute = attributes.pop()
            yield from (attribute.t, *attribute.tensors)  # a field that is not there is empty
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
            graphs += [attribute.g, *attribute.graphs]

"""Reads a YAML file into a model, with errors that name the file, the line and the key."""

import json
import re
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import shown

Model = TypeVar("Model", bound=BaseModel)
EXTENSIONS = (".yaml", ".yml")


class _Strict(yaml.constructor.SafeConstructor):
    """PyYAML's safe subset; a key given twice is an error, and `1e-5` is a number as in YAML 1.2."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in keys:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep)


class _Loader(_Strict, yaml.SafeLoader):
    """The parser written in Python: slow, with informative errors."""


class _CLoader(_Strict, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # not in every build
    """libyaml's parser, ten times as fast: it saves half a second at the start of every command."""


_INTEGER, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_DIGITS = list("-+0123456789")
for _loader in (_Loader, _CLoader):
    # YAML 1.1 reads 030 as 24, 1:30 as 90 and 1_000 as 1000. Here they are text, which no number's key takes.
    _loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_INTEGER, _FLOAT)]
        for first, resolvers in _loader.yaml_implicit_resolvers.items()
    }
    _loader.add_implicit_resolver(_INTEGER, re.compile(r"^[-+]?(0|[1-9][0-9]*)$"), _DIGITS)
    _loader.add_implicit_resolver(
        _FLOAT, re.compile(r"^[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$"), [*_DIGITS, "."]
    )
    _loader.add_implicit_resolver(_FLOAT, re.compile(r"^[-+]?\.(inf|Inf|INF)$|^\.(nan|NaN|NAN)$"), list("-+."))

_LARGEST_FILE = 1 << 20
"""Bytes. The longest file of the specification has a hundredth of it."""
_MOST_NODES = 100_000
"""Scalars, lists and mappings of a document, each as often as an alias repeats it."""
_SAFE_LENGTH = 10_000
"""Characters. libyaml recurses on the C stack. A hundred thousand nested brackets exhaust it; shorter text cannot."""


def read_yaml(path: Path) -> Any:
    """The document in a YAML file. Raises InputError, with line and column, if it is not UTF-8 YAML, or too large."""
    text = _read_text(path)
    try:
        return _parse(text, path)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{shown(path)}:{mark.line + 1}:{mark.column + 1}" if mark else shown(path)
        raise InputError(error.problem or "is not YAML", where=place, hint="mend the YAML there") from None
    except RecursionError:
        raise InputError("nests its values too deeply", where=shown(path), hint="mend the YAML there") from None
    except (yaml.YAMLError, ValueError, TypeError) as error:  # the last two: !!int x, a list as a key
        raise InputError(f"is not YAML: {error}", where=shown(path), hint="mend the YAML there") from None


def _read_text(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():  # a pipe or a device may never end
            raise InputError("cannot be read: it is no regular file", where=shown(path), hint="give a YAML file")
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=shown(path), hint="give a YAML file") from None
    if len(data) > _LARGEST_FILE:
        problem = f"has more than {_LARGEST_FILE} bytes"
        raise InputError(problem, where=shown(path), hint="give a YAML file of this kind")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", where=shown(path), hint="save it as UTF-8") from None


def _parse(text: str, path: Path) -> Any:
    if len(text) <= _SAFE_LENGTH:
        with suppress(yaml.YAMLError):  # the Python parser reads it again, for a better error
            return _construct(_CLoader(text), path)  # type: ignore[call-arg]  # its base is not known to mypy
    return _construct(_Loader(text), path)


def _construct(loader: yaml.SafeLoader, path: Path) -> Any:
    """The document of a loader, if it is not too large. Its nodes are counted before any alias is expanded."""
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if (count := _expanded(node, {})) > _MOST_NODES:
            message = f"has {count} values with every alias written out; at most {_MOST_NODES} are read"
            raise InputError(message, where=shown(path), hint="write it with fewer aliases (*name)")
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _expanded(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of nodes of a tree, shared ones as often as they occur. Raises ValueError for one within itself."""
    if id(node) in known:
        if not known[id(node)]:
            raise ValueError("circular: an alias stands within what it repeats")
        return known[id(node)]
    known[id(node)] = 0
    match node:
        case yaml.SequenceNode():
            inner = sum(_expanded(item, known) for item in node.value)
        case yaml.MappingNode():
            inner = sum(_expanded(key, known) + _expanded(value, known) for key, value in node.value)
        case _:
            inner = 0
    known[id(node)] = 1 + inner
    return 1 + inner


def read_model(path: Path, model: type[Model]) -> Model:
    """A YAML file as an instance of `model`. Raises InputError with one line per problem."""
    return model_of(read_document(path, model), path, model)


def read_document(path: Path, model: type[BaseModel]) -> dict[str, Any]:
    """The keys of a YAML file that is to be a `model`, not yet validated. Raises InputError if it has none."""
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError("holds no mapping of keys to values", where=shown(path), hint=f"see {_schema_hint(model)}")
    return data


def model_of(document: dict[str, Any], path: Path, model: type[Model], base: str = "") -> Model:
    """The keys of the file `path` as an instance of `model`. Raises InputError with one line per problem.

    `base`: the layer that gives the keys which the file itself does not.
    """
    try:
        return model.model_validate_json(_to_json(document, path))
    except ValidationError as error:
        problems = _problems(error, f"its base {base} does not give it" if base else "every default is written out")
        hint = f"see {_schema_hint(model)}" + (f"; keys that are not there are those of {base}" if base else "")
        raise InputError("\n".join(problems), where=shown(path), hint=hint) from None


def _to_json(data: Any, path: Path) -> str:
    try:
        return json.dumps(data, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"has a value that the specification does not use: {error}"
        raise InputError(message, where=shown(path), hint="write plain text, numbers, lists and mappings") from None


def _schema_hint(model: type[BaseModel]) -> str:
    return f"specs/schema/{model.__name__.lower()}.schema.json for the keys and their values"


def _problems(error: ValidationError, missing: str) -> list[str]:
    """One line per problem: the key's path, the problem and the value. `missing`: why a key has to be there."""
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"]) or "the whole file"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "missing":
            lines.append(f"key {key} is missing; {missing}")
        elif problem["type"] == "extra_forbidden":
            lines.append(f"key {key} is unknown")
        else:
            value = "" if problem["type"] == "value_error" else f" (found {problem['input']!r})"
            lines.append(f"{key}: {message}{value}")
    return lines

"""Reads a YAML file into a model, with errors that name the file, the line and the key."""

import json
import re
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from encoder_conformance.errors import InputError
from encoder_conformance.paths import shown

Model = TypeVar("Model", bound=BaseModel)


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


for _loader in (_Loader, _CLoader):
    _loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
    )

_SAFE_LENGTH = 10_000
"""Characters. libyaml recurses on the C stack. A hundred thousand nested brackets exhaust it; shorter text cannot."""


def read_yaml(path: Path) -> Any:
    """The document in a YAML file. Raises InputError, with line and column, if it is not UTF-8 YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=shown(path), hint="give a YAML file") from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", where=shown(path), hint="save it as UTF-8") from None
    try:
        return _parse(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{shown(path)}:{mark.line + 1}:{mark.column + 1}" if mark else shown(path)
        raise InputError(error.problem or "is not YAML", where=place, hint="mend the YAML there") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:  # the last three: !!int x, a list as a key
        raise InputError(f"is not YAML: {error}", where=shown(path), hint="mend the YAML there") from None


def _parse(text: str) -> Any:
    if len(text) <= _SAFE_LENGTH:
        with suppress(yaml.YAMLError):  # the Python parser reads it again, for a better error
            return yaml.load(text, Loader=_CLoader)
    return yaml.load(text, Loader=_Loader)


def read_model(path: Path, model: type[Model]) -> Model:
    """A YAML file as an instance of `model`. Raises InputError with one line per problem."""
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise InputError("holds no mapping of keys to values", where=shown(path), hint=f"see {_schema_hint(model)}")
    try:
        return model.model_validate_json(_to_json(data, path))
    except ValidationError as error:
        raise InputError("\n".join(_problems(error)), where=shown(path), hint=f"see {_schema_hint(model)}") from None


def _to_json(data: Any, path: Path) -> str:
    try:
        return json.dumps(data, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"has a value that the specification does not use: {error}"
        raise InputError(message, where=shown(path), hint="write plain text, numbers, lists and mappings") from None


def _schema_hint(model: type[BaseModel]) -> str:
    return f"specs/schema/{model.__name__.lower()}.schema.json for the keys and their values"


def _problems(error: ValidationError) -> list[str]:
    """One line per problem: the key's path, the problem and the value."""
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part) for part in problem["loc"]) or "the whole file"
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "missing":
            lines.append(f"key {key} is missing; every default is written out")
        elif problem["type"] == "extra_forbidden":
            lines.append(f"key {key} is unknown")
        else:
            value = "" if problem["type"] == "value_error" else f" (found {problem['input']!r})"
            lines.append(f"{key}: {message}{value}")
    return lines

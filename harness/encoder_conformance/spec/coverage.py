"""Counts the cases that use each value of each key of the layer and situation languages.

Keys and values come from the models, so a new one appears without a change here.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.plan import OWN_BIAS
from encoder_conformance.spec.situation import Situation

LANGUAGES: dict[str, type[BaseModel]] = {"layer": Layer, "situation": Situation}
_WORDS = frozenset({"layer", "situation", "title", "source", "clauses", "families"})
"""Keys that are not counted: ids, titles, sources, clauses, and `families`, which pairs layers with situations."""
_FREE: dict[object, str] = {int: "any number", float: "any number", str: "any text"}

_Reader = Callable[[BaseModel], Iterable[object]]
"""Reads the values at a key: none if the key is absent, several if it is inside a list."""


@dataclass(frozen=True)
class ValueCount:
    """`cases` is the number of cases whose layer, or whose situation, has `value` at `key`."""

    language: str
    key: str
    value: str
    cases: int


WITHOUT_CASE = {
    ("input.pattern", "raised"),
    ("positions", "given"),
    ("family", "shipped"),
    ("family", "shipped_rotary"),
    *((key, value) for key in OWN_BIAS for value in ("true", "false")),
}
"""Keys and values that no case has: a pattern for ONNX files with parameters of their own (P-4), maps that lack the
bias of their like, as they are read off files and modules (L-3), positions that do not count from 0 (S-3), and the
layers of published encoders, which are asked where they are named (L-8)."""


def coverage(cases: Iterable[Case]) -> list[ValueCount]:
    """One row for each value that a key may have, in the order of the models. Free values share one row, `any …`."""
    instances: dict[str, list[BaseModel]] = {"layer": [], "situation": []}
    for case in cases:
        instances["layer"].append(case.layer)
        instances["situation"].append(case.situation)
    rows = []
    for language, model in LANGUAGES.items():
        for key, values in values_of(model).items():
            for value, is_used in values.items():
                if (key, value) not in WITHOUT_CASE and not key.startswith("positions."):
                    rows.append(ValueCount(language, key, value, sum(map(is_used, instances[language]))))
    return rows


def values_of(model: type[BaseModel]) -> dict[str, dict[str, Callable[[BaseModel], bool]]]:
    """Key → value → predicate: whether an instance of the model has that value at that key."""
    tests: dict[str, dict[str, list[Callable[[BaseModel], bool]]]] = {}
    for key, value, is_used in _model_values("", model, lambda root: [root]):
        if key not in _WORDS:
            tests.setdefault(key, {}).setdefault(value, []).append(is_used)
    return {key: {value: _any_of(each) for value, each in values.items()} for key, values in tests.items()}


def _any_of(tests: list[Callable[[BaseModel], bool]]) -> Callable[[BaseModel], bool]:
    """Disjunction of predicates: two kinds of mask may have a key of the same name."""
    return lambda root: any(is_used(root) for is_used in tests)


_Value = tuple[str, str, Callable[[BaseModel], bool]]


def _model_values(key: str, model: type[BaseModel], read: _Reader) -> Iterator[_Value]:
    for name, field in model.model_fields.items():
        nested_key = f"{key}.{field.alias or name}".lstrip(".")
        yield from _annotated_values(nested_key, field.annotation, _nested(read, _field_reader(name), model))


def _field_reader(name: str) -> Callable[[object], list[object]]:
    return lambda model: [getattr(model, name)]


def _annotated_values(key: str, annotation: Any, read: _Reader) -> Iterator[_Value]:
    """Each value that the annotation allows at `key`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _annotated_values(key, arguments[0], read)
    elif origin in (Union, UnionType):
        yield from _union_values(key, arguments, read)
    elif origin is Literal:
        yield from (_choice(key, choice, read) for choice in arguments)
    elif annotation is bool:
        yield from (_choice(key, choice, read) for choice in (True, False))
    elif annotation in (None, NoneType):
        yield _choice(key, None, read)
    elif origin is dict:
        yield from _mapping_values(key, *arguments, read=read)
    elif origin is tuple:
        yield from _annotated_values(key, arguments[0], _nested(read, list, tuple))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _model_values(key, annotation, read)
    else:
        kind = annotation if isinstance(annotation, type) else object
        yield key, _FREE.get(annotation, "any"), lambda root: any(isinstance(value, kind) for value in read(root))


def _union_values(key: str, members: tuple[Any, ...], read: _Reader) -> Iterator[_Value]:
    """`null` first, then `given` if the other members are models with keys of their own."""
    yield from (_choice(key, None, read) for member in members if member is NoneType)
    inner = [value for member in members if member is not NoneType for value in _annotated_values(key, member, read)]
    if NoneType in members and all(nested_key != key for nested_key, _, _ in inner):
        yield key, "given", lambda root: any(value is not None for value in read(root))
    yield from inner


def _mapping_values(key: str, names: Any, items: Any, *, read: _Reader) -> Iterator[_Value]:
    """`{}` and `given`, then the names and items if they are choices among few."""
    yield key, "{}", lambda root: any(value == {} for value in read(root))
    yield key, "given", lambda root: any(bool(value) for value in read(root))
    inner = [
        *_annotated_values(key, names, _nested(read, list, dict)),
        *_annotated_values(f"{key}.*", items, _nested(read, lambda mapping: mapping.values(), dict)),
    ]
    yield from (value for value in inner if not value[1].startswith("any"))


def _choice(key: str, choice: object, read: _Reader) -> _Value:
    """One value among few, as YAML writes it; 1 is not `true`."""
    yaml_text = "null" if choice is None else str(choice).lower() if isinstance(choice, bool) else str(choice)
    return key, yaml_text, lambda root: any(type(v) is type(choice) and v == choice for v in read(root))


def _nested(read: _Reader, inner: Callable[[Any], Iterable[object]], kind: Any) -> _Reader:
    """A reader of the values inside each value of type `kind` that `read` gives."""
    return lambda root: [value for outer in read(root) if isinstance(outer, kind) for value in inner(outer)]

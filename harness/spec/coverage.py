"""Which values of the two languages' keys the cases use. Keys and values are read off the models, so a new one is seen.

python -m encoder_conformance.spec.coverage        writes docs/coverage.md; a test checks that it has not drifted
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from encoder_conformance.paths import ROOT
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Situation

PAGE = ROOT / "docs" / "coverage.md"
LANGUAGES: dict[str, type[BaseModel]] = {"layer": Layer, "situation": Situation}
_WORDS = frozenset({"layer", "situation", "title", "clauses", "families"})
"""Keys that name a file, say to people what it is for, or say (with the layer's `family`) which cases there are."""
_FREE: dict[object, str] = {int: "any number", float: "any number", str: "any text"}

_Found = Callable[[BaseModel], Iterable[object]]
"""What a layer or a situation has at a key: nothing if the key is not there, several values if it is in a list."""


@dataclass(frozen=True)
class Row:
    """`cases` is the number of cases whose layer, or whose situation, has `value` at `key`."""

    language: str
    key: str
    value: str
    cases: int


def coverage(cases: Iterable[Case]) -> list[Row]:
    """A row for each value that a key may have, in the order of the models; what is free is one value, `any …`."""
    given: dict[str, list[BaseModel]] = {"layer": [], "situation": []}
    for case in cases:
        given["layer"].append(case.layer)
        given["situation"].append(case.situation)
    rows = []
    for language, model in LANGUAGES.items():
        for key, values in values_of(model).items():
            for value, is_used in values.items():
                rows.append(Row(language, key, value, sum(map(is_used, given[language]))))
    return rows


def values_of(model: type[BaseModel]) -> dict[str, dict[str, Callable[[BaseModel], bool]]]:
    """Key → value → whether an instance of the model has that value at that key."""
    tests: dict[str, dict[str, list[Callable[[BaseModel], bool]]]] = {}
    for key, value, is_used in _of_model("", model, lambda root: [root]):
        if key not in _WORDS:
            tests.setdefault(key, {}).setdefault(value, []).append(is_used)
    return {key: {value: _either(each) for value, each in values.items()} for key, values in tests.items()}


def _either(tests: list[Callable[[BaseModel], bool]]) -> Callable[[BaseModel], bool]:
    """Two kinds of mask may have a key of the same name."""
    return lambda root: any(is_used(root) for is_used in tests)


_Value = tuple[str, str, Callable[[BaseModel], bool]]


def _of_model(key: str, model: type[BaseModel], at: _Found) -> Iterator[_Value]:
    for name, field in model.model_fields.items():
        below = f"{key}.{field.alias or name}".lstrip(".")
        yield from _of(below, field.annotation, _inside(at, _field(name), model))


def _field(name: str) -> Callable[[object], list[object]]:
    return lambda model: [getattr(model, name)]


def _of(key: str, annotation: Any, at: _Found) -> Iterator[_Value]:
    """Each value that the annotation allows at `key`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        yield from _of(key, arguments[0], at)
    elif hasattr(annotation, "__value__"):  # `type X = …`
        yield from _of(key, annotation.__value__, at)
    elif origin in (Union, UnionType):
        yield from _of_union(key, arguments, at)
    elif origin is Literal:
        yield from (_choice(key, choice, at) for choice in arguments)
    elif annotation is bool:
        yield from (_choice(key, choice, at) for choice in (True, False))
    elif annotation in (None, NoneType):
        yield _choice(key, None, at)
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield from _of_mapping(key, *arguments, at=at)
    elif isinstance(origin, type) and issubclass(origin, Sequence | Set):
        for item in dict.fromkeys(argument for argument in arguments if argument is not ...):
            yield from _of(key, item, _inside(at, list, origin))
    elif isinstance(annotation, type) and issubclass(annotation, Enum):
        yield from (_choice(key, choice, at) for choice in annotation)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield from _of_model(key, annotation, at)
    else:
        kind = annotation if isinstance(annotation, type) else object
        yield key, _FREE.get(annotation, "any"), lambda root: any(isinstance(value, kind) for value in at(root))


def _of_union(key: str, members: tuple[Any, ...], at: _Found) -> Iterator[_Value]:
    """`null` first, then `given` where keys of its own say what is given."""
    yield from (_choice(key, None, at) for member in members if member is NoneType)
    inner = [value for member in members if member is not NoneType for value in _of(key, member, at)]
    if NoneType in members and all(below != key for below, _, _ in inner):
        yield key, "given", lambda root: any(value is not None for value in at(root))
    yield from inner


def _of_mapping(key: str, names: Any, items: Any, *, at: _Found) -> Iterator[_Value]:
    """Empty, or not; and if its names or its items are of a few kinds, those."""
    yield key, "{}", lambda root: any(value == {} for value in at(root))
    yield key, "given", lambda root: any(bool(value) for value in at(root))
    inner = [*_of(key, names, _inside(at, list, Mapping)), *_of(f"{key}.*", items, _inside(at, _items, Mapping))]
    yield from (found for found in inner if not found[1].startswith("any"))


def _items(mapping: Any) -> list[object]:
    return list(mapping.values())


def _choice(key: str, choice: object, at: _Found) -> _Value:
    """One value among few, as YAML writes it; 1 is not `true`."""
    plain = choice.value if isinstance(choice, Enum) else choice
    written = "null" if plain is None else str(plain).lower() if isinstance(plain, bool) else str(plain)
    return key, written, lambda root: any(type(v) is type(choice) and v == choice for v in at(root))


def _inside(at: _Found, inner: Callable[[Any], Iterable[object]], kind: Any) -> _Found:
    """What is inside of everything of one kind that is found."""
    return lambda root: [value for outer in at(root) if isinstance(outer, kind) for value in inner(outer)]


def page() -> str:
    """The whole page."""
    cases = list(load().cases.values())
    rows = coverage(cases)
    tables = []
    for language in LANGUAGES:
        lines = [f"| `{row.key}` | `{row.value}` | {row.cases} |" for row in rows if row.language == language]
        tables.append(
            "\n".join([f"## The {language} language", "", "| key | value | cases |", "|---|---|---|", *lines])
        )
    return _PAGE.format(cases=len(cases), values=len(rows), tables="\n\n".join(tables))


_PAGE = """# Coverage: which values of the specification's languages have a case

Generated by `python -m encoder_conformance.spec.coverage`; a test checks that it has not drifted, and that no number is
0. For each of {values} values, how many of the {cases} cases have a layer, or a situation, with this value at
this key. Where a key takes any number or text it has one line; a key inside a list counts once,
whichever item has the value. `conform list coverage` prints the same, and
`conform list clauses` the number of cases that test each clause.

{tables}
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

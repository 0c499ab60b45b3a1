"""Every value of every key has a case, the page says so, and a value that loses its cases is seen."""

import shutil
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field

from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.coverage import LANGUAGES, coverage, values_of
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.level import LEVELS
from encoder_conformance.spec.load import load
from encoder_conformance.spec.situation import Situation
from encoder_conformance.subjects.plan import select

PAGE = Path(__file__).resolve().parents[3] / "docs" / "coverage.md"
CASES = load().cases


def numbers(specs: Path = SPECS) -> dict[tuple[str, str, str], int]:
    return {(row.language, row.key, row.value): row.cases for row in coverage(load(specs).cases.values())}


def test_no_value_is_without_a_case() -> None:
    assert not [at for at, cases in numbers().items() if not cases]


def test_numbers_that_were_counted_otherwise() -> None:
    found = numbers()
    for key, count in {
        ("layer", "norm.placement", "pre"): sum(c.layer.norm.placement == "pre" for c in CASES.values()),
        ("layer", "attention.masked_score", "any number"): sum(
            c.layer.attention.masked_score != "minus_infinity" for c in CASES.values()
        ),
        ("situation", "mask.padding", "null"): sum(c.situation.mask.padding is None for c in CASES.values()),
        ("situation", "mask.padding", "given"): sum(c.situation.mask.padding is not None for c in CASES.values()),
        ("situation", "parameter_exponents", "{}"): sum(not c.situation.parameter_exponents for c in CASES.values()),
        ("situation", "checks", "gradients"): sum("gradients" in c.situation.checks for c in CASES.values()),
    }.items():
        assert found[key] == count, key


@pytest.mark.parametrize(("model", "instances"), [(Layer, "layers"), (Situation, "situations")])
def test_whatever_is_in_a_file_is_counted(model: type[BaseModel], instances: str) -> None:
    """At each key at which a layer or situation has anything, some value is its own: nothing goes by uncounted."""
    assert model in LANGUAGES.values()
    values = values_of(model)
    for name, instance in getattr(load(), instances).items():
        for key in keys_of("", instance.model_dump(mode="json")):
            if key not in ("layer", "situation", "title", "clauses", "families"):
                # What is free in a mapping is counted with the mapping.
                at = max((known for known in values if f"{key}.".startswith(f"{known}.")), key=len)
                assert any(is_used(instance) for is_used in values[at].values()), f"{name}: {key}"


def keys_of(key: str, value: object) -> set[str]:
    """Every key below which nothing lies; what is in a list lies at the list's own key."""
    match value:
        case {}:
            if value:
                return set().union(*(keys_of(f"{key}.{name}".lstrip("."), item) for name, item in value.items()))
        case [*items]:
            return set().union(*(keys_of(key, item) for item in items))
    return {key}


@pytest.mark.release
def test_a_value_that_loses_its_cases_is_at_0(tmp_path: Path) -> None:
    for folder in ("layers", "situations"):
        shutil.copytree(SPECS / folder, tmp_path / folder)
    for path in (tmp_path / "situations").iterdir():
        if "kind: drawn" in path.read_text(encoding="utf-8"):
            path.unlink()
    (tmp_path / "layers" / "post-gelu-nan-rows.yaml").unlink()
    lost = {at for at, cases in numbers(tmp_path).items() if not cases}
    assert lost == {
        ("layer", "attention.fully_masked_row", "nan"),
        ("layer", "family", "nan_rows"),
        ("situation", "mask.attention.kind", "drawn"),
        *(("situation", "mask.attention.axes", axes) for axes in ("S,S", "B,S,S", "H,S,S", "B,H,S,S")),
    }
    assert set(numbers(tmp_path)) == set(numbers())


class Square(BaseModel):
    kind: Literal["square"]
    side: int


class Circle(BaseModel):
    kind: Literal["circle", "disc"]
    filled: bool | None


class Drawing(BaseModel):
    """Keys that neither language has today."""

    depth: Literal[1, 2]
    turned: bool
    shapes: tuple[Annotated[Square | Circle, Field(discriminator="kind")], ...]
    framed: Circle | None
    scale: float | Literal["fit"] | None
    colours: dict[Literal["red", "green"], Literal["light", "dark"]]


def test_keys_of_every_sort_are_read_off_the_model() -> None:
    values = values_of(Drawing)
    assert {key: list(found) for key, found in values.items()} == {
        "depth": ["1", "2"],
        "turned": ["true", "false"],
        "shapes.kind": ["square", "circle", "disc"],
        "shapes.side": ["any number"],
        "shapes.filled": ["null", "true", "false"],
        "framed": ["null", "given"],
        "framed.kind": ["circle", "disc"],
        "framed.filled": ["null", "true", "false"],
        "scale": ["null", "any number", "fit"],
        "colours": ["{}", "given", "red", "green"],
        "colours.*": ["light", "dark"],
    }
    drawing = Drawing(
        depth=1,
        turned=True,
        shapes=(Square(kind="square", side=3), Circle(kind="disc", filled=False)),
        framed=None,
        scale="fit",
        colours={"green": "dark"},
    )
    used = {key: [value for value, is_used in found.items() if is_used(drawing)] for key, found in values.items()}
    assert used == {
        "depth": ["1"],
        "turned": ["true"],
        "shapes.kind": ["square", "disc"],
        "shapes.side": ["any number"],
        "shapes.filled": ["false"],
        "framed": ["null"],
        "framed.kind": [],
        "framed.filled": [],
        "scale": ["fit"],
        "colours": ["given", "green"],
        "colours.*": ["dark"],
    }


def test_a_level_takes_in_the_stricter_ones() -> None:
    chosen = [{case.level for case in select(CASES, (), level)} for level in LEVELS]
    assert chosen == [set(LEVELS[: at + 1]) for at in range(len(LEVELS))]

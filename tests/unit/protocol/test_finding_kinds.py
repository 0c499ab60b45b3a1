"""Kinds of findings: each has its meaning and is made somewhere, and no finding is made without one."""

import ast
import json
import math
from collections.abc import Iterator
from functools import cache
from typing import get_args

import numpy as np
import pytest
from pydantic import ValidationError

from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.protocol.finding_kinds import KIND_MEANINGS, FindingKind
from encoder_conformance.protocol.findings import Finding, PhaseFinding, noted, source_of

KINDS = get_args(FindingKind)
MAKERS = {
    "Finding": None, "PhaseFinding": None, "Problem": None, "noted": 0, "_warning": 0, "_finding": 1,
    "layer_finding": 1, "rounding_finding": 1, "_order_finding": 1, "_of_run": 2, "error": 1, "warning": 1, "note": 1,
    "add": 2, "BadTarget": 2, "_problem": 3,
}  # fmt: skip
"""What makes a finding → the place of the kind among its arguments; None: it has a name."""
FACES = ("Finding", "PhaseFinding")
TABLE = PACKAGE / "protocol" / "finding_kinds.py"


@cache
def trees() -> dict[str, ast.Module]:
    found = (path for path in sorted(PACKAGE.rglob("*.py")) if path != TABLE and "_specs" not in path.parts)
    return {str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8")) for path in found}


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def of_findings(call: ast.Call) -> bool:
    """Whether a call makes a finding: a method does of what is called `findings`, and no logger's."""
    if isinstance(call.func, ast.Attribute):
        return ast.unparse(call.func.value).endswith("findings")
    return called(call) in MAKERS


def places_of_kinds(tree: ast.Module) -> Iterator[ast.expr]:
    """Where a kind is written: given to what makes a finding, or said to be one by its annotation."""
    for node in ast.walk(tree):
        match node:
            case ast.Call() if called(node) in MAKERS and of_findings(node):
                yield from (keyword.value for keyword in node.keywords if keyword.arg in ("kind", "problem_kind"))
                place = MAKERS[called(node)]
                yield from () if place is None else node.args[place : place + 1]
            case ast.AnnAssign(value=ast.expr() as value) if "FindingKind" in ast.unparse(node.annotation):
                yield value
            case ast.FunctionDef(returns=ast.expr() as result) if "FindingKind" in ast.unparse(result):
                yield from (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)


def made() -> dict[str, str]:
    """Text where a kind is written → a file that has it. A sentence beside a kind is no kind by its blanks."""
    return {
        constant.value: name
        for name, tree in trees().items()
        for place in places_of_kinds(tree)
        for constant in ast.walk(place)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str) and constant.value.count(" ") == 0
    }


def test_every_kind_has_a_meaning_and_is_spelt_as_all_are() -> None:
    assert list(KINDS) == list(KIND_MEANINGS)
    assert [kind for kind in KINDS if not kind.replace("-", "").isalnum() or kind != kind.lower()] == []
    assert len(set(KIND_MEANINGS.values())) == len(KINDS)
    assert [text for text in KIND_MEANINGS.values() if "|" in text or text.endswith(".")] == []


def test_every_kind_is_made_somewhere() -> None:
    assert sorted({*KINDS} - made().keys()) == []


def test_every_finding_is_of_a_kind_of_the_table() -> None:
    spelt = {kind: name for kind, name in made().items() if "-" in kind and kind != "not-asked"}  # an outcome
    assert {kind: name for kind, name in spelt.items() if kind not in KIND_MEANINGS} == {}


def test_no_finding_is_made_without_a_kind() -> None:
    without = [
        f"{name}, line {node.lineno}"
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) in FACES
        if not {"kind", None} & {keyword.arg for keyword in node.keywords}
    ]
    assert without == []
    with pytest.raises(ValidationError, match="kind"):
        Finding(severity="note", message="no kind")  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="kind"):
        Finding(severity="note", kind="no-such-kind", message="another")  # type: ignore[arg-type]


def test_facts_are_values_of_json_and_safe_to_print() -> None:
    numbers = {"size": np.int64(3), "far": math.inf, "rms": np.float32(0.5), "some": {2, 1}}
    found = noted("sampled", "said", names=("a", "b\u202e"), **numbers)
    assert found.about == {"names": ["a", "b\\u202e"], "size": 3, "far": None, "rms": 0.5, "some": [1, 2]}
    assert json.loads(found.model_dump_json()) == found.model_dump(mode="json")
    with pytest.raises(ValidationError, match="no value of JSON"):
        noted("sampled", "said", path=object())


def test_equal_findings_are_one() -> None:
    one, same = (PhaseFinding(phase="layer", **dict(noted("sampled", "said", size=3))) for _ in range(2))
    other = one.model_copy(update={"about": {"size": 4}})
    assert len({one, same, other}) == 2


@pytest.mark.parametrize(
    ("place", "due"),
    [
        ("model.py:12", {"file": "model.py", "line": 12}),
        ("model.py:12: return x[1:2]", {"file": "model.py", "line": 12}),
        ("", None),
        ("norm1", None),
    ],
)
def test_a_place_is_a_file_and_a_line(place: str, due: dict | None) -> None:
    assert noted("sampled", "said", **source_of(place)).about == ({} if due is None else {"source": due})

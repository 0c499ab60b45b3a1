"""Six bugs planted in layers as people have them: none is green, and each is named with its line."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

BUGS = (
    *("heads-not-transposed", "softmax-axis", "residual-missing", "query-key-exchanged", "mask-inverted"),
    "bias-dropped",
)
KINDS = ("Plain", "PostNorm", "NormedByRMS", "NormedByHand", "Rope", "SwiGLU")


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import planted_table

    assert sys.modules["planted_kinds"].BUGS == BUGS
    return planted_table


@pytest.mark.parametrize(
    "kind", [kind if kind == "Plain" else pytest.param(kind, marks=pytest.mark.release) for kind in KINDS]
)
def test_a_right_layer_passes(table: ModuleType, kind: str) -> None:
    assert table.answer(kind).passes, table.answer(kind).said


_REPRESENTATIVES = {("Plain", "query-key-exchanged"), ("Plain", "heads-not-transposed")}


@pytest.mark.parametrize(
    ("kind", "bug"),
    [
        pytest.param(kind, bug, marks=() if (kind, bug) in _REPRESENTATIVES else pytest.mark.release)
        for kind in KINDS
        for bug in BUGS
    ],
)
def test_a_bug_is_never_green_and_is_named_with_its_line(table: ModuleType, kind: str, bug: str) -> None:
    found = table.answer(kind, bug)
    assert not found.passes
    assert found.named, found.said

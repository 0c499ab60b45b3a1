"""docs/findings.md is what the kept rows say, and what does not pass has a reason and a link."""

import ast
from pathlib import Path

import pytest

from encoder_conformance.implementation.manifest import find_folder, find_implementation, read_implementation_manifest
from tools.survey.judge import configurations
from tools.survey.page import entries
from tools.survey.results import WHATEVER_IS_DECLARED, SurveyRow, kept

REPOSITORY = Path(__file__).resolve().parents[3]
"""The checkout: what is tested may be an installed package, which has no pages."""
DOCS = REPOSITORY / "docs"
KEPT = kept(DOCS / "findings.json")
ROWS = [KEPT[variant] for variant in configurations() if variant in KEPT]
SCRIPTS = sorted((DOCS / "findings").glob("*.py"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.variant)
def test_what_a_row_does_not_pass_has_a_reason_and_a_link(row: SurveyRow) -> None:
    _, implementation = find_implementation(row.variant)
    assert implementation.chosen == row.choices
    assert row.passed == row.applicable > 0, row.failed
    declared = {entry.deviation: entry for entry in implementation.deviations}
    assert all(declared[seen.deviation].link for seen in row.deviates)
    known = entries(row.implementation)
    assert [reason.text for reason in row.unsupported if reason.kind == "declared" and reason.text not in known] == []
    assert all(reason.kind in ("declared", *WHATEVER_IS_DECLARED) for reason in row.unsupported)
    assert row.rms is None or row.rms <= 2


@pytest.mark.parametrize("name", sorted({row.implementation for row in ROWS}))
def test_each_deviation_and_each_new_finding_has_a_script(name: str) -> None:
    manifest = read_implementation_manifest(find_folder(name))
    told = [*manifest.deviations, *(entry for entry in manifest.unsupported if entry.new)]
    assert [entry.reason for entry in told if not entry.script] == []
    named = {entry.script for entry in (*manifest.deviations, *manifest.unsupported) if entry.script}
    assert named <= {path.name for path in SCRIPTS}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_says_what_it_shows_and_needs_nothing_of_ours(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    module = ast.parse(text)
    assert len(ast.get_docstring(module) or "") > 30
    assert len(text.splitlines()) <= 40
    imported = [alias.name for node in ast.walk(module) if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in ast.walk(module) if isinstance(node, ast.ImportFrom)]
    assert not any(name.split(".")[0] == "encoder_conformance" for name in imported)
    of = path.name.partition("-")[0]
    if f'"{of}": Row(' not in (REPOSITORY / "benchmarks" / "zoo" / "elsewhere.py").read_text(encoding="utf-8"):
        assert (find_implementation(of)[0] / "impl.yaml").is_file()

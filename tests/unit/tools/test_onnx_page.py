"""docs/onnx.md agrees with the kept rows, and the rows name exporters, opsets, runtimes and levels that exist."""

from pathlib import Path

from encoder_conformance.implementation.manifest import find_implementation
from tools.survey.page import entries
from tools.survey.results import kept

DOCS = Path(__file__).resolve().parents[3] / "docs"
"""The checkout's: what is tested may be an installed package, which has none."""
ROWS = list(kept(DOCS / "onnx.json").values())


def test_every_row_is_a_variant_that_can_be_asked_for() -> None:
    assert ROWS
    for row in ROWS:
        _, implementation = find_implementation(row.variant)
        assert implementation.chosen == row.choices


def test_what_a_row_does_not_pass_has_a_reason_and_a_link() -> None:
    for row in ROWS:
        assert row.passed == row.applicable, f"{row.variant} fails {row.failed}"
        assert all(reason.text in entries(row.implementation) for reason in row.unsupported), row.variant
        assert row.rms is None or row.rms <= 2

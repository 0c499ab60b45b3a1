"""docs/architecture.md names every package and no other, and every file that it sends a reader to exists."""

import re
from pathlib import Path

import pytest

from encoder_conformance.platform.paths import PACKAGE

ROOT = Path(__file__).resolve().parents[2]
"""The checkout: an installed package has no docs/."""
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = {
    "a clause",
    "a layer's key",
    "a deviation",
    "an outcome",
    "a message on the wire",
    "a stage",
    "an ONNX runtime",
    "an ONNX exporter",
    "a capability of an implementation",
    "a command",
}


def table(heading: str) -> dict[str, str]:
    """The rows of the first table below a heading: first column → second."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", section, re.MULTILINE)
    return dict(rows[1:])


def test_each_package_is_on_the_page_and_no_other() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"_specs", "impls"}
    assert {name.strip("`") for name in table("Packages")} == packages


def test_each_package_has_one_sentence() -> None:
    for name, sentence in table("Packages").items():
        assert sentence.endswith("."), name
        assert sentence.count(". ") == 0, name


def test_the_ten_changes_are_there() -> None:
    assert set(table("To change X, open Y")) == ROWS


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:harness|impls|specs)/[\w./]*)`", PAGE))))
def test_a_file_that_the_page_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+\.py)`", PAGE))))
def test_a_module_that_the_page_names_exists(name: str) -> None:
    assert (PACKAGE / name).is_file() or (ROOT / "impls" / name).is_file()

"""The table of all implementations in README.md, between two marks."""

from encoder_conformance.errors import InputError
from encoder_conformance.paths import ROOT

README = ROOT / "README.md"
BEGIN, END = "<!-- matrix: written by python -m encoder_conformance.matrix -->", "<!-- end of matrix -->"


def write_into_readme(table: str) -> None:
    text = README.read_text(encoding="utf-8")
    README.write_text(with_table(text, table), encoding="utf-8")


def with_table(text: str, table: str) -> str:
    """Raises InputError where the marks are missing."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise InputError("has not one of each mark of the matrix", where="README.md", hint=f"write {BEGIN} and {END}")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}"

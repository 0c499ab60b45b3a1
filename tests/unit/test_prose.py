"""What is written for users: plain words, short pages, and links that lead somewhere.

codespell looks for wrong spelling (`tox -e lint`), Vale for words (`tox -e vale`), and `tox -e docs` follows the links
of the site.
"""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
SHOWN = [path for folder in ("harness", "impls") for path in (ROOT / folder).rglob("*.*")]
RULES = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / ".vale").glob("*/*.yml")}
"""Vale's, which reads the pages (`tox -e vale`). Here the same words are looked for in sources and templates too."""
INSTEAD = {
    **RULES["Words"]["swap"],
    **{rf"(?i)\b{token}\b": "nothing" for token in RULES["Filler"]["tokens"]},
}
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]*))?\)")
MOST_LINES, MOST_WORDS = 300, 27_500


@pytest.mark.parametrize("pattern", INSTEAD)
def test_words_are_plain(pattern: str) -> None:
    sources = [path for path in SHOWN if path.suffix in (".py", ".html", ".txt", ".md", ".yaml")]
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in [*PAGES, *sources]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]
    assert not found, f"say: {INSTEAD[pattern]}"


def without_code(page: Path) -> list[str]:
    """The lines of a page outside blocks of code."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return [line for line in text.splitlines() if not line.startswith("    ")]


def prose(page: Path) -> list[str]:
    """The lines of a page outside tables and blocks of code."""
    return [line for line in without_code(page) if not line.lstrip().startswith("|")]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_the_pages_are_short() -> None:
    lines = {page.name: len(prose(page)) for page in PAGES}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
    assert sum(len(line.split()) for page in PAGES for line in prose(page)) <= MOST_WORDS


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as Markdown makes them, and those that stand in it."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)
    own = {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
    return own | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    generated = {"commands.md", "cases.md"}  # of the site alone (docs/site/hooks.py)
    text = re.sub(r"`[^`]*`", "", "\n".join(without_code(page)))
    for target, anchor in LINK.findall(text):
        if target in generated:
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{target}#{anchor}"

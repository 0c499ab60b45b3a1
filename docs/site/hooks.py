"""Makes the site of the repository's own files, with links that lead to the pages of the site."""

import posixpath
import re
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from encoder_conformance.commands.main import cli
from encoder_conformance.spec.load import clauses, load

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "specs/README.md": "specification.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Files of the repository outside docs/ → pages of the site."""
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_CLAUSE = re.compile(r"(?<=^- )\*\*([A-Z]-\d+)\*\*", re.MULTILINE)
_GENERATED = frozenset({"commands.md", "cases.md"})


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and one of all commands."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    files.append(File.generated(config, "commands.md", content=_commands()))
    files.append(File.generated(config, "cases.md", content=_cases()))
    linked = {target for source in _sources() for target in _other_files(source)}
    for target in sorted(linked):
        files.append(File.generated(config, f"files/{target}", abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let each relative link lead to the page or the file that the site has of its target."""
    if page.file.src_uri in _GENERATED:
        return markdown
    if page.file.src_uri == "specification.md":
        markdown = _CLAUSE.sub(_linked_to_cases, markdown)
    source = _source_of(page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        target = _target(source, match[1])
        place = _place(target)
        return posixpath.relpath(place, here or ".") + (match[2] or "") if place else match[0]

    return _LINK.sub(link, markdown)


def _commands() -> str:
    """`--help` of every command, as it is printed."""
    context = click.Context(cli, info_name="conform", max_content_width=80)
    lines = ["# Commands", "", "```", cli.get_help(context), "```"]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, max_content_width=80)
        lines += ["", f"## {name}", "", "```", command.get_help(inner), "```"]
        if isinstance(command, click.Group):
            for below in command.list_commands(inner):
                deeper: Any = command.get_command(inner, below)
                text = deeper.get_help(click.Context(deeper, info_name=below, parent=inner, max_content_width=80))
                lines += ["", f"### {name} {below}", "", "```", text, "```"]
    return "\n".join(lines) + "\n"


def _linked_to_cases(match: re.Match[str]) -> str:
    """The number of a clause, as an anchor and as a link to the cases that test it."""
    name = match[1]
    return f'<a id="{name}"></a>**[{name}](cases.md#{name.lower()})**' if name in clauses() else match[0]


def _cases() -> str:
    """Every clause with the cases that cite it, by layer."""
    lines = ["# Cases by clause", "", "The cases that test each clause, and so all that cite it, by layer."]
    cases = load().cases.values()
    for name in clauses():
        lines += ["", f"## {name}", "", f"[The clause](specification.md#{name})", ""]
        by_layer: dict[str, list[str]] = {}
        for case in cases:
            if name in case.clauses:
                by_layer.setdefault(case.layer.layer, []).append(case.situation.situation)
        lines += [f"- `{layer}`: {', '.join(situations)}" for layer, situations in by_layer.items()]
    return "\n".join(lines) + "\n"


def _sources() -> list[str]:
    return [*PAGES, *(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))]


def _source_of(page: str) -> str:
    """The repository's file of a page."""
    return next((source for source, its_page in PAGES.items() if its_page == page), f"docs/{page}")


def _target(source: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _place(target: str) -> str | None:
    """Where the site has a file of the repository; None if it has not."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"files/{target}" if (ROOT / target).is_file() else None


def _other_files(source: str) -> set[str]:
    """The files outside docs/ that a page links to, and that are no pages."""
    targets = {_target(source, match[1]) for match in _LINK.finditer((ROOT / source).read_text("utf-8"))}
    return {
        target
        for target in targets
        if target not in PAGES and not target.startswith("docs/") and (ROOT / target).is_file()
    }

"""Shows findings on the terminal, of a file or a module: a mark, the message, and below it what to do."""

from rich.console import Console

from encoder_conformance.wire.findings import Finding, Severity

MARKS: dict[Severity, tuple[str, str]] = {"error": ("✗", "red"), "warning": ("!", "yellow"), "note": ("·", "dim")}
"""Severity → its mark and style."""


def show_line(screen: Console, text: str, style: str = "") -> None:
    """The text as it is: it may hold what Rich takes for markup."""
    screen.print(text, style=style or None, highlight=False, soft_wrap=True, markup=False)


def show_finding(screen: Console, finding: Finding, indent: str = "") -> None:
    mark, style = MARKS[finding.severity]
    show_line(screen, f"{indent}{mark} {finding.message}", style)
    if finding.hint:
        show_line(screen, f"{indent}  {finding.hint}", "dim")

"""What several commands ask for or show in the same way."""

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.errors import InputError


def progress_bar() -> Progress:
    """A bar on stderr, when someone is looking."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    screen = Console(stderr=True)
    return Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal)


def interpreters(pythons: tuple[str, ...]) -> dict[str, str]:
    """`NAME=PATH` of --python, by name."""
    named = {}
    for pair in pythons:
        name, equals, path = pair.partition("=")
        if not (name and equals and path):
            raise InputError(
                f"{pair!r} is not NAME=PATH", where="--python", hint="for example keras_tf=/opt/tf/bin/python"
            )
        named[name] = path
    return named


def refuse_unwritable(out: Path) -> None:
    """Make the folder of --out, or say why it cannot be, before anything is computed for it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=f"--out {out}", hint="choose another folder"
        ) from None

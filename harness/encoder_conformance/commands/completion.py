"""What a shell completes: names of implementations, layers, cases and deviations (docs/start.md says how to have it).

A completion imports the specification when a key is pressed, and no command before that.
"""

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

_Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _names(known: Callable[[], Iterable[tuple[str, str]]]) -> _Complete:
    """Those of the `known` names, each with its title, that begin with what was typed; a folder or file otherwise."""

    def complete(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=title) for name, title in known() if name.startswith(typed)]
        return found or [CompletionItem(typed, type="file")]

    return complete


def _implementations() -> Iterable[tuple[str, str]]:
    from encoder_conformance.implementation.manifest import known_folders

    return ((name, "") for name in known_folders())


def _layers() -> Iterable[tuple[str, str]]:
    from encoder_conformance.spec.load import load, published_layers

    return ((layer.layer, layer.title) for layer in (*load().layers.values(), *published_layers().values()))


def _cases() -> Iterable[tuple[str, str]]:
    from encoder_conformance.spec.load import load

    return ((case.id, case.situation.title) for case in load().cases.values())


def _deviations() -> Iterable[tuple[str, str]]:
    from encoder_conformance.oracle.catalogue import catalogue

    return ((each.deviation, each.sentence) for each in catalogue().values())


implementations, layers, cases, deviations = map(_names, (_implementations, _layers, _cases, _deviations))
"""For `shell_complete` of an option."""

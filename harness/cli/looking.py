"""Options, progress messages and formats that `trace`, `parameters`, `memory` and `profile` share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click
from rich.console import Console

from encoder_conformance.inspect.layer_selection import at_size, find_layer, refuse_too_large, resized
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.size import LARGEST_BUILT, refuse_larger

LAYER, BATCH, SEQUENCE = "pre-gelu-512", 32, 50
"""The defaults: the layer and sizes of the published example."""

_Command = TypeVar("_Command", bound=Callable[..., object])


def layer_options(command: _Command) -> _Command:
    """Adds --layer, --d-model, --num-heads and --d-ff, the arguments of `chosen_layer`."""
    for option in reversed(
        (
            click.option("--layer", metavar="ID|YAML", help=f"A layer's id or a file of your own; default: {LAYER}."),
            click.option("--d-model", type=click.IntRange(1), help="D instead of the layer's."),
            click.option("--num-heads", type=click.IntRange(1), help="H instead of the layer's."),
            click.option("--d-ff", type=click.IntRange(1), help="F instead of the layer's."),
        )
    ):
        command = option(command)
    return command


def chosen_layer(
    layer: str | None, d_model: int | None, num_heads: int | None, d_ff: int | None, dropout: float | None = None
) -> Layer:
    return resized(find_layer(layer or LAYER, built=False), d_model, num_heads, d_ff, dropout)


def chosen_case(
    layer: str | None,
    d_model: int | None,
    num_heads: int | None,
    d_ff: int | None,
    batch: int | None,
    sequence: int | None,
    lengths: tuple[int, ...] = (),
) -> Case:
    """Raises InputError, for instance if nobody can make the input or the layer."""
    chosen, batch, sequence = chosen_layer(layer, d_model, num_heads, d_ff), batch or BATCH, sequence or SEQUENCE
    refuse_larger(chosen, LARGEST_BUILT, "--layer, --d-model, --d-ff")
    if lengths:  # one for each item
        refuse_too_large(batch * sequence * chosen.d_model, batch, "float16")
    return at_size(chosen, batch, sequence, lengths)


batch_option = click.option("--batch", type=click.IntRange(1), help=f"B; default: {BATCH}.")
sequence_option = click.option("--sequence", type=click.IntRange(1), help=f"S; default: {SEQUENCE}.")
dtype_option = click.option("--dtype", type=click.Choice(list(FORMATS)), default="float32", show_default=True)
impl_option = click.option(
    "--impl", metavar="NAME|FOLDER", help="Implementation to run; default: the first one whose framework is installed."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@contextmanager
def at_work(message: str) -> Iterator[None]:
    """Show `message` on stderr while the block runs, if stderr is a terminal."""
    screen = Console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    with screen.status(message):
        yield


def versions(by_name: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in by_name.items())


def bracketed(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"

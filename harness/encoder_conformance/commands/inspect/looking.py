"""Options, progress messages and formats that `trace`, `parameters`, `memory` and `profile` share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TypeVar

import click
from rich import box
from rich.console import Console
from rich.status import Status
from rich.table import Table

from encoder_conformance.commands.completion import implementations, layers
from encoder_conformance.commands.inspect.layer_selection import at_size, find_layer, refuse_too_large, resized
from encoder_conformance.reports.run.terminal import console, show_line
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.size import LARGEST_BUILT, refuse_larger

LAYER, BATCH, SEQUENCE = "pre-gelu-512", 32, 50
"""The defaults: the layer and sizes of the published example."""

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class LayerOptions:
    """The values of --layer, --d-model, --num-heads and --d-ff; None for those that are not given."""

    layer: str | None
    d_model: int | None
    num_heads: int | None
    d_ff: int | None

    def chosen(self, dropout: float | None = None) -> Layer:
        """The layer at these sizes. Raises InputError."""
        return resized(find_layer(self.layer or LAYER, built=False), self.d_model, self.num_heads, self.d_ff, dropout)

    def case(self, batch: int | None, sequence: int | None, lengths: tuple[int, ...] = ()) -> Case:
        """A case of the layer. Raises InputError, for instance if nobody can make the input or the layer."""
        layer, batch, sequence = self.chosen(), batch or BATCH, sequence or SEQUENCE
        refuse_larger(layer, LARGEST_BUILT, "--layer, --d-model, --d-ff")
        if lengths:  # one for each item
            refuse_too_large([(batch, sequence, layer.d_model)], batch, "float16")
        return at_size(layer, batch, sequence, lengths)


def layer_options(command: Callable[..., _Result]) -> Callable[..., _Result]:
    """Adds the options of `LayerOptions`, which the command takes as its first argument."""

    @click.option(
        "--layer",
        metavar="ID|YAML",
        shell_complete=layers,
        help=f"A layer's id or a file of your own; default: {LAYER}.",
    )
    @click.option("--d-model", type=click.IntRange(1), help="D instead of the layer's.")
    @click.option("--num-heads", type=click.IntRange(1), help="H instead of the layer's.")
    @click.option("--d-ff", type=click.IntRange(1), help="F instead of the layer's.")
    @wraps(command)
    def taking_options(
        layer: str | None, d_model: int | None, num_heads: int | None, d_ff: int | None, **others: object
    ) -> _Result:
        return command(LayerOptions(layer, d_model, num_heads, d_ff), **others)

    return taking_options


batch_option = click.option("--batch", type=click.IntRange(1), help=f"B; default: {BATCH}.")
sequence_option = click.option("--sequence", type=click.IntRange(1), help=f"S; default: {SEQUENCE}.")
dtype_option = click.option("--dtype", type=click.Choice(list(FORMATS)), default="float32", show_default=True)
impl_option = click.option(
    "--impl",
    metavar="NAME|FOLDER",
    shell_complete=implementations,
    help="Implementation to run; default: the first one whose framework is installed.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def at_work(message: str) -> Status:
    """Shows `message` on stderr while a block runs, if stderr is a terminal."""
    return Console(stderr=True).status(message)


def heading(text: str) -> Console:
    """Print a heading. Returns the console for what follows."""
    screen = console()
    show_line(screen, text, "bold")
    return screen


def table(left: Iterable[str], right: Iterable[str], folded: Iterable[str] = ()) -> Table:
    """An empty table: columns to the left, columns of numbers, and columns whose text is folded."""
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in left:
        made.add_column(header, no_wrap=True)
    for header in right:
        made.add_column(header, justify="right", no_wrap=True)
    for header in folded:
        made.add_column(header, overflow="fold")
    return made


def versions(by_name: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in by_name.items())

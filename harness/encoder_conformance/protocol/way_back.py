"""What no golden shows of a module: how an incoming gradient lies, what is written into, what is dropped and drawn."""

from typing import Literal

from encoder_conformance.protocol.findings import Plain, SourceLine
from encoder_conformance.spec.strict import Frozen

WayBackQuestion = Literal[
    "transposed-gradient", "sliced-gradient", "expanded-gradient", "written-into", "x-without-gradient",
    "dropout-gradient", "gradient", "dropout", "dropout-compiled", "dropout-parts", "generators",
]  # fmt: skip


class Dropped(Frozen):
    """One place where training drops: the `rate` that is known nearest to what was seen, the submodule, and the line of
    the user's source; "" where they are not known."""

    rate: float
    part: Plain = ""
    where: Plain = ""


class WayBackAnswer(Frozen):
    """The answer to one question. `distance`: how far its gradients are from the right ones, of their size. `drops`:
    where it was seen to drop, in the order of its steps; None: its framework does not show that. Unusual: right, and
    somebody will stumble."""

    name: WayBackQuestion
    outcome: Literal["pass", "fail", "unusual", "not-asked"]
    distance: float | None = None
    message: Plain = ""
    source: SourceLine | None = None
    """The line that makes it so, where that is known."""
    drops: tuple[Dropped, ...] | None = None


class WayBackAnswers(Frozen):
    asked: tuple[WayBackAnswer, ...]

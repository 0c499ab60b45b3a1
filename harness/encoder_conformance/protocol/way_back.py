"""What no golden shows of a module: how an incoming gradient lies, what is written into, what is dropped and drawn."""

from typing import Literal

from encoder_conformance.protocol.findings import Plain, SourceLine
from encoder_conformance.spec.strict import Frozen

WayBackQuestion = Literal[
    "transposed-gradient", "sliced-gradient", "expanded-gradient", "written-into", "x-without-gradient",
    "dropout-gradient", "gradient", "dropout", "dropout-compiled", "dropout-parts", "generators",
]  # fmt: skip


class WayBackAnswer(Frozen):
    """The answer to one question. `distance`: how far its gradients are from the right ones, of their size.
    Unusual: right, and somebody will stumble."""

    name: WayBackQuestion
    outcome: Literal["pass", "fail", "unusual", "not-asked"]
    distance: float | None = None
    message: Plain = ""
    source: SourceLine | None = None
    """The line that makes it so, where that is known."""


class WayBackAnswers(Frozen):
    asked: tuple[WayBackAnswer, ...]

"""The way back of a module beyond golden gradients: how the incoming gradient lies, what is written into, dropout."""

from typing import Literal

from encoder_conformance.protocol.findings import Plain
from encoder_conformance.spec.strict import Frozen

WayBackQuestion = Literal[
    "transposed-gradient", "sliced-gradient", "expanded-gradient", "written-into", "x-without-gradient",
    "dropout-gradient",
]  # fmt: skip


class WayBackAnswer(Frozen):
    """The answer to one question. `distance`: how far its gradients are from the right ones, of their size."""

    name: WayBackQuestion
    outcome: Literal["pass", "fail", "not-asked"]
    distance: float | None = None
    message: Plain = ""


class WayBackAnswers(Frozen):
    asked: tuple[WayBackAnswer, ...]

"""Requests without a good answer, and checks without an observation."""

from dataclasses import dataclass

from encoder_conformance.platform.clean import line
from encoder_conformance.protocol.messages import Refusal
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.reason import Kind


@dataclass(frozen=True)
class Failure:
    """A check without an observation: its outcome and the reason. `refused`: the category of a refusal (clause X-1)."""

    outcome: Outcome
    message: str
    refused: Refusal | None = None
    kind: Kind | None = None
    """The kind of the reason, for programs."""


class WorkerFailure(Exception):
    """A request without a good answer: the outcome of its check, and a message.

    `lost`: the process is gone, or is not to be asked again. `refused`: the category, if the worker refused the request
    (clause X-1). `earlier`: the worker had not begun this request, so what it did is the fault of the one before.
    """

    def __init__(
        self,
        outcome: Outcome,
        message: str,
        *,
        lost: bool,
        refused: Refusal | None = None,
        kind: Kind | None = None,
        earlier: bool = False,
    ) -> None:
        self.failure = Failure(outcome, line(message), refused, kind)
        self.outcome, self.message, self.lost, self.earlier = outcome, self.failure.message, lost, earlier
        super().__init__(self.message)

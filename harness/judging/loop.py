"""The loop that asks a subject, judges its answers, and keeps what a diagnosis needs of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from encoder_conformance.asking import JudgedAnswer, UnjudgedAnswer, judged, put
from encoder_conformance.diagnosis.observations import Observations, ReadAgain
from encoder_conformance.judge.expected import Expected
from encoder_conformance.results import Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import constants
from encoder_conformance.subjects.subject import Subject
from encoder_conformance.task import Task


def judge(
    subject: Subject, tasks: Iterable[Task], expected: Callable[[Case], Expected], observations: Observations
) -> Iterator[JudgedAnswer]:
    """Ask the subject each task in turn, and yield its judged answer.

    A task is taken when the one before it is judged. `observations` gets what a diagnosis needs of every answer.
    """
    for task in tasks:
        answer = put(subject.worker, task, expected, whole=True)
        record = judged(answer, constants())
        observe(observations, answer, record)
        yield JudgedAnswer.of(answer, record)


def observe(
    observations: Observations, answer: UnjudgedAnswer, record: Record, read_again: ReadAgain | None = None
) -> None:
    """Keep of a judged answer what a diagnosis needs: what was refused, what repeats, and the tensors.

    `read_again` gives the expectation anew, which then does not stay in memory.
    """
    observations.note(answer.task, record)
    if isinstance(answer.result, Mapping):
        observations.see(answer.task, answer.expected, record, answer.result, read_again)

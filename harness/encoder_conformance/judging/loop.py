"""The loop that asks a subject, judges its answers, and keeps what a diagnosis needs of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import JudgedAnswer, UnjudgedAnswer, judged, put
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.protocol.answers import Answers
from encoder_conformance.spec.case import Case
from encoder_conformance.subjects.subject import Subject


class Observer(Protocol):
    """Keeps of judged answers what a diagnosis needs, as `Observations` of the room diagnosis does."""

    def note(self, task: Task, record: Record) -> None:
        """Keep what a check came to that leaves no tensors behind."""

    def see(self, answer: UnjudgedAnswer, tensors: Answers, record: Record) -> None:
        """Keep the tensors of an answer to a check."""


class Unseen:
    """Keeps nothing: what is asked is not diagnosed."""

    def note(self, *_: object) -> None: ...

    def see(self, *_: object) -> None: ...


def judge(
    subject: Subject, tasks: Iterable[Task], expected: Callable[[Case], Expected], observer: Observer
) -> Iterator[JudgedAnswer]:
    """Ask the subject each task in turn, and yield its judged answer.

    A task is taken when the one before it is judged. `observer` gets what a diagnosis needs of every answer.
    """
    for task in tasks:
        answer = put(subject.worker, task, expected, whole=True)
        record = judged(answer)
        observe(observer, answer, record)
        yield JudgedAnswer(answer, record)


def judged_as(answer: JudgedAnswer, task: Task) -> JudgedAnswer:
    """An answer that was judged, judged as that to a task of the same check and case, with other deviations."""
    unjudged = replace(answer.answer, task=task)
    return JudgedAnswer(unjudged, judged(unjudged))


def observe(observer: Observer, answer: UnjudgedAnswer, record: Record) -> None:
    """Keep of a judged answer what a diagnosis needs: what was refused, what repeats, and the tensors."""
    observer.note(answer.task, record)
    if isinstance(answer.result, Mapping):
        observer.see(answer, answer.result, record)

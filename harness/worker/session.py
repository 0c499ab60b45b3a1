"""Takes one implementation through its tasks: starts, builds and restarts its worker as needed."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from encoder_conformance.impl.interpreter import Ready
from encoder_conformance.impl.manifest import Device
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.spec.case import Case
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import Sendable, Tensors
from encoder_conformance.wire.messages import (
    Build,
    Built,
    Export,
    FlawedBuild,
    Initialise,
    Initialised,
    Inspect,
    Inspected,
    Profile,
    ReadCheckpoint,
    Run,
)
from encoder_conformance.wire.streamed import Receive, whole
from encoder_conformance.worker.lifecycle import Answered, Failure, Lifecycle
from encoder_conformance.worker.marshalling import (
    Array,
    decode_outputs,
    encode_inputs,
    given_as,
    run_request,
    wrong_layout,
)
from encoder_conformance.worker.process import Pending, WorkerFailure, WorkerProcess, one_line
from encoder_conformance.worker.round_trip import RoundTrip, StoredParameters, expected_parameters
from encoder_conformance.worker.sent import Sent, parameters_to_send

_AHEAD = 6
"""Checks that a worker has been sent at most: a thread of ours may wait 5 ms for the interpreter's lock, in which a
worker answers some small ones."""


@dataclass(frozen=True)
class Ahead:
    """A task that was sent before those in front of it were answered. `built`: with the parameters of its layer, where
    that had to be built first."""

    task: Task
    built: tuple[Pending, Sent] | None
    run: Pending


class Session(Lifecycle):
    """One implementation's run: builds its layers as they are needed, and asks."""

    def __init__(
        self, ready: Ready, device: Device, threads: int, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(ready, device, threads, log, variables)
        self._built: tuple[object, ...] | None = None
        self._drawn: tuple[tuple[object, ...], Sent] | None = None
        self._ahead: deque[Ahead] = deque()

    def observe(self, task: Task, kinked_rows: Array, receive: Receive | None = None) -> Tensors | Failure:
        """Run one task. A failure costs this task only; a worker that is lost is started again for the next one.
        Large tensors that `receive` takes are not in what is given back."""
        if self._ahead and self._ahead[0].task is task:
            ahead = self._ahead.popleft()
            return self._try(task.build_key, lambda worker: self._answer_ahead(worker, ahead, receive))
        return self._asked(task, lambda worker: self._run(worker, task, kinked_rows, receive))

    def send_ahead(self, tasks: Iterable[Task], kinked_rows: Callable[[Task], Array]) -> None:
        """Send the first few of what `observe` will be asked for next, in this order, so that the worker need not wait
        for it: as far as there is a worker, and they are small enough to wait in its pipe."""
        for task in islice(tasks, len(self._ahead), _AHEAD):
            if not (self._worker and self._send_ahead(self._worker, task, kinked_rows(task))):
                return

    def _send_ahead(self, worker: WorkerProcess, task: Task, kinked_rows: Array) -> bool:
        if self._closed.is_set() or task.build_key in self._unbuildable:
            return False
        holds = self._ahead[-1].task.build_key if self._ahead else self._built
        parameters = self._parameters(task) if holds != task.build_key else None
        run, tensors = run_request(task, kinked_rows)
        if not worker.has_room(tensors, *([] if parameters is None else [parameters])):
            return False
        timeouts, built = self.ready.implementation.timeouts, None
        if parameters is not None:
            build = Build(layer=task.case.layer, dtype=task.dtype)
            built = worker.send_ahead(build, parameters, timeouts.build), parameters
        self._ahead.append(Ahead(task, built, worker.send_ahead(run, tensors, timeouts.run)))
        return True

    def _answer_ahead(self, worker: WorkerProcess, ahead: Ahead, receive: Receive | None) -> Tensors:
        task, timeouts = ahead.task, self.ready.implementation.timeouts
        if ahead.built:
            build, sent = ahead.built
            self._check_held(task.build_key, sent, lambda taking: worker.answer(build, timeouts.build, taking).tensors)
        return _in_our_layout(worker.answer(ahead.run, timeouts.run, receive).tensors, task.case)

    def parameters(self, task: Task) -> StoredParameters | Failure:
        """Build the task's layer, and give back the parameters as they came, whatever they are."""

        def ask(worker: WorkerProcess) -> StoredParameters:
            self._built, sent = None, {name: whole(value) for name, value in self._parameters(task).items()}
            request = Build(layer=task.case.layer, dtype=task.dtype)
            answer = worker.ask(request, sent, self.ready.implementation.timeouts.build)
            try:
                due = expected_parameters(
                    sent, answer.tensors, self.ready.implementation.capabilities.missing_parameters
                )
                return StoredParameters(due, answer.tensors, Built.model_validate(answer.message).own)
            except ValidationError as problem:
                raise WorkerFailure(Outcome.ERROR, f"broke the protocol: {one_line(problem)}", lost=False) from None

        return self._unless_lost(("parameters", task.build_key), ask)

    def profile(self, task: Task, repeats: int) -> Tensors | Failure:
        """The task's case, timed: stage → [repeats] seconds, and `whole`. May take as long as that many runs."""
        request = Profile(mode=task.case.situation.mode, given=given_as(task.case), repeats=repeats)
        seconds = (repeats + 1) * self.ready.implementation.timeouts.run
        return self._asked(task, lambda worker: worker.ask(request, encode_inputs(task), seconds).tensors)

    def build_flawed(self, task: Task, layer: dict[str, Any]) -> Tensors | Failure:
        """Ask for a layer that cannot be, with the parameters of the task's own. Whatever it says, none is built."""

        def ask(worker: WorkerProcess) -> Tensors:
            self._built = None
            request = FlawedBuild(layer=layer, dtype=task.dtype)
            return worker.ask(request, self._parameters(task), self.ready.implementation.timeouts.build).tensors

        return self._asked(task, ask)

    def run_flawed(self, task: Task, tensors: Tensors) -> Tensors | Failure:
        """Put these in the place of the task's x and masks, and ask for the output."""
        request = Run(check="output", mode=task.case.situation.mode, given=given_as(task.case))
        seconds = self.ready.implementation.timeouts.run
        return self._asked(task, lambda worker: worker.ask(request, tensors, seconds).tensors)

    def observe_made(
        self, key: tuple[object, ...], build: Build, parameters: Sendable, run: Run, tensors: Tensors
    ) -> Tensors | Failure:
        """Run a layer that is made to look into, with parameters that are no case's; `key` tells it from others."""

        def ask(worker: WorkerProcess) -> Tensors:
            self._hold(worker, key, build, parameters)
            return worker.ask(run, tensors, self.ready.implementation.timeouts.run).tensors

        return self._unless_lost(key, ask)

    def initialise(
        self, task: Task, seed: int, receive: Receive | None = None
    ) -> tuple[Tensors, tuple[str, ...]] | Failure:
        """The parameters of the task's layer as the implementation makes it, and which of them are trained. Large ones
        that `receive` takes are not among them."""

        def ask(worker: WorkerProcess) -> tuple[Tensors, tuple[str, ...]]:
            self._build(worker, task)
            self._built = None  # what was loaded is gone
            answer = worker.ask(Initialise(seed=seed), None, self.ready.implementation.timeouts.build, receive)
            try:
                return answer.tensors, Initialised.model_validate(answer.message).trainable
            except ValidationError as problem:
                raise WorkerFailure(Outcome.ERROR, f"broke the protocol: {one_line(problem)}", lost=False) from None

        return self._unless_lost(task.build_key, ask)

    def deploy(self, request: Export | ReadCheckpoint, tensors: Tensors | None) -> Tensors | Failure:
        """The file that the worker makes of a layer and its parameters; or those that it reads from one of its own."""

        def ask(worker: WorkerProcess) -> Tensors:
            self._built = None
            return worker.ask(request, tensors, self.ready.implementation.timeouts.build).tensors

        return self._unless_lost((request.op, request.layer.layer), ask)

    def inspect(self, request: Inspect) -> tuple[dict[str, Any], Tensors] | Failure:
        """What the worker says of an ONNX file, and the parameters that it found there. No layer is built by it."""

        def ask(worker: WorkerProcess) -> tuple[dict[str, Any], Tensors]:
            self._built = None
            answer = worker.ask(request, None, self.ready.implementation.timeouts.build)
            try:
                return Inspected.model_validate(answer.message).description, answer.tensors
            except ValidationError as problem:
                raise WorkerFailure(Outcome.ERROR, f"broke the protocol: {one_line(problem)}", lost=False) from None

        return self._unless_lost(("inspect", request.path), ask)

    def _asked(self, task: Task, ask: Callable[[WorkerProcess], Tensors]) -> Tensors | Failure:
        """What a worker that has built the task's layer says."""

        def of_built(worker: WorkerProcess) -> Tensors:
            self._build(worker, task)
            return ask(worker)

        return self._unless_lost(task.build_key, of_built)

    def _unless_lost(self, key: tuple[object, ...], ask: Callable[[WorkerProcess], Answered]) -> Answered | Failure:
        """What a worker says, if there is one and the layer `key` can be built."""
        if self._ahead:  # nobody asks for it any more, and it may have built another layer
            self.lost()
        return self._try(key, ask)

    def lost(self) -> None:
        self._built = None
        self._ahead.clear()

    def close(self) -> None:
        """Let the worker end by itself. The session still says what it was, and holds no tensors."""
        self._drawn = None
        super().close()

    def _build(self, worker: WorkerProcess, task: Task) -> None:
        if self._built == task.build_key:
            return
        self._hold(worker, task.build_key, Build(layer=task.case.layer, dtype=task.dtype), self._parameters(task))

    def _parameters(self, task: Task) -> Sent:
        """Those of the task's layer; small ones are drawn once for all the times that it is built in a row."""
        if self._drawn is None or self._drawn[0] != task.build_key:
            self._drawn = task.build_key, parameters_to_send(task)
        return self._drawn[1]

    def _hold(self, worker: WorkerProcess, key: tuple[object, ...], request: Build, sent: Sendable) -> None:
        if self._built == key:
            return
        seconds = self.ready.implementation.timeouts.build
        self._check_held(key, sent, lambda taking: worker.ask(request, sent, seconds, taking).tensors)

    def _check_held(self, key: tuple[object, ...], sent: Sendable, answer: Callable[[Receive], Tensors]) -> None:
        """`answer` gives the parameters that came back, but for those that its argument takes while they are read."""
        self._built = None
        try:
            comparing = RoundTrip(sent)
            held = answer(comparing)
            if wrong := comparing.round_trip_error(held, self.ready.implementation.capabilities.missing_parameters):
                raise WorkerFailure(Outcome.ERROR, f"build: {wrong}", lost=False)
        except WorkerFailure as failure:
            self._unbuildable[key] = Failure(failure.outcome, failure.message)
            raise
        self._built = key

    def _run(self, worker: WorkerProcess, task: Task, kinked_rows: Array, receive: Receive | None) -> Tensors:
        request, tensors = run_request(task, kinked_rows)
        seconds = self.ready.implementation.timeouts.run
        return _in_our_layout(worker.ask(request, tensors, seconds, receive).tensors, task.case)


def _in_our_layout(answer: Tensors, case: Case) -> Tensors:
    if wrong := wrong_layout(answer, case):
        raise WorkerFailure(Outcome.FAIL, wrong, lost=False)
    return decode_outputs(answer, case)

"""Runs one implementation's tasks: starts its worker, builds layers and restarts the worker as needed."""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.spec.size import LARGEST_BUILT
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import Sendable, Tensors
from encoder_conformance.wire.messages import (
    Build,
    Built,
    Examine,
    Examined,
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
from encoder_conformance.worker.ahead import AHEAD, Requests, SentTask
from encoder_conformance.worker.failure import Failure, WorkerFailure
from encoder_conformance.worker.lifecycle import Answered, Lifecycle
from encoder_conformance.worker.marshalling import (
    Array,
    decode_outputs,
    encode_inputs,
    given_as,
    run_request,
)
from encoder_conformance.worker.process import WorkerProcess
from encoder_conformance.worker.round_trip import RoundTrip, StoredParameters, expected_parameters
from encoder_conformance.worker.sent import Sent, parameters_to_send
from encoder_conformance.worker.sizes import size_of, size_of_answer, size_of_model


class Session(Lifecycle):
    """One implementation's worker, the layer that it has built, and the tasks that were sent ahead."""

    _built: tuple[object, ...] | None
    _ahead: deque[SentTask]
    requests: Requests
    _drawn: tuple[tuple[object, ...], Sent] | None = None

    def observe(self, task: Task, kinked_rows: Array, receive: Receive | None = None) -> Tensors | Failure:
        """Run one task. A failure affects this task only: a lost worker is restarted for the next one.

        Tensors that `receive` takes are not in the result.
        """
        if self._ahead and self._ahead[0].task is task:
            sent = self._ahead.popleft()
            return self._attempt(
                task.build_key,
                lambda worker: self._read_answers(worker, sent, receive),
                lambda worker: self._build_and_run(worker, task, kinked_rows, receive),
            )
        return self._drop_ahead_and_attempt(
            task.build_key, lambda worker: self._build_and_run(worker, task, kinked_rows, receive)
        )

    def send_ahead(self, tasks: Iterable[Task], kinked_rows: Callable[[Task], Array]) -> None:
        """Send the next tasks of `observe`, in this order, so that the worker need not wait.

        Sends nothing without a running worker, and stops at a task that does not fit into its pipe.
        """
        for task in islice(tasks, len(self._ahead), AHEAD):
            if not (self._worker and self._send_ahead(self._worker, task, kinked_rows(task))):
                return

    def _send_ahead(self, worker: WorkerProcess, task: Task, kinked_rows: Array) -> bool:
        if self._closed.is_set() or task.build_key in self._unbuildable:
            return False
        built_by_then = self._ahead[-1].task.build_key if self._ahead else self._built
        parameters = self._parameters(task) if built_by_then != task.build_key else None
        run, tensors = run_request(task, kinked_rows)
        if not worker.has_room(tensors, *([] if parameters is None else [parameters])):
            return False
        timeouts, build = self.ready.implementation.timeouts, None
        if parameters is not None:
            request = Build(layer=task.case.layer, dtype=task.dtype)
            build = worker.send_ahead(request, parameters, timeouts.build), parameters
        pending = worker.send_ahead(run, tensors, timeouts.run, answer_bytes=size_of_answer(task))
        self._ahead.append(SentTask(task, build, pending))
        return True

    def _read_answers(self, worker: WorkerProcess, sent: SentTask, receive: Receive | None) -> Tensors:
        task, timeouts = sent.task, self.ready.implementation.timeouts
        if sent.build:
            build, parameters = sent.build
            self._check_round_trip(
                task.build_key, parameters, lambda compare: worker.answer(build, timeouts.build, compare).tensors
            )
        return decode_outputs(worker.answer(sent.run, timeouts.run, receive).tensors, task.case)

    def parameters(self, task: Task) -> StoredParameters | Failure:
        """Build the task's layer and return its parameters as they came back, right or wrong."""

        def ask(worker: WorkerProcess) -> StoredParameters:
            self._built, sent = None, {name: whole(value) for name, value in self._parameters(task).items()}
            request = Build(layer=task.case.layer, dtype=task.dtype)
            implementation = self.ready.implementation
            built, held = worker.ask_for(Built, request, sent, implementation.timeouts.build)
            expected = expected_parameters(sent, held, implementation.capabilities.missing_parameters)
            return StoredParameters(expected, held, built.own)

        return self._drop_ahead_and_attempt(("parameters", task.build_key), ask)

    def profile(self, task: Task, repeats: int) -> Tensors | Failure:
        """Time the task's case: stage → seconds [repeats], and the whole pass as `whole`.

        The time limit is that of repeats + 1 runs.
        """
        request = Profile(mode=task.case.situation.mode, given=given_as(task.case), repeats=repeats)
        seconds = (repeats + 1) * self.ready.implementation.timeouts.run
        return self._with_layer(task, lambda worker: worker.ask(request, encode_inputs(task), seconds).tensors)

    def build_flawed(self, task: Task, layer: dict[str, Any]) -> Tensors | Failure:
        """Send a build request for an invalid layer, with the parameters of the task's layer.

        Afterwards no layer counts as built, whatever the answer is.
        """

        def ask(worker: WorkerProcess) -> Tensors:
            self._built = None
            request = FlawedBuild(layer=layer, dtype=task.dtype)
            return worker.ask(request, self._parameters(task), self.ready.implementation.timeouts.build).tensors

        return self._with_layer(task, ask)

    def run_flawed(self, task: Task, tensors: Tensors) -> Tensors | Failure:
        """Run the check `output` with these tensors in place of the task's x and masks."""
        request = Run(check="output", mode=task.case.situation.mode, given=given_as(task.case))
        seconds = self.ready.implementation.timeouts.run
        return self._with_layer(task, lambda worker: worker.ask(request, tensors, seconds).tensors)

    def observe_made(
        self,
        key: tuple[object, ...],
        build: Build,
        parameters: Sendable,
        run: Run,
        tensors: Tensors,
        answer_bytes: int | None = None,
    ) -> Tensors | Failure:
        """Build and run a layer that belongs to no case, for a probe. `key` identifies it, like a task's build key.

        `answer_bytes`: the size of the tensors of a right answer, by default that of `tensors`.
        """

        def ask(worker: WorkerProcess) -> Tensors:
            self._build_once(worker, key, build, parameters)
            seconds = self.ready.implementation.timeouts.run
            return worker.ask(run, tensors, seconds, answer_bytes=answer_bytes).tensors

        return self._drop_ahead_and_attempt(key, ask)

    def initialise(
        self, task: Task, seed: int, receive: Receive | None = None
    ) -> tuple[Tensors, tuple[str, ...]] | Failure:
        """The freshly initialised parameters of the task's layer, and the names of the trainable ones.

        Parameters that `receive` takes are not in the result.
        """

        def ask(worker: WorkerProcess) -> tuple[Tensors, tuple[str, ...]]:
            self._build(worker, task)
            self._built = None  # initialisation replaces the loaded parameters
            seconds = self.ready.implementation.timeouts.build
            size, request = size_of(self._parameters(task)), Initialise(seed=seed)
            made, tensors = worker.ask_for(Initialised, request, None, seconds, receive, answer_bytes=size)
            return tensors, made.trainable

        return self._drop_ahead_and_attempt(task.build_key, ask)

    def deploy(self, request: Export | ReadCheckpoint, tensors: Tensors | None) -> Tensors | Failure:
        """Send `export` or `read_checkpoint`: the result is the exported file, or the checkpoint's parameters."""

        def ask(worker: WorkerProcess) -> Tensors:
            self._built = None
            return worker.ask(request, tensors, self.ready.implementation.timeouts.build).tensors

        return self._drop_ahead_and_attempt((request.op, request.layer.layer), ask)

    def inspect(self, request: Inspect) -> tuple[dict[str, Any], Tensors] | Failure:
        """The description of an ONNX file and the parameters found in it. Afterwards no layer counts as built."""

        def ask(worker: WorkerProcess) -> tuple[dict[str, Any], Tensors]:
            self._built = None
            seconds, size = self.ready.implementation.timeouts.build, size_of_model(Path(request.path))
            inspected, found = worker.ask_for(Inspected, request, None, seconds, answer_bytes=size)
            return inspected.description, found

        return self._drop_ahead_and_attempt(("inspect", request.path), ask)

    def examine(self, request: Examine) -> tuple[dict[str, Any], Tensors] | Failure:
        """The description of a module and its own parameters. Afterwards no layer counts as built."""

        def ask(worker: WorkerProcess) -> tuple[dict[str, Any], Tensors]:
            self._built = self._drawn = None
            size = 0 if request.listed else LARGEST_BUILT  # nobody knows yet how large the module is
            seconds = self.ready.implementation.timeouts.build
            examined, found = worker.ask_for(Examined, request, None, seconds, answer_bytes=size)
            return examined.description, found

        return self._drop_ahead_and_attempt(("examine", request.target, request.at, request.listed), ask)

    def _with_layer(self, task: Task, ask: Callable[[WorkerProcess], Tensors]) -> Tensors | Failure:
        """The result of `ask` with a worker that has built the task's layer."""

        def build_and_ask(worker: WorkerProcess) -> Tensors:
            self._build(worker, task)
            return ask(worker)

        return self._drop_ahead_and_attempt(task.build_key, build_and_ask)

    def _drop_ahead_and_attempt(
        self, key: tuple[object, ...], ask: Callable[[WorkerProcess], Answered]
    ) -> Answered | Failure:
        """`_attempt`, after forgetting the tasks that were sent ahead: they may have built another layer."""
        if self._ahead:
            self.lost()
        return self._attempt(key, ask)

    def lost(self) -> None:
        self._built = None
        self._ahead, self.requests = deque(), Requests()

    def close(self) -> None:
        """Stop the worker and release the cached parameters. `versions` and `settings` stay."""
        self._drawn = None
        super().close()

    def _build(self, worker: WorkerProcess, task: Task) -> None:
        if self._built == task.build_key:
            return
        request = Build(layer=task.case.layer, dtype=task.dtype)
        self._build_once(worker, task.build_key, request, self._parameters(task))

    def _parameters(self, task: Task) -> Sent:
        """The parameters of the task's layer, cached for consecutive builds of the same layer."""
        if self._drawn is None or self._drawn[0] != task.build_key:
            self._drawn = task.build_key, parameters_to_send(task)
        return self._drawn[1]

    def _build_once(self, worker: WorkerProcess, key: tuple[object, ...], request: Build, sent: Sendable) -> None:
        if self._built == key:
            return
        seconds = self.ready.implementation.timeouts.build
        self._check_round_trip(key, sent, lambda compare: worker.ask(request, sent, seconds, compare).tensors)

    def _check_round_trip(self, key: tuple[object, ...], sent: Sendable, read: Callable[[Receive], Tensors]) -> None:
        """Record the layer `key` as built, or as unbuildable if its parameters do not round-trip.

        `read` returns the parameters of the answer except those that its argument takes.
        """
        self._built = None
        try:
            round_trip = RoundTrip(sent)
            held = read(round_trip)
            missing_parameters = self.ready.implementation.capabilities.missing_parameters
            if problem := round_trip.round_trip_error(held, missing_parameters):
                raise WorkerFailure(Outcome.ERROR, f"build: {problem}", lost=False)
        except WorkerFailure as failure:
            if not failure.earlier:
                self._unbuildable[key] = Failure(failure.outcome, failure.message)
            raise
        self._built = key

    def _build_and_run(self, worker: WorkerProcess, task: Task, kinked_rows: Array, receive: Receive | None) -> Tensors:
        self._build(worker, task)
        request, tensors = run_request(task, kinked_rows)
        seconds = self.ready.implementation.timeouts.run
        frame = worker.ask(request, tensors, seconds, receive, answer_bytes=size_of_answer(task))
        return decode_outputs(frame.tensors, task.case)

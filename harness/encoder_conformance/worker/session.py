"""Asks one implementation: builds layers in its worker and puts requests to it, one answer for each."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import Device
from encoder_conformance.implementation.task import Task
from encoder_conformance.platform.errors import Unanswered
from encoder_conformance.protocol import messages
from encoder_conformance.protocol.frames import Frame, Sendable, Tensors
from encoder_conformance.protocol.streamed import Array, Receive, whole
from encoder_conformance.spec.case import NO_ROWS
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.size import LARGEST_BUILT
from encoder_conformance.worker.failure import Failure, WorkerFailure
from encoder_conformance.worker.launch import Launch, end_of_log
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.marshalling import decode_outputs, encode_inputs, given_as, run_request
from encoder_conformance.worker.parameters import RoundTrip, StoredParameters, expected_parameters, parameters_to_send
from encoder_conformance.worker.pipelining import AHEAD, Pipeline, SentTask
from encoder_conformance.worker.process import WorkerProcess, read_as
from encoder_conformance.worker.sizes import size_of, size_of_answer, size_of_model
from encoder_conformance.worker.supervisor import Answered, Ask, Supervisor

_Key = tuple[object, ...]
"""Identifies a layer: what is built is known by it. () identifies none."""
_LAST_LINES = 8


class Session:
    """An implementation that is asked, the layer that its worker has built, and the tasks that were sent ahead."""

    def __init__(
        self,
        ready: Ready,
        device: Device,
        threads: int,
        log: Path,
        variables: Mapping[str, str] | None = None,
        *,
        limits: WorkerLimits | None = None,
    ) -> None:
        """`variables`: environment variables of the worker, beside those that set its number of threads."""
        self.ready, self.log, self._timeouts = ready, log, ready.implementation.timeouts
        self._missing_parameters = ready.implementation.capabilities.missing_parameters
        launch = partial(Launch.of, ready, threads, log, limits or WorkerLimits(), variables)
        start = messages.Start(device=device, threads=threads, choices=ready.implementation.chosen)
        self.worker = Supervisor(start, self._timeouts.start, log, launch, self.forget)
        self._unbuildable: dict[_Key, Failure] = {}
        self._drawn: tuple[_Key, Sendable] | None = None
        self._built: _Key | None = None
        self._ahead = Pipeline(self._timeouts)

    @property
    def versions(self) -> dict[str, str]:
        """Package → version, as the adapter has answered to `start`."""
        return self.worker.versions

    def observe(self, task: Task, kinked_rows: Array = NO_ROWS, receive: Receive | None = None) -> Tensors | Failure:
        """Run one task. A failure affects this task only: a lost worker is restarted for the next one.

        The cotangent is zero on `kinked_rows`, [n, 2] (B-2). Tensors that `receive` takes are not in the result.
        """

        def build_and_run(worker: WorkerProcess) -> Tensors:
            self._build(worker, task)
            request, tensors = run_request(task, kinked_rows)
            frame = worker.ask(request, tensors, self._timeouts.run, receive, answer_bytes=size_of_answer(task))
            return decode_outputs(frame.tensors, task.case)

        if sent := self._ahead.take(task):
            read = partial(self._read_answers, sent=sent, receive=receive)
            return self._attempt(task.build_key, read, build_and_run)
        return self._put(build_and_run, task.build_key)

    def send_ahead(self, tasks: Iterable[Task], kinked_rows: Callable[[Task], Array]) -> None:
        """Send the next tasks of `observe`, in this order, so that the worker need not wait.

        Sends nothing without a running worker, and stops at a task that does not fit into its pipe.
        """
        for task in islice(tasks, len(self._ahead), AHEAD):
            worker = self.worker.process
            if worker is None or self.worker.closed.is_set() or task.build_key in self._unbuildable:
                return
            built_by_then = self._ahead.last.build_key if self._ahead.last else self._built
            parameters = self._parameters(task) if built_by_then != task.build_key else None
            if not self._ahead.send(worker, task, kinked_rows(task), parameters):
                return

    def _read_answers(self, worker: WorkerProcess, sent: SentTask, receive: Receive | None) -> Tensors:
        task, timeouts = sent.task, self._timeouts
        if sent.build:
            build, parameters = sent.build
            self._check_round_trip(
                task.build_key, parameters, lambda compare: worker.answer(build, timeouts.build, compare).tensors
            )
        return decode_outputs(worker.answer(sent.run, timeouts.run, receive).tensors, task.case)

    def parameters(self, task: Task) -> StoredParameters | Failure:
        """Build the task's layer and return its parameters as they came back, right or wrong."""

        def ask(worker: WorkerProcess) -> StoredParameters:
            sent = {name: whole(value) for name, value in self._parameters(task).items()}
            frame = self._ask_anew(worker, messages.Build(layer=task.case.layer, dtype=task.dtype), sent)
            expected = expected_parameters(sent, frame.tensors, self._missing_parameters)
            return StoredParameters(expected, frame.tensors, read_as(messages.Built, frame).own)

        return self._put(ask)

    def profile(self, task: Task, repeats: int) -> Tensors | Failure:
        """Time the task's case: stage → seconds [repeats], and the whole pass as `whole`.

        The time limit is that of repeats + 1 runs.
        """
        request = messages.Profile(mode=task.case.situation.mode, given=given_as(task.case), repeats=repeats)
        seconds, tensors = (repeats + 1) * self._timeouts.run, encode_inputs(task)
        return self._put_to_layer(task, lambda worker: worker.ask(request, tensors, seconds).tensors)

    def build_flawed(self, task: Task, layer: dict[str, Any]) -> Tensors | Failure:
        """Send a build request for an invalid layer, with the parameters of the task's layer."""
        request = messages.FlawedBuild(layer=layer, dtype=task.dtype)
        return self._put_to_layer(task, lambda worker: self._ask_anew(worker, request, self._parameters(task)).tensors)

    def run_flawed(self, task: Task, tensors: Tensors) -> Tensors | Failure:
        """Run the check `output` with these tensors in place of the task's x and masks."""
        request = messages.Run(check="output", mode=task.case.situation.mode, given=given_as(task.case))
        return self._put_to_layer(task, lambda worker: worker.ask(request, tensors, self._timeouts.run).tensors)

    def observe_made(
        self,
        key: _Key,
        build: messages.Build,
        parameters: Sendable,
        run: messages.Run,
        tensors: Tensors,
        answer_bytes: int | None = None,
    ) -> Tensors | Failure:
        """Build and run a layer that belongs to no case, for a probe. `key` identifies it, like a task's build key.

        `answer_bytes`: the size of the tensors of a right answer, by default that of `tensors`.
        """

        def ask(worker: WorkerProcess) -> Tensors:
            self._build_once(worker, key, build, parameters)
            return worker.ask(run, tensors, self._timeouts.run, answer_bytes=answer_bytes).tensors

        return self._put(ask, key)

    def initialise(
        self, task: Task, seed: int, receive: Receive | None = None
    ) -> tuple[Tensors, tuple[str, ...]] | Failure:
        """The freshly initialised parameters of the task's layer, and the names of the trainable ones.

        Parameters that `receive` takes are not in the result.
        """

        def ask(worker: WorkerProcess) -> tuple[Tensors, tuple[str, ...]]:
            size = size_of(self._parameters(task))
            frame = self._ask_anew(worker, messages.Initialise(seed=seed), None, receive, size)
            return frame.tensors, read_as(messages.Initialised, frame).trainable

        return self._put_to_layer(task, ask)

    def deploy(self, request: messages.Export | messages.ReadCheckpoint, tensors: Tensors | None) -> Tensors | Failure:
        """Send `export` or `read_checkpoint`: the result is the exported file, or the checkpoint's parameters."""
        return self._put(lambda worker: self._ask_anew(worker, request, tensors).tensors)

    def describe(
        self, request: messages.Describing, tensors: Tensors | None = None
    ) -> tuple[dict[str, Any], Tensors] | Failure:
        """What a reader describes: a file, a module, its way back, a variant, its rounding; and the tensors beside."""
        size = 0
        if isinstance(request, messages.Inspect):
            size = size_of_model(Path(request.path))
        elif isinstance(request, messages.ReadData) or (isinstance(request, messages.Examine) and not request.listed):
            size = LARGEST_BUILT  # nobody knows yet how large the module is, or what the script gives

        def ask(worker: WorkerProcess) -> tuple[dict[str, Any], Tensors]:
            self._drawn = None
            frame = self._ask_anew(worker, request, tensors, None, size)
            return read_as(messages.Described, frame).description, frame.tensors

        return self._put(ask)

    def call(self, request: messages.Call, tensors: Tensors) -> tuple[messages.Called, Tensors] | Failure:
        """The outputs of a whole file or module by name, and what it was given the tensors as."""

        def ask(worker: WorkerProcess) -> tuple[messages.Called, Tensors]:
            frame = self._ask_anew(worker, request, tensors, None, LARGEST_BUILT)
            return read_as(messages.Called, frame), frame.tensors

        return self._put(ask)

    def trace(self, request: messages.Trace, tensors: Tensors) -> tuple[messages.Traced, Tensors] | Failure:
        """What a whole file or module computes inside, step by step, and the values by number."""

        def ask(worker: WorkerProcess) -> tuple[messages.Traced, Tensors]:
            frame = self._ask_anew(worker, request, tensors, None, LARGEST_BUILT)
            return read_as(messages.Traced, frame), frame.tensors

        return self._put(ask)

    def require(self, answer: Answered | Failure) -> Answered:
        """An answer that is no failure. Raises `Unanswered`, with the last lines of the worker's log, if it is one."""
        if not isinstance(answer, Failure):
            return answer
        self.worker.write_log()
        last = [f"  {line}" for line in end_of_log(self.log).splitlines()[-_LAST_LINES:]]
        raise Unanswered("\n".join([f"{self.ready.implementation.name}: {answer.message}", *last]))

    def _ask_anew(
        self,
        worker: WorkerProcess,
        request: messages.Request,
        tensors: Sendable | None,
        receive: Receive | None = None,
        answer_bytes: int | None = None,
    ) -> Frame:
        """The answer to a request after which no layer counts as built, whatever the answer is."""
        self._built = None
        return worker.ask(request, tensors, self._timeouts.build, receive, answer_bytes=answer_bytes)

    def _put_to_layer(self, task: Task, ask: Ask[Answered]) -> Answered | Failure:
        """The result of `ask` with a worker that has built the task's layer."""

        def build_and_ask(worker: WorkerProcess) -> Answered:
            self._build(worker, task)
            return ask(worker)

        return self._put(build_and_ask, task.build_key)

    def _put(self, ask: Ask[Answered], key: _Key = ()) -> Answered | Failure:
        """`_attempt`, after forgetting the tasks that were sent ahead: they may have built another layer."""
        if self._ahead:
            self.forget()
        return self._attempt(key, ask)

    def _attempt(self, key: _Key, ask: Ask[Answered], again: Ask[Answered] | None = None) -> Answered | Failure:
        """`Supervisor.attempt`, unless the layer `key` could not be built before."""
        if failure := self.worker.unstartable or self._unbuildable.get(key):
            return failure
        return self.worker.attempt(ask, again)

    def forget(self) -> None:
        """Know of no layer that is built, and of nothing that was sent ahead."""
        self._built = None
        self._ahead = Pipeline(self._timeouts)

    def close(self) -> None:
        """Stop the worker and release the cached parameters."""
        self._drawn = None
        self.worker.close()

    def abort(self) -> None:
        """Kill the worker, from any thread. No worker is started after this."""
        self.worker.abort()

    def _build(self, worker: WorkerProcess, task: Task) -> None:
        if self._built != task.build_key:
            request = messages.Build(layer=task.case.layer, dtype=task.dtype)
            self._build_once(worker, task.build_key, request, self._parameters(task))

    def _parameters(self, task: Task) -> Sendable:
        """The parameters of the task's layer, cached for consecutive builds of the same layer."""
        if self._drawn is None or self._drawn[0] != task.build_key:
            self._drawn = task.build_key, parameters_to_send(task)
        return self._drawn[1]

    def _build_once(self, worker: WorkerProcess, key: _Key, request: messages.Build, sent: Sendable) -> None:
        if self._built != key:
            self._check_round_trip(
                key, sent, lambda compare: worker.ask(request, sent, self._timeouts.build, compare).tensors
            )

    def _check_round_trip(self, key: _Key, sent: Sendable, read: Callable[[Receive], Tensors]) -> None:
        """Record the layer `key` as built, or as unbuildable if its parameters do not round-trip.

        `read` returns the parameters of the answer except those that its argument takes.
        """
        self._built = None
        try:
            round_trip = RoundTrip(sent)
            if problem := round_trip.round_trip_error(read(round_trip), self._missing_parameters):
                raise WorkerFailure(Outcome.ERROR, f"build: {problem}", lost=False)
        except WorkerFailure as failure:
            if not failure.earlier:
                self._unbuildable[key] = Failure(failure.outcome, failure.message)
            raise
        self._built = key

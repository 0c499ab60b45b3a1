"""Takes one implementation through its tasks: starts, builds and restarts its worker as needed."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import ValidationError

from harness.impl.interpreter import Ready
from harness.impl.manifest import Device
from harness.judge.outcome import Outcome
from harness.plan import Task
from harness.spec.case import Case
from harness.wire.frames import PROTOCOL, Sendable, Tensors
from harness.wire.messages import (
    AsGiven,
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
    Refusal,
    Run,
    Start,
    Started,
)
from harness.wire.streamed import Receive, whole
from harness.worker.border import causal_flag, handed_over, laid_out, turned_back, wrong_layout
from harness.worker.held import Comparing, Parameters, with_a_place
from harness.worker.process import WorkerFailure, WorkerProcess, one_line
from harness.worker.sent import Sent, parameters_to_send

Observation = Tensors
Answered = TypeVar("Answered")


@dataclass(frozen=True)
class Failure:
    """No observation: the outcome that this check gets, and why. `refused`: the category of a refusal (clause X-1)."""

    outcome: Outcome
    message: str
    refused: Refusal | None = None


class Session:
    """One implementation's run. `versions` and `settings` are what its adapter says of itself, once it has started."""

    def __init__(
        self, ready: Ready, device: Device, threads: int, log: Path, variables: Mapping[str, str] | None = None
    ) -> None:
        """`variables` are set in the worker's environment, beside those that say how many threads it has."""
        self.ready, self.device, self.threads, self.log = ready, device, threads, log
        self._variables = variables or {}
        self.versions: dict[str, str] = {}
        self.settings: dict[str, Any] = {}
        self._worker: WorkerProcess | None = None
        self._built: tuple[object, ...] | None = None
        self._drawn: tuple[tuple[object, ...], Sent] | None = None
        self._unstartable: Failure | None = None
        self._unbuildable: dict[tuple[object, ...], Failure] = {}
        self._closed = threading.Event()

    def observe(
        self, task: Task, kinked_rows: np.ndarray[Any, Any], receive: Receive | None = None
    ) -> Observation | Failure:
        """Run one task. A failure costs this task only; a worker that is lost is started again for the next one.
        Large tensors that `receive` takes are not in what is given back."""
        return self._asked(task, lambda worker: self._run(worker, task, kinked_rows, receive))

    def start(self) -> Failure | None:
        """Start the worker; why it does not, or None where it does."""
        answer = self._unless_lost(("start",), lambda worker: None)
        return answer if isinstance(answer, Failure) else None

    def parameters(self, task: Task) -> Parameters | Failure:
        """Build the task's layer, and give back the parameters as they came, whatever they are."""

        def ask(worker: WorkerProcess) -> Parameters:
            self._built, sent = None, {name: whole(value) for name, value in self._parameters(task).items()}
            request = Build(layer=task.case.layer, dtype=task.dtype)
            answer = worker.ask(request, sent, self.ready.implementation.timeouts.build)
            try:
                due = with_a_place(sent, answer.tensors, self.ready.implementation.capabilities.lacks)
                return Parameters(due, answer.tensors, Built.model_validate(answer.message).own)
            except ValidationError as problem:
                raise WorkerFailure(Outcome.ERROR, f"broke the protocol: {one_line(problem)}", lost=False) from None

        return self._unless_lost(("parameters", task.build_key), ask)

    def profile(self, task: Task, repeats: int) -> Observation | Failure:
        """The task's case, timed: stage → [repeats] seconds, and `whole`. May take as long as that many runs."""
        request = Profile(mode=task.case.situation.mode, given=_given(task.case), repeats=repeats)
        seconds = (repeats + 1) * self.ready.implementation.timeouts.run
        return self._asked(task, lambda worker: worker.ask(request, handed_over(task), seconds).tensors)

    def build_flawed(self, task: Task, layer: dict[str, Any]) -> Observation | Failure:
        """Ask for a layer that cannot be, with the parameters of the task's own. Whatever it says, none is built."""

        def ask(worker: WorkerProcess) -> Observation:
            self._built = None
            request = FlawedBuild(layer=layer, dtype=task.dtype)
            return worker.ask(request, self._parameters(task), self.ready.implementation.timeouts.build).tensors

        return self._asked(task, ask)

    def run_flawed(self, task: Task, tensors: Tensors) -> Observation | Failure:
        """Put these in the place of the task's x and masks, and ask for the output."""
        request = Run(check="output", mode=task.case.situation.mode, given=_given(task.case))
        seconds = self.ready.implementation.timeouts.run
        return self._asked(task, lambda worker: worker.ask(request, tensors, seconds).tensors)

    def observe_made(
        self, key: tuple[object, ...], build: Build, parameters: Sendable, run: Run, tensors: Tensors
    ) -> Observation | Failure:
        """Run a layer that is made to look into, with parameters that are no case's; `key` tells it from others."""

        def ask(worker: WorkerProcess) -> Observation:
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

    @property
    def pid(self) -> int | None:
        """The worker's process, if there is one."""
        return self._worker.pid if self._worker else None

    def _asked(self, task: Task, ask: Callable[[WorkerProcess], Observation]) -> Observation | Failure:
        """What a worker that has built the task's layer says."""

        def of_built(worker: WorkerProcess) -> Observation:
            self._build(worker, task)
            return ask(worker)

        return self._unless_lost(task.build_key, of_built)

    def _unless_lost(self, key: tuple[object, ...], ask: Callable[[WorkerProcess], Answered]) -> Answered | Failure:
        """What a worker says, if there is one and the layer `key` can be built."""
        if self._unstartable:
            return self._unstartable
        if key in self._unbuildable:
            return self._unbuildable[key]
        try:
            return ask(self._started())
        except WorkerFailure as failure:
            if failure.lost:
                self._worker, self._built = None, None
            return Failure(failure.outcome, failure.message, failure.refused)

    def close(self) -> None:
        """Let the worker end by itself. The session still says what it was, and holds no tensors."""
        self._drawn = None
        if self._worker:
            self._worker.stop()
            self._worker = None

    def abort(self) -> None:
        """End the worker now, from another thread; nothing is started again."""
        self._closed.set()
        self._kill()

    def _kill(self) -> None:
        if worker := self._worker:
            worker.kill()

    def _started(self) -> WorkerProcess:
        if self._closed.is_set():
            raise WorkerFailure(Outcome.NOT_RUN, "the run was ended", lost=True)
        if self._worker:
            return self._worker
        try:
            worker = WorkerProcess(self.ready.command, self.ready.folder, self.threads, self.log, self._variables)
            self._worker = worker
            chosen = self.ready.implementation.chosen
            request = Start(device=self.device, threads=self.threads, choices=chosen)
            answer = worker.ask(request, None, self.ready.implementation.timeouts.start)
            said = Started.model_validate(answer.message)
            if said.protocol != PROTOCOL:
                text = f"speaks protocol {said.protocol}, this harness {PROTOCOL}: bring the adapter up to docs/wire.md"
                raise WorkerFailure(Outcome.ERROR, text, lost=True)
        except (WorkerFailure, ValidationError) as problem:
            self._unstartable = _cannot_start(problem, self.log)
            if self._worker:
                self._worker.end()
            raise WorkerFailure(self._unstartable.outcome, self._unstartable.message, lost=True) from None
        self.versions, self.settings = said.versions, said.settings
        return worker

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
        self._built = None
        try:
            comparing = Comparing(sent)
            held = worker.ask(request, sent, self.ready.implementation.timeouts.build, comparing).tensors
            if wrong := comparing.not_held(held, self.ready.implementation.capabilities.lacks):
                raise WorkerFailure(Outcome.ERROR, f"build: {wrong}", lost=False)
        except WorkerFailure as failure:
            self._unbuildable[key] = Failure(failure.outcome, failure.message)
            raise
        self._built = key

    def _run(
        self, worker: WorkerProcess, task: Task, kinked_rows: np.ndarray[Any, Any], receive: Receive | None
    ) -> Observation:
        tensors, case = handed_over(task), task.case
        if task.check == "gradients":
            cotangent = case.cotangent(kinked_rows).astype(task.format.numpy)
            tensors["cotangent"] = laid_out(cotangent, case.situation.given)
        request = Run(check=task.check, mode=case.situation.mode, given=_given(case))
        answer = worker.ask(request, tensors, self.ready.implementation.timeouts.run, receive).tensors
        if wrong := wrong_layout(answer, case):
            raise WorkerFailure(Outcome.FAIL, wrong, lost=False)
        return turned_back(answer, case)


def _given(case: Case) -> AsGiven:
    given = case.situation.given
    return AsGiven(layout=given.layout, masks=given.masks, causal_flag=causal_flag(case), checkpoint=given.checkpoint)


def _cannot_start(problem: WorkerFailure | ValidationError, log: Path) -> Failure:
    if isinstance(problem, WorkerFailure):
        outcome, why = problem.outcome, problem.message
    else:
        outcome, why = Outcome.ERROR, f"broke the protocol: {one_line(problem)}"
    return Failure(outcome, f"could not be started: {why} (see {log.name})")

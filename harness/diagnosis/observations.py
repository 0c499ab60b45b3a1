"""What an implementation was seen to give in a run, as much of it as a diagnosis takes."""

import threading

from encoder_conformance.diagnosis.causes import Failed, causes, failed, refused_or_broken
from encoder_conformance.diagnosis.diagnose import Repeats, diagnose
from encoder_conformance.diagnosis.selection import TRIED, choose
from encoder_conformance.judge.answers import Answers
from encoder_conformance.judge.expected import Expected
from encoder_conformance.judge.observation import Observation, observation_of
from encoder_conformance.judge.outcome import Outcome
from encoder_conformance.results import Diagnosis, Record
from encoder_conformance.task import Task


class Observations:
    """Of one implementation, case by case and dtype by dtype. Of many cases those are kept that say most."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, dict[str, Observation]]] = {}
        self._failures: list[Failed] = []
        self._repeats: dict[str, set[Repeats]] = {}
        self._one_at_a_time = threading.Lock()

    def note(self, task: Task, record: Record) -> None:
        """What a check came to that leaves no tensors behind: what was refused, whether two answers were the same."""
        if found := refused_or_broken(task, record):
            with self._one_at_a_time:
                self._failures.append(found)
        if task.check != "invariant" or task.case.situation.invariant != "determinism":
            return
        if record.outcome == Outcome.PASS or (record.outcome == Outcome.FAIL and record.tensors):
            with self._one_at_a_time:
                same: Repeats = "same" if record.outcome == Outcome.PASS else "differ"
                self._repeats.setdefault(task.dtype, set()).add(same)

    def repeats(self, dtype: str) -> Repeats:
        """Whether answers repeat to the bit, in every case that was asked for it."""
        found = self._repeats.get(dtype, set())
        return "differ" if "differ" in found else "same" if found else "unknown"

    def diagnoses(self, name: str, until: float | None = None) -> list[Diagnosis]:
        """What explains the failures in each dtype that has any, cut short at the time `until`; then what was seen.

        Where all that failed was seen to have another cause, numbers say something else only if they explain it."""
        found, failing = [], dict[str, set[str]]()
        for dtype, observations in self.by_dtype().items():
            failing[dtype] = {observation.case.id for observation in observations if observation.failed}
            if failing[dtype]:
                found.append(diagnose(name, dtype, observations, until, self.repeats(dtype)))
        by_themselves = list(causes(name, self._failures, found))
        seen = {(dtype, case) for each in by_themselves for dtype in each.dtype.split(", ") for case in each.cases}
        told = [
            each
            for each in found
            if each.confidence == "explained" or any((each.dtype, case) not in seen for case in failing[each.dtype])
        ]
        return told + by_themselves

    def see(self, task: Task, expected: Expected, record: Record, answers: Answers) -> None:
        if found := failed(task, record, expected, answers):
            with self._one_at_a_time:
                self._failures.append(found)
        if task.check not in ("output", "stages") or record.outcome == Outcome.ERROR:
            return
        if not any(tensor.positions.size for tensor in expected.tensors.values()):
            return  # an empty batch, say, which speaks for nothing
        amiss = record.outcome == Outcome.FAIL
        whole = observation_of(task.case, expected, task.format, answers, failed=amiss)
        with self._one_at_a_time:
            cases = self._found.setdefault(task.dtype, {})
            cases.setdefault(task.case.id, {})[task.check] = whole
            if len(cases) > 2 * TRIED:
                kept = {each.case.id for each in choose(self.by_dtype()[task.dtype])}
                self._found[task.dtype] = {case: cases[case] for case in cases if case in kept}

    def by_dtype(self) -> dict[str, list[Observation]]:
        """One observation a case: its stages, unless there are none, or they pass where the output fails."""
        chosen: dict[str, list[Observation]] = {}
        for dtype, cases in sorted(self._found.items()):
            for _, checks in sorted(cases.items()):  # whichever of two workers saw it first
                output, stages_seen = checks.get("output"), checks.get("stages")
                fused_alone = output and stages_seen and output.failed and not stages_seen.failed
                best = output if fused_alone or stages_seen is None else stages_seen
                if best:
                    chosen.setdefault(dtype, []).append(best)
        return chosen

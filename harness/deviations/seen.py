"""What an implementation was seen to give in a run, as much of it as a diagnosis takes."""

import threading

from harness.deviations.selection import TRIED, choose
from harness.deviations.sighting import Sighting, sighting
from harness.golden.expected import Expected
from harness.judge.observed import Answers
from harness.judge.outcome import Outcome
from harness.plan import Task
from harness.report.model import Record


class Seen:
    """Of one implementation, case by case and dtype by dtype. Of many cases those are kept that say most."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, dict[str, Sighting]]] = {}
        self._one_at_a_time = threading.Lock()

    def see(self, task: Task, expected: Expected, record: Record, observation: Answers) -> None:
        if task.check not in ("output", "stages") or record.outcome == Outcome.ERROR:
            return
        if not any(tensor.positions.size for tensor in expected.tensors.values()):
            return  # an empty batch, say, which speaks for nothing
        failed = record.outcome == Outcome.FAIL
        found = sighting(task.case, expected, task.format, observation, failed=failed)
        with self._one_at_a_time:
            cases = self._found.setdefault(task.dtype, {})
            cases.setdefault(task.case.id, {})[task.check] = found
            if len(cases) > 2 * TRIED:
                kept = {each.case.id for each in choose(self.by_dtype()[task.dtype])}
                self._found[task.dtype] = {case: cases[case] for case in cases if case in kept}

    def by_dtype(self) -> dict[str, list[Sighting]]:
        """One sighting a case: its stages, unless there are none, or they pass where the output fails."""
        chosen: dict[str, list[Sighting]] = {}
        for dtype, cases in sorted(self._found.items()):
            for _, checks in sorted(cases.items()):  # whichever of two workers saw it first
                output, stages_seen = checks.get("output"), checks.get("stages")
                fused_alone = output and stages_seen and output.failed and not stages_seen.failed
                best = output if fused_alone or stages_seen is None else stages_seen
                if best:
                    chosen.setdefault(dtype, []).append(best)
        return chosen

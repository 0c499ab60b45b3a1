"""Keeps what an implementation gives in a run, as much of it as a diagnosis takes, and diagnoses it at the end."""

import contextlib
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from encoder_conformance.diagnosis.backward.consistency import not_following
from encoder_conformance.diagnosis.backward.diagnose import diagnose_backward
from encoder_conformance.diagnosis.backward.observed import ObservedGradients, observe_gradients
from encoder_conformance.diagnosis.causes import FORWARD, FailedCheck, causes, failed_numbers, refused_or_broken
from encoder_conformance.diagnosis.closest import is_refuted
from encoder_conformance.diagnosis.dependence import Repeats
from encoder_conformance.diagnosis.diagnose import Failing, diagnose_chosen, without_name
from encoder_conformance.diagnosis.evidence import Evidence
from encoder_conformance.diagnosis.explanation import (
    Unaccounted,
    as_closest,
    named_deviations,
    on_large_layers,
    unaccounted,
)
from encoder_conformance.diagnosis.lost import fault_of, lost, or_lost
from encoder_conformance.diagnosis.selection import TRIED, choose, not_chosen, of_other_large_layers
from encoder_conformance.diagnosis.sizes_apart import AskedSize, sizes_apart
from encoder_conformance.diagnosis.telling_apart import told_apart
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.asking import UnjudgedAnswer
from encoder_conformance.judging.observation import Observation, ObservedCase, as_observed, in_format, observation_of
from encoder_conformance.judging.records import Diagnosis, Fault, Record
from encoder_conformance.oracle.catalogue import is_noisy
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.protocol.answers import Answers
from encoder_conformance.protocol.spool import Extent, Spool
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.outcome import Outcome

AskInDtype = Callable[[str, Sequence[Case]], list[Observation]]
"""(dtype, cases) → what the implementation gives for those that it answers."""
_TRIES = 2
"""Diagnoses of what an explanation left out."""
_IN_ANOTHER_FORMAT = 4
"""Cases of another format that a rounding has to show in, too."""
_GRADIENTS = 40
"""Cases of a format whose gradients are kept: all that failed first."""


@dataclass(frozen=True)
class _Kept(ObservedCase):
    """An observation whose answers lie on disk, as they came."""

    expected: Callable[[], Expected]
    tensors: Extent


class Observations:
    """The observations of one implementation, by dtype and case. Of many cases those that say most are kept."""

    def __init__(self, spool: Spool | None = None) -> None:
        """`spool`: where the tensors lie; observations of several implementations may share one."""
        self._spool = spool or Spool()
        self._found: dict[str, dict[str, dict[str, _Kept]]] = {}
        self._gradients: dict[str, dict[str, _Kept]] = {}
        self._not_tried: dict[str, list[str]] = {}
        self._failures: list[FailedCheck] = []
        self._repeats: dict[str, set[Repeats]] = {}
        self._lost: dict[str, dict[str, Fault]] = {}
        """Dtype → case → the fault of ours that kept a diagnosis from seeing it."""
        self._forward_outcomes: dict[tuple[str, Layer], set[Outcome]] = {}
        self._sizes: dict[str, dict[str, AskedSize]] = {}
        self._one_at_a_time = threading.Lock()

    def note(self, task: Task, record: Record) -> None:
        """Note the outcome of a check that leaves no tensors: what was refused, whether two answers were the same."""
        with self._in_sight(task):
            self._note(task, record)

    def _note(self, task: Task, record: Record) -> None:
        if found := refused_or_broken(task, record):
            with self._one_at_a_time:
                self._failures.append(found)
        if task.check in FORWARD and record.outcome is not Outcome.UNSUPPORTED:
            with self._one_at_a_time:
                outcomes = self._forward_outcomes.setdefault((task.dtype, _unnamed(task.case.layer)), set())
                outcomes.add(record.outcome)
                self._note_size(task, record.outcome)
        if task.check != "invariant" or task.case.situation.invariant != "determinism":
            return
        if record.outcome == Outcome.PASS or (record.outcome == Outcome.FAIL and record.tensors):
            with self._one_at_a_time:
                same: Repeats = "same" if record.outcome == Outcome.PASS else "differ"
                self._repeats.setdefault(task.dtype, set()).add(same)

    def _note_size(self, task: Task, outcome: Outcome) -> None:
        """Note what the size of a case has to do with its outcome; nothing where it was not answered."""
        if outcome is not Outcome.FAIL and not outcome.is_in_line:
            return
        sizes, case = self._sizes.setdefault(task.dtype, {}), task.case
        before = sizes.get(case.id)
        failed = outcome is Outcome.FAIL or (before is not None and before.failed)
        sizes[case.id] = AskedSize(_unnamed(case.layer), case.situation, failed)

    def forward_is_right(self, dtype: str, layer: Layer) -> bool:
        """Whether every output and stage that was asked of the layer in this format is in line, and some were."""
        outcomes = self._forward_outcomes.get((dtype, _unnamed(layer)), set())
        return bool(outcomes) and all(outcome.is_in_line for outcome in outcomes)

    def repeats(self, dtype: str) -> Repeats:
        """Whether answers repeat to the bit, in every case that was asked for it."""
        found = self._repeats.get(dtype, set())
        return "differ" if "differ" in found else "same" if found else "unknown"

    def diagnoses(
        self,
        name: str,
        until: float | None = None,
        ask: AskInDtype | None = None,
        *,
        in_catalogue_alone: bool = False,
    ) -> list[Diagnosis]:
        """Explain the failures in each dtype that has any, cut short at the time `until`; then causes that are seen.

        Where all that failed has a cause that is seen, numbers name another one only if they explain all. `ask` asks
        the implementation again. `in_catalogue_alone`: no equation is looked for, since what was seen otherwise rules
        out that one explains, or needs none."""
        found, failing = list[Diagnosis](), dict[str, set[str]]()
        seen = _cases_of(self._seen_causes(name, ()))
        for dtype in sorted(self._found):
            kept = self._one_of_each(dtype)
            failing[dtype] = {each.case.id for each in kept if each.failed}
            if failing[dtype]:
                of = Failing(name, dtype, until, self.repeats(dtype), ask and partial(ask, dtype))
                all_seen = all((dtype, case) in seen for case in failing[dtype])  # NaN of padding, say: no equation's
                forward = partial(self._of_dtype, of, kept, in_catalogue_alone=in_catalogue_alone or all_seen)
                found += or_lost(forward, partial(lost, name, dtype, failing[dtype]))
        for dtype in sorted(self._gradients):
            failed = [case for case, each in self._gradients[dtype].items() if each.failed]
            of_gradients = partial(lost, name, dtype, failed, of="backward")
            for backward in or_lost(partial(self._backward, name, dtype), of_gradients):
                found.append(backward)
                failing[dtype] = failing.get(dtype, set()) | set(backward.cases)
        by_themselves = self._seen_causes(name, found)
        seen = _cases_of(by_themselves)
        numeric = [
            each
            for each in found
            if each.confidence == "explained"
            or each.fault
            or any((each.dtype, case) not in seen for case in failing[each.dtype])
        ]
        return numeric + by_themselves + self.out_of_sight(name)

    def _seen_causes(self, name: str, found: Sequence[Diagnosis]) -> list[Diagnosis]:
        dtypes = ", ".join(sorted({each.task.dtype for each in self._failures}))
        of_all = partial(lost, name, dtypes, {each.task.case.id for each in self._failures})
        return or_lost(partial(causes, name, self._failures, found, self.forward_is_right), of_all)

    def out_of_sight(self, name: str) -> list[Diagnosis]:
        """Return a diagnosis for each format of which a fault of ours kept something from being seen."""
        return [lost(name, dtype, each, next(iter(each.values()))) for dtype, each in sorted(self._lost.items())]

    @contextlib.contextmanager
    def _in_sight(self, task: Task) -> Generator[None]:
        """What the block takes from a check is for a diagnosis alone: a fault of ours costs no verdict."""
        try:
            yield
        except Exception as error:
            with self._one_at_a_time:
                self._lost.setdefault(task.dtype, {}).setdefault(task.case.id, fault_of(error))

    def _of_dtype(self, of: Failing, kept: list[_Kept], *, in_catalogue_alone: bool) -> list[Diagnosis]:
        """Explain what failed in a format; what was not seen, no explanation accounts for."""
        forward = self._told_apart(self._forward(of, kept, in_catalogue_alone=in_catalogue_alone), of.until)
        found = self._held_to_other_formats(self._with_gradients(forward, of.dtype))
        if found.confidence in ("closest", "unknown"):
            apart = sizes_apart(self._sizes.get(of.dtype, {}).values())
            found = found.model_copy(update={"observed": (*apart, *found.observed)})
        unseen = sorted(self._lost.get(of.dtype, ()))
        return [as_closest(found, dict.fromkeys(unseen)) if unseen and found.confidence == "explained" else found]

    def _forward(self, of: Failing, kept: list[_Kept], *, in_catalogue_alone: bool) -> Diagnosis:
        """Explain the cases that say most, and every other one that is kept: what is left out is shown to a second
        try. One case of each large layer that failed is tried last."""
        taken = choose(kept)
        chosen = shown = self._read(taken)
        found = diagnose_chosen(of, shown, in_catalogue_alone=in_catalogue_alone)
        left: list[Unaccounted] = []
        for is_last in (*[False] * _TRIES, True):
            if found.confidence != "explained":
                return found
            left = unaccounted(found, self._read(not_chosen(kept, taken)), of.until)
            if not left:
                large = of_other_large_layers(kept, taken)
                return on_large_layers(found, shown, self._read(large), of.until) if large else found
            if not is_last:
                shown = [*(each.observation for each in left), *chosen][:TRIED]
                found = diagnose_chosen(of, shown, in_catalogue_alone=in_catalogue_alone)
        return as_closest(found, {each.observation.case.id: each.rms for each in left})

    def _told_apart(self, forward: Diagnosis, until: float | None) -> Diagnosis:
        """Take back those of several explanations that another case, or another format, refutes."""
        if not forward.indistinguishable:
            return forward
        own = self._one_of_each(forward.dtype)
        taken = choose(own)
        formats = sorted(self._found.keys() - {forward.dtype})
        elsewhere = [each for dtype in formats for each in choose(self._one_of_each(dtype))]
        return told_apart(forward, self._read(taken), self._read([*not_chosen(own, taken), *elsewhere]), until)

    def _held_to_other_formats(self, forward: Diagnosis) -> Diagnosis:
        """Take back the name of a rounding that another format does not show, at its size and in its values."""
        noisy = tuple(filter(is_noisy, named_deviations(forward)))
        if forward.confidence != "closest" or not noisy:
            return forward
        for dtype in sorted(self._found.keys() - {forward.dtype}):
            observations = self._read(choose(self._one_of_each(dtype))[:_IN_ANOTHER_FORMAT])
            if is_refuted(noisy, [Evidence(each) for each in observations]):
                return without_name(forward)
        return forward

    def _with_gradients(self, forward: Diagnosis, dtype: str) -> Diagnosis:
        """Hold an explanation to the gradients, too, as far as they follow from it."""
        if forward.confidence != "explained" or dtype not in self._gradients:
            return forward
        failed_first = sorted(self._gradients[dtype].values(), key=lambda each: (not each.failed, each.case.id))
        left = not_following(self._gradients_seen(failed_first), named_deviations(forward))
        return as_closest(forward, left, "gradients of ") if left else forward

    def see(self, answer: UnjudgedAnswer, tensors: Answers, record: Record) -> None:
        """Take from an answer and its tensors what a diagnosis needs. What was expected does not stay in memory."""
        with self._in_sight(answer.task):
            self._see(answer, tensors, record)

    def _see(self, answer: UnjudgedAnswer, tensors: Answers, record: Record) -> None:
        task, expected = answer.task, answer.expected
        if found := failed_numbers(task, record, expected, tensors):
            with self._one_at_a_time:
                self._failures.append(found)
        if task.check == "gradients":
            self._see_gradients(answer, tensors, record)
        if task.check not in ("output", "stages") or record.outcome == Outcome.ERROR:
            return
        if not any(tensor.positions.size for tensor in expected.tensors.values()):
            return  # an empty batch, say, which speaks for nothing
        amiss, right = record.outcome == Outcome.FAIL, in_format(tensors, task.format)
        extent = self._spool.put(as_observed(task.case, expected, tensors))
        kept = _Kept(task.case, task.format, amiss, right, answer.expected_again, extent)
        with self._one_at_a_time:
            cases = self._found.setdefault(task.dtype, {})
            cases.setdefault(task.case.id, {})[task.check] = kept
            if len(cases) > 2 * TRIED:
                seen = self._one_of_each(task.dtype)
                taken = choose(seen)
                kept_ids = {each.case.id for each in (*taken, *of_other_large_layers(seen, taken))}
                for case in [case for case in cases if case not in kept_ids]:
                    for each in cases.pop(case).values():
                        self._spool.free(each.tensors)

    def _see_gradients(self, answer: UnjudgedAnswer, tensors: Answers, record: Record) -> None:
        task, amiss = answer.task, record.outcome is Outcome.FAIL
        if not amiss and record.outcome is not Outcome.PASS:
            return
        seen = observe_gradients(task.case, answer.expected, task.format, tensors, failed=amiss)
        extent = None if seen is None else self._spool.put(dict(tensors))
        with self._one_at_a_time:
            if extent is None:
                self._not_tried.setdefault(task.dtype, []).extend([task.case.id] if amiss else [])
                return
            kept = self._gradients.setdefault(task.dtype, {})
            kept[task.case.id] = _Kept(task.case, task.format, amiss, True, answer.expected_again, extent)
            if len(kept) > _GRADIENTS:
                passed = (case for case, each in kept.items() if not each.failed)
                self._spool.free(kept.pop(next(passed, next(iter(kept)))).tensors)

    def _backward(self, name: str, dtype: str) -> list[Diagnosis]:
        """Diagnose the gradients of layers whose forward pass is right; [] where nothing is wrong with them."""
        kept = [each for each in self._gradients[dtype].values() if self.forward_is_right(dtype, each.case.layer)]
        if not any(each.failed for each in kept):
            return []
        not_tried = sorted(self._not_tried.get(dtype, ()))
        return [diagnose_backward(name, dtype, [*self._gradients_seen(kept)], not_tried)]

    def _gradients_seen(self, kept: Iterable[_Kept]) -> Iterator[ObservedGradients]:
        for each in kept:
            tensors = self._spool.get(each.tensors)
            if seen := observe_gradients(each.case, each.expected(), each.dtype, tensors, failed=each.failed):
                yield seen

    def forget(self) -> None:
        """Free the room of all: everything was judged, and nothing failed."""
        with self._one_at_a_time:
            found, self._found = self._found, {}
            gradients, self._gradients = self._gradients, {}
        checks = [each for cases in found.values() for of_case in cases.values() for each in of_case.values()]
        for each in [*checks, *(each for cases in gradients.values() for each in cases.values())]:
            self._spool.free(each.tensors)

    def of(self, dtype: str) -> list[Observation]:
        """Return one observation of each case in this dtype."""
        return self._read(self._one_of_each(dtype))

    def _read(self, kept: Iterable[_Kept]) -> list[Observation]:
        return [
            observation_of(each.case, each.expected(), each.dtype, self._spool.get(each.tensors), failed=each.failed)
            for each in kept
        ]

    def _one_of_each(self, dtype: str) -> list[_Kept]:
        """Choose one observation of each case: its stages, unless there are none, or they pass where the output fails.

        The cases are in the order of their ids, whichever of two workers saw one first.
        """
        chosen = []
        for _, checks in sorted(self._found.get(dtype, {}).items()):
            output, stages = checks.get("output"), checks.get("stages")
            fused_alone = output and stages and output.failed and not stages.failed
            if best := output if fused_alone or stages is None else stages:
                chosen.append(best)
        return chosen


def _unnamed(layer: Layer) -> Layer:
    """The layer whatever its name: with a module's own parameters it is asked under another."""
    return layer.model_copy(update={"layer": ""})


def _cases_of(seen: Iterable[Diagnosis]) -> set[tuple[str, str]]:
    """Return the dtypes and cases of causes that were seen."""
    causes_seen = (each for each in seen if not each.fault)
    return {(dtype, case) for each in causes_seen for dtype in each.dtype.split(", ") for case in each.cases}

"""Generates `docs/deviations.md`: the detection matrix, and the deviations that common tolerances miss.

    python -m tools.pages.deviations       simulates the catalogue and runs every installed implementation

A test simulates the catalogue again and checks that the page has not drifted.
"""

import os
import tempfile
from pathlib import Path

from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.runner import SuiteRun
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Ready, resolve
from encoder_conformance.implementation.manifest import default_implementations
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.records import Record
from encoder_conformance.oracle.catalogue import catalogue, seen_in_evaluation
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.protocol.answers import Answers
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.size import is_large
from encoder_conformance.subjects.plan import plan
from tools import ROOT
from tools.kill import Best, Kill, best, kills
from tools.pages.tables import kill_table, markdown, sigma
from tools.pages.tolerances import ALARMING, DETECTING, RULES, Alarms, DetectingRules, detecting_rules

PAGE = ROOT / "docs" / "deviations.md"
GRADED = ("small", "rows", "stacks", "encoders")
"""The families whose cases grade the suite. The others vary the choices of these, are large, or specify NaN, which no
tolerance accepts."""


def page(jobs: int) -> str:
    """The page as Markdown."""
    cases, small = list(load().with_golden.values()), graded()
    records = list(kills(list(seen_in_evaluation()), small, ("float32", "float64"), jobs))
    by_dtype = {
        dtype: best([kill for kill in records if kill.dtype == dtype], constants().rms_limit)
        for dtype in ("float32", "float64")
    }
    alarms = _false_alarms([case for case in cases if case.layer.family != "nan_rows"], jobs)
    detected = tolerances_seen(small)
    return _PAGE.format(
        count=len(catalogue()),
        simulated=len(seen_in_evaluation()),
        cases=len(small),
        weakest=_weakest_text(by_dtype["float32"]),
        unseen=_unseen_list(),
        only64=", ".join(f"`{name}`" for name in _only_float64(records)),
        float32=kill_table(by_dtype["float32"]),
        float64=kill_table({name: by_dtype["float64"][name] for name in _only_float64(records)}),
        summary=tolerance_summary(detected, alarms),
        tolerances=tolerance_table(detected),
    )


def graded() -> list[Case]:
    """The cases that grade the suite.

    For each deviation that changes none of their layers (of RMSNorm, say), the cases of one other layer are added: one
    with required cases, if any can have it.
    Empty batches are left out: they show nothing, and some deviations cannot compute one.
    """
    cases = [case for case in load().with_golden.values() if case.situation.batch]
    layers = {case.layer.layer for case in cases if case.layer.family in GRADED}
    for deviation in seen_in_evaluation().values():
        able = [case for case in cases if changes(case, deviation)]
        able = [case for case in able if case.is_required] or able
        if not any(case.layer.layer in layers for case in able):
            layers.add(next(case.layer.layer for case in able if not is_large(case.layer)))
    return [case for case in cases if case.layer.layer in layers]


def _only_float64(records: list[Kill]) -> list[str]:
    """Deviations that no case shows in float32 and some case shows in float64."""
    limit = constants().rms_limit
    detected = {
        dtype: {kill.deviation for kill in records if kill.dtype == dtype and kill.sigma > limit}
        for dtype in ("float32", "float64")
    }
    return sorted(detected["float64"] - detected["float32"])


def _weakest_text(by_deviation: dict[str, Best]) -> str:
    """The smallest best σ of any deviation that float32 shows: at the output if it shows there, else at a stage."""
    limit = constants().rms_limit
    seen = {
        name: next((part.sigma for part in (kill.output, kill.stages) if part and part.sigma > limit), 0.0)
        for name, kill in by_deviation.items()
    }
    name = min((name for name in seen if seen[name]), key=seen.__getitem__)
    return f"{sigma(seen[name])} σ (`{name}`)"


def _unseen_list() -> str:
    return "\n".join(f"- `{name}`: {deviation.unseen}" for name, deviation in catalogue().items() if deviation.unseen)


RIGHT = "pytorch"
Detected = dict[str, dict[Check, DetectingRules]]
"""Deviation → check → the rules that detect it."""


def tolerances_seen(cases: list[Case]) -> Detected:
    """What each rule detects, at the output and at any stage."""
    manifest = read_golden_manifest()
    expected = {case.id: read_golden(case, manifest, constants()) for case in cases}
    return {name: detecting_rules(name, cases, expected) for name in seen_in_evaluation()}


def tolerance_table(detected: Detected) -> str:
    """A row per deviation, `ordinary / anywhere` at the output for each rule: ● detects it, · does not."""
    rows = [
        (
            f"`{name}`",
            *(f"{'·●'[rule in rules.ordinary]} / {'·●'[rule in rules.anywhere]}" for rule in RULES),
        )
        for name, rules in ((name, by_check["output"]) for name, by_check in detected.items())
    ]
    return markdown(("deviation", *RULES), rows)


def tolerance_summary(detected: Detected, alarms: Alarms) -> str:
    """A row per rule: the deviations that it misses, and the right answers that it calls wrong."""
    missed = [(check, where) for check in DETECTING for where in ("ordinary", "anywhere")]
    rows = [
        (
            rule,
            *(str(sum(rule not in getattr(by[check], where) for by in detected.values())) for check, where in missed),
            *(f"{alarms.rejected[rule, check]} of {alarms.judged[check]}" for check in ALARMING),
        )
        for rule in RULES
    ]
    words = {"ordinary": "ordinary inputs", "anywhere": "all cases"}
    misses = [f"missed at the {check}, {words[where]}" for check, where in missed]
    return markdown(("rule", *misses, *(f"false alarms, {check}" for check in ALARMING)), rows)


def _false_alarms(cases: list[Case], jobs: int) -> Alarms:
    """The false alarms in float32, in all cases, of PyTorch's encoder, which is right."""
    expected = {case.id: read_golden(case, read_golden_manifest(), constants()) for case in cases}
    by_name = {implementation.name: (implementation, folder) for folder, implementation in default_implementations()}
    ready = resolve(*by_name[RIGHT], {})
    assert isinstance(ready, Ready)
    tasks = [task for task in plan(ready.implementation, cases, ("float32",)) if task.check in ALARMING]
    alarms = Alarms()

    def collect(task: Task, expected_values: Expected, record: Record, answers: Answers) -> None:
        alarms.see(task.check, answers, expected_values, failed=record.outcome == Outcome.FAIL)

    with tempfile.TemporaryDirectory() as logs:
        asked, options = [Assignment(ready, tasks)], RunOptions(jobs=jobs)
        run = SuiteRun(asked, lambda case: expected[case.id], options, Path(logs), collect)
        for _ in run.records():
            pass
    return alarms


_PAGE = """# Deviations: what the suite sees, and what fixed tolerances miss

Generated by `python -m tools.pages.deviations`; a test checks that it has not drifted. {count} deviations,
each a YAML file in `specs/deviations/`; {simulated} of them show outside of training, and are played by the oracle
against the {cases} cases of the small layers. `conform list deviations` gives their sentences and links,
`python -m tools deviations` the matrix, and where a deviation changes nothing in a layer, why.

## What fixed tolerances miss

Float32, the small layers, each deviation played, against the golden. *Missed* are deviations: of {simulated}, those
that no tensor of the check shows to the rule. *Ordinary inputs* are `no-mask` and `padding-right`, and of layers that
take token ids `tokens` and `tokens-padding`. *False alarms* are checks of PyTorch's encoder, which is right, that the
rule calls wrong, of all cases; [how-it-judges.md](how-it-judges.md) has σ of four encoders. A rule that calls right
stages wrong may miss none of them, and says nothing: those that σ misses at the stages are within float32's own noise
(*Only in float64*, below), or show in a case that asks for the output alone. In float64 `atol 1e-4` sees none of these
at the output; σ sees each, at 10⁷ σ or more.

{summary}

## The detection matrix, float32

For each deviation the required case that shows it best, weakest first, in σ (rms of a tensor; ∞ is NaN or another
shape). Where only layers with an addition (L-7) can have it, the case is a recommended one (V-9). Of those that
float32 shows, at the output or else at a stage, the weakest is at {weakest}.
[deviations-16-bits.md](deviations-16-bits.md) has bfloat16 and float16, of those that came with additions.

{float32}

## Only in float64

These are within float32's own noise, as they must be, since they compute in float32: {only64}. In float64 they are
seen:

{float64}

## What no output shows

{unseen}

## Rule by rule

On the ordinary inputs / over all cases: ● sees it, · does not.

{tolerances}
"""


if __name__ == "__main__":
    PAGE.write_text(page(os.cpu_count() or 1), encoding="utf-8")

"""Compares common fixed tolerances with σ, on the same tensors: what each detects, and its false alarms."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.oracle.expected import Expected, key
from encoder_conformance.protocol.answers import Answers, values_at
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import Check
from tools.kill import played_verdict

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tolerance:
    """The rule |observed − golden| ≤ atol + rtol · |golden| of NumPy and PyTorch; NaN is never equal."""

    name: str
    rtol: float
    atol: float

    def accepts(self, observed: Array, golden: Array) -> bool:
        """Whether every element observed [N] is near enough to the golden [N]."""
        return bool(np.allclose(observed, golden, rtol=self.rtol, atol=self.atol))


TOLERANCES = (
    Tolerance("np.allclose", 1e-5, 1e-8),
    Tolerance("assert_close", 1.3e-6, 1e-5),
    Tolerance("ONNX 1e-3/1e-7", 1e-3, 1e-7),
    Tolerance("atol 1e-5", 0, 1e-5),
    Tolerance("atol 1e-4", 0, 1e-4),
    Tolerance("atol 1e-3", 0, 1e-3),
)
"""The float32 defaults of numpy.allclose, torch.testing.assert_close and the ONNX backend tests, and common choices."""
SIGMA = "σ"
RULES = [*(rule.name for rule in TOLERANCES), SIGMA]
ORDINARY = ("no-mask", "padding-right", "tokens", "tokens-padding")
DETECTING: tuple[Check, ...] = ("output", "stages")
"""The checks that a deviation is played for: most have no gradients (V-3)."""
ALARMING: tuple[Check, ...] = (*DETECTING, "gradients")
"""The checks in which a right implementation may be called wrong."""


@dataclass(frozen=True)
class DetectingRules:
    """The names of the rules that detect a deviation in float32 by one check: on ordinary inputs, and in any case."""

    ordinary: frozenset[str]
    anywhere: frozenset[str]


def detecting_rules(name: str, cases: list[Case], expected: dict[str, Expected]) -> dict[Check, DetectingRules]:
    """Check → the rules that detect the deviation `name` by it in these cases; `expected` is by case id."""
    ordinary: dict[Check, set[str]] = {check: set() for check in DETECTING}
    anywhere: dict[Check, set[str]] = {check: set() for check in DETECTING}
    for case in cases:
        if not changes(case, catalogue()[name]):
            continue
        deviant = simulate(case, [catalogue()[name]])
        for check in (check for check in DETECTING if check in case.situation.checks):
            answers = {stage: deviant[stage] for stage in case.expected_shapes(check)}
            rejecting = _rejecting(check, case, answers, expected[case.id])
            anywhere[check] |= rejecting
            if case.situation.situation in ORDINARY:
                ordinary[check] |= rejecting
    return {check: DetectingRules(frozenset(ordinary[check]), frozenset(anywhere[check])) for check in DETECTING}


def _rejecting(check: Check, case: Case, answers: Mapping[str, Array], expected: Expected) -> set[str]:
    """The rules that call these answers, as float32 holds them, wrong."""
    verdict = played_verdict(check, case, answers, expected, FORMATS["float32"])
    return _intolerant(answers, expected) | (set() if verdict.outcome == Outcome.PASS else {SIGMA})


def _intolerant(answers: Answers, expected: Expected) -> set[str]:
    """The tolerances that some tensor of the answers is beyond, where the golden keeps it; all, for another shape."""
    tensors = {name: expected.tensors[name] for name in answers}
    if any(answers[name].shape != tensor.shape for name, tensor in tensors.items()):
        return {rule.name for rule in TOLERANCES}
    with np.errstate(over="ignore", invalid="ignore"):
        kept = {name: values_at(answers[name], tensors[name].positions).astype(np.float32) for name in answers}
        return {
            rule.name
            for rule in TOLERANCES
            if not all(rule.accepts(kept[name], tensor.golden) for name, tensor in tensors.items())
        }


@dataclass
class Alarms:
    """The right answers that were judged, by check, and the rules that call them wrong."""

    judged: Counter[Check] = field(default_factory=Counter)
    rejected: Counter[tuple[str, Check]] = field(default_factory=Counter)

    def see(self, check: Check, answers: Answers, expected: Expected, *, failed: bool) -> None:
        """Count the rules that call an answer of an implementation that conforms wrong."""
        self.judged[check] += 1
        named = {key(check, name): answers[name] for name in answers}
        named = {name: answer for name, answer in named.items() if name in expected.tensors}
        self.rejected.update((rule, check) for rule in _intolerant(named, expected) | ({SIGMA} if failed else set()))

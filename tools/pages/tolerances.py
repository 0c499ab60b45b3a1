"""Compares common fixed tolerances with σ: the deviations that each detects, and its false alarms."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.simulate import simulate
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.outcome import Outcome
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
ORDINARY = ("no-mask", "padding-right", "tokens", "tokens-padding")


@dataclass(frozen=True)
class DetectingRules:
    """The names of the rules that detect a deviation at the float32 output: on ordinary inputs, and in any case."""

    ordinary: frozenset[str]
    anywhere: frozenset[str]


def detecting_rules(name: str, cases: list[Case], expected: dict[str, Expected]) -> DetectingRules:
    """The rules that detect the deviation `name` in these cases; `expected` is by case id."""
    ordinary: set[str] = set()
    anywhere: set[str] = set()
    for case in cases:
        if not changes(case, catalogue()[name]):
            continue
        deviant = simulate(case, [catalogue()[name]])
        judgement = played_verdict("output", case, deviant, expected[case.id], FORMATS["float32"])
        tensor = expected[case.id].tensors["output"]
        output = deviant["output"].astype(np.float32).reshape(-1)[tensor.positions]
        rules = {rule.name for rule in TOLERANCES if not rule.accepts(output, tensor.golden)}
        if judgement.outcome != Outcome.PASS:
            rules.add(SIGMA)
        anywhere |= rules
        if case.situation.situation in ORDINARY:
            ordinary |= rules
    return DetectingRules(frozenset(ordinary), frozenset(anywhere))


def false_alarms(observations: list[Observation]) -> dict[str, int]:
    """Rule → number of outputs of conforming implementations that it rejects."""
    count = dict.fromkeys([*(rule.name for rule in TOLERANCES), SIGMA], 0)
    for observation in observations:
        observed, golden = observation.values["output"], observation.expected.tensors["output"].golden
        for rule in TOLERANCES:
            count[rule.name] += observed is None or not rule.accepts(observed, golden)
        count[SIGMA] += observation.failed
    return count

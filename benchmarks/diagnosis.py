"""How often the diagnosis is right: every deviation planted in the real PyTorch and JAX encoders, and random pairs.

    python benchmarks/diagnosis.py pytorch                       every deviation, then 100 pairs
    python benchmarks/diagnosis.py jax --pairs 0                 every deviation
    python benchmarks/diagnosis.py jax --no-singles --seed 7     100 other pairs
    python benchmarks/diagnosis.py pytorch --level required      over every small required case, not the core alone

Prints what was named otherwise, then the two shares, and how long a diagnosis took. A single counts when it comes
first and is explained, or is named among indistinguishable twins; a pair when both are named. float32, the cases of
the core that ask for stages or an output and that the encoder passes with nothing planted: plants know some of
the specification's choices alone.
What none of them shows in float32 is left out, and named.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "plants")]

from encoder_conformance import Masks, RunRequest  # noqa: E402
from encoder_conformance.diagnosis.dependence import Repeats  # noqa: E402
from encoder_conformance.diagnosis.diagnose import Failing, diagnose  # noqa: E402
from encoder_conformance.judging.observation import Observation, observation_of  # noqa: E402
from encoder_conformance.judging.records import Diagnosis  # noqa: E402
from encoder_conformance.judging.simulate import simulate  # noqa: E402
from encoder_conformance.judging.verdict import judge  # noqa: E402
from encoder_conformance.oracle.catalogue import catalogue  # noqa: E402
from encoder_conformance.oracle.deviant import changes  # noqa: E402
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest  # noqa: E402
from encoder_conformance.spec.case import Case  # noqa: E402
from encoder_conformance.spec.dtypes import FORMATS  # noqa: E402
from encoder_conformance.spec.level import Level  # noqa: E402
from encoder_conformance.spec.load import constants, load  # noqa: E402
from encoder_conformance.spec.outcome import Outcome  # noqa: E402
from encoder_conformance.spec.situation import Check  # noqa: E402
from encoder_conformance.spec.stages import stages  # noqa: E402
from encoder_conformance.subjects.plan import select  # noqa: E402
from tools.core.criteria import small_required  # noqa: E402

FLOAT32 = FORMATS["float32"]
ADAPTERS = {"pytorch": ("planted_pytorch.adapter", "PlantedPyTorch"), "jax": ("planted_jax.adapter", "PlantedJax")}

Seen = tuple[list[Observation], Repeats]


class Plants:
    """The real adapter, driven in this process."""

    def __init__(self, framework: str, level: Level) -> None:
        module, name = ADAPTERS[framework]
        self.adapter: Any = getattr(importlib.import_module(module), name)()
        self.adapter.start("cpu", 2)
        manifest, cases = read_golden_manifest(), small_required(select(load().cases, (), level))
        shown = [case for case in cases if _is_judged_by_values(case)]
        self.cases = [(case, read_golden(case, manifest, constants())) for case in shown]
        passed = {observation.case.id for observation in self.seen([])[0] if not observation.failed}
        self.cases = [(case, expected) for case, expected in self.cases if case.id in passed]
        print(f"{framework}: {len(self.cases)} cases of {len(shown)} at {level}", flush=True)

    def seen(self, ids: list[str]) -> Seen:
        """What the implementation gives with these planted, in every small case, and whether it gives it again."""
        self.adapter.plant(ids)
        found = []
        self.repeats: Repeats = "unknown"
        for case, expected in self.cases:
            drawn = {name: value.astype(np.float32) for name, value in case.parameters().items()}
            try:
                self.adapter.build(case.layer.model_dump(mode="json"), drawn, "float32")
                bias = case.attention_bias()
                masks = Masks(
                    case.padding_mask(), case.attention_mask(), None if bias is None else bias.astype(np.float32)
                )
                given = case.x().astype(np.float32) if case.layer.embedding is None else case.ids()
                answers, again = (self._answer(case, given, masks) for _ in range(2))
                self._ask_again(answers, again)
            except Exception as error:
                if ids:
                    print(f"  {' + '.join(ids)} in {case.id}: {type(error).__name__}: {error}")
                continue
            check: Check = "stages" if "stages" in case.situation.checks else "output"
            verdict = judge(check, tuple(answers), answers, expected, FLOAT32)
            found.append(observation_of(case, expected, FLOAT32, answers, failed=verdict.outcome != Outcome.PASS))
        return found, self.repeats

    def _answer(self, case: Case, given: Any, masks: Masks) -> dict[str, Any]:
        """Its stages where the case asks for them, else its output."""
        if "stages" not in case.situation.checks:
            return {"output": self.adapter.output(given, masks, RunRequest())}
        shown = self.adapter.stages(given, masks, RunRequest())
        return {name: shown[name] for name in stages(case.layer)}

    def _ask_again(self, first: dict[str, Any], again: dict[str, Any]) -> None:
        """What a run learns from invariant-determinism."""
        if self.repeats != "differ":
            same = all(np.array_equal(first[name], again[name], equal_nan=True) for name in first)
            self.repeats = "same" if same else "differ"


def _is_judged_by_values(case: Case) -> bool:
    plain = case.situation.given.layout == "batch_first" and case.situation.mode == "eval"
    asks = {"stages", "output"} & set(case.situation.checks)
    return bool(asks) and plain and "float32" in case.situation.dtypes


def right(diagnosis: Diagnosis, ids: list[str]) -> bool:
    named = [diagnosis.deviations, *diagnosis.indistinguishable]
    return diagnosis.confidence == "explained" and any(set(ids) == set(names) for names in named)


class Score:
    """Diagnoses counted and timed; those that are wrong are printed as they come."""

    def __init__(self, framework: str) -> None:
        self.framework = framework
        self.good, self.seconds = 0, list[float]()

    def count(self, ids: list[str], seen: Seen) -> None:
        begun = time.perf_counter()
        diagnosis = diagnose(Failing(self.framework, "float32", repeats=seen[1]), seen[0])
        self.seconds.append(time.perf_counter() - begun)
        self.good += right(diagnosis, ids)
        if not right(diagnosis, ids):
            rms = f"{diagnosis.rms:.3g}" if diagnosis.rms is not None else "–"
            named = f"{diagnosis.confidence} {' + '.join(diagnosis.deviations)} ({rms} σ)"
            print(f"  {' + '.join(ids)}: {named}, after {len(self.seconds)}", flush=True)

    def said(self, what: str) -> str:
        total = len(self.seconds)
        return (
            f"{self.framework}: {what} {self.good} of {total} ({self.good / total:.1%}); a diagnosis takes "
            f"{median(self.seconds):.1f} s, at most {max(self.seconds):.1f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=ADAPTERS)
    parser.add_argument("--singles", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--level", choices=("core", "required"), default="core")
    options = parser.parse_args()
    plants = Plants(options.framework, options.level)
    seen = {name: plants.seen([name]) for name in catalogue()}
    visible = [
        name for name, (observations, _) in seen.items() if any(observation.failed for observation in observations)
    ]
    print(f"not to be seen in float32: {', '.join(name for name in catalogue() if name not in visible)}", flush=True)
    if options.singles:
        score = Score(options.framework)
        for name in visible:
            score.count([name], seen[name])
        print(score.said("singles"), flush=True)
    if options.pairs:
        score = Score(options.framework)
        for pair in pairs(plants, options, visible):
            score.count(pair, plants.seen(pair))
        print(score.said("pairs"))


def pairs(plants: Plants, options: argparse.Namespace, visible: list[str]) -> Iterator[list[str]]:
    """Pairs drawn at random, of which both can be seen, and neither hides or undoes the other."""
    random, total = Random(options.seed), 0
    while total < options.pairs:
        pair = random.sample(visible, 2)
        if _independent(*pair, plants):
            total += 1
            yield pair


def _independent(one: str, other: str, plants: Plants) -> bool:
    """They change different things, and each of them still shows beside the other."""
    first, second = catalogue()[one].patch, catalogue()[other].patch
    overlap = set(first.steps) & set(second.steps) or set(first.parameters) & set(second.parameters)
    both_masks = first.mask and second.mask
    both_layers = first.layer and second.layer
    if overlap or both_masks or both_layers:
        return False
    return _adds(one, other, plants) and _adds(other, one, plants)


def _adds(one: str, other: str, plants: Plants) -> bool:
    """Whether the second shows beside the first, where it is compared: dropping the feed-forward network hides what is
    wrong inside it, and a softmax that never gives NaN hides a mask that would give it to padding alone."""
    for case, expected in plants.cases:
        if changes(case, catalogue()[one]) and changes(case, catalogue()[other]):
            alone = simulate(case, [catalogue()[one]])["output"]
            both = simulate(case, [catalogue()[one], catalogue()[other]])["output"]
            at = expected.tensors["output"].positions
            if both.shape != alone.shape or not np.allclose(
                both.reshape(-1)[at], alone.reshape(-1)[at], rtol=1e-4, atol=1e-4, equal_nan=True
            ):
                return True
    return False


if __name__ == "__main__":
    main()

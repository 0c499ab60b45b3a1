"""How often the diagnosis is right: every deviation planted in the real PyTorch and JAX encoders, and random pairs.

    python benchmarks/diagnosis.py pytorch            every deviation, then 100 pairs
    python benchmarks/diagnosis.py jax --pairs 0

Prints what was named otherwise, then the two shares. A single counts when it comes first and is explained, or is named
among indistinguishable twins; a pair when both are named. float32, small layers. What no output and no stage shows in
float32 is left out, and named.
"""

import argparse
import importlib
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "plants"))

from harness.adapter import Masks  # noqa: E402
from harness.deviations.catalogue import catalogue  # noqa: E402
from harness.deviations.diagnose import diagnose  # noqa: E402
from harness.deviations.play import played  # noqa: E402
from harness.deviations.sighting import Sighting, sighting  # noqa: E402
from harness.golden.store import read_golden, read_manifest  # noqa: E402
from harness.judge.outcome import Outcome  # noqa: E402
from harness.judge.verdict import judge  # noqa: E402
from harness.oracle.deviant import changes  # noqa: E402
from harness.report.model import Diagnosis  # noqa: E402
from harness.spec.constants import constants  # noqa: E402
from harness.spec.dtypes import FORMATS  # noqa: E402
from harness.spec.load import load  # noqa: E402
from harness.spec.stages import stages  # noqa: E402

FLOAT32 = FORMATS["float32"]
ADAPTERS = {"pytorch": ("planted_pytorch.adapter", "PlantedPyTorch"), "jax": ("planted_jax.adapter", "PlantedJax")}


class Plants:
    """The real adapter, driven in this process."""

    def __init__(self, framework: str) -> None:
        module, name = ADAPTERS[framework]
        self.adapter: Any = getattr(importlib.import_module(module), name)()
        self.adapter.start("cpu", 2)
        manifest, cases = read_manifest(), load().cases.values()
        small = [case for case in cases if case.layer.family == "small"]
        self.cases = [(case, read_golden(case, manifest, constants())) for case in small]

    def seen(self, ids: list[str]) -> list[Sighting]:
        """What the implementation gives with these planted, in every small case."""
        self.adapter.plant(ids)
        found = []
        for case, expected in self.cases:
            drawn = {name: value.astype(np.float32) for name, value in case.parameters().items()}
            self.adapter.build(case.layer.model_dump(mode="json"), drawn, "float32")
            try:
                answers = self.adapter.stages(
                    case.x().astype(np.float32), Masks(case.padding_mask(), case.attention_mask())
                )
            except Exception as error:
                print(f"  {' + '.join(ids)} in {case.id}: {type(error).__name__}: {error}")
                continue
            verdict = judge("stages", stages(case.layer), answers, expected, FLOAT32, constants())
            found.append(sighting(case, expected, FLOAT32, answers, failed=verdict.outcome != Outcome.PASS))
        return found


def right(diagnosis: Diagnosis, ids: list[str]) -> bool:
    named = [diagnosis.deviations, *diagnosis.twins]
    return any(set(ids) == set(names) for names in named)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=ADAPTERS)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    plants = Plants(options.framework)
    good, total, invisible, slowest = 0, 0, [], 0.0
    for name in catalogue():
        sightings = plants.seen([name])
        if not any(s.failed for s in sightings):
            invisible.append(name)
            continue
        begun = time.monotonic()
        diagnosis = diagnose(options.framework, "float32", sightings)
        slowest = max(slowest, time.monotonic() - begun)
        total += 1
        good += right(diagnosis, [name])
        if not right(diagnosis, [name]):
            rms = f"{diagnosis.rms:.3g}" if diagnosis.rms is not None else "–"
            print(f"  {name}: {diagnosis.confidence} {' + '.join(diagnosis.deviations)} ({rms} σ)", flush=True)
    print(f"not to be seen in float32: {', '.join(invisible)}")
    print(
        f"{options.framework}: singles {good} of {total} ({good / total:.1%}); slowest diagnosis {slowest:.1f} s",
        flush=True,
    )
    pairs(plants, options, invisible)


def pairs(plants: Plants, options: argparse.Namespace, invisible: list[str]) -> None:
    """Pairs drawn at random, of which both can be seen, and neither hides or undoes the other."""
    random, good, total = Random(options.seed), 0, 0
    visible = [name for name in catalogue() if name not in invisible]
    while total < options.pairs:
        one, other = random.sample(visible, 2)
        if not _independent(one, other, plants):
            continue
        sightings = plants.seen([one, other])
        diagnosis = diagnose(options.framework, "float32", sightings)
        total += 1
        good += right(diagnosis, [one, other])
        if not right(diagnosis, [one, other]):
            named = " + ".join(diagnosis.deviations)
            print(f"  {one} + {other}: {diagnosis.confidence} {named} ({good} of {total} so far)", flush=True)
    if total:
        print(f"{options.framework}: pairs {good} of {total} ({good / total:.0%})")


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
    """Whether the second shows beside the first: dropping the feed-forward network hides what is wrong inside it."""
    for case, _ in plants.cases:
        if changes(case, catalogue()[one]) and changes(case, catalogue()[other]):
            alone = played(case, [catalogue()[one]])["output"]
            both = played(case, [catalogue()[one], catalogue()[other]])["output"]
            if both.shape != alone.shape or not np.allclose(both, alone, rtol=1e-4, atol=1e-4):
                return True
    return False


if __name__ == "__main__":
    main()

"""How long a diagnosis takes when everything fails: wrong layers played by the oracle in every case that is compared.

    python benchmarks/many_failures.py
    python benchmarks/many_failures.py norm-eps-1e-3 residual2-from-first

Prints what was named, and the seconds beside those that playing and judging the same cases took. float32.
"""

import sys
import time

import numpy as np

from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.judging.observation import Observation, observation_of
from encoder_conformance.judging.simulate import simulate
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.stages import stages

FLOAT32 = FORMATS["float32"]
DEFAULT = (
    ["norm-eps-1e-3"],
    ["norm-eps-1e-3", "residual2-from-first"],
    ["gelu-tanh", "key-bias-missing"],
    ["heads-reversed", "dropout-left-on"],
)


def seen(ids: list[str]) -> list[Observation]:
    """What an implementation with these deviations gives in every case, rounded to float32."""
    found = []
    for case in load().with_golden.values():
        expected = read_golden(case, read_golden_manifest(), constants())
        wrong = simulate(case, [catalogue()[name] for name in ids])
        answers = {name: np.asarray(value).astype(np.float32) for name, value in wrong.items()}
        verdict = judge("stages", stages(case.layer), answers, expected, FLOAT32)
        found.append(observation_of(case, expected, FLOAT32, answers, failed=verdict.outcome != Outcome.PASS))
    return found


def main() -> None:
    for ids in [sys.argv[1:]] if sys.argv[1:] else DEFAULT:
        begun = time.monotonic()
        observations = seen(ids)
        judged = time.monotonic()
        diagnosis = diagnose(Failing("benchmark", "float32"), observations)
        seconds = time.monotonic() - judged
        failed = sum(s.failed for s in observations)
        named = " + ".join(diagnosis.deviations)
        print(
            f"{' + '.join(ids)}: {failed} of {len(observations)} cases fail; {diagnosis.confidence}: {named}; "
            f"{seconds:.1f} s, {seconds / (judged - begun):.2f} of what playing and judging them took",
            flush=True,
        )


if __name__ == "__main__":
    main()

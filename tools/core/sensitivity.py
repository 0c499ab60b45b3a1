"""Writes specs/sensitivity.json: which check of which case detects which deviation, off the detection matrix."""

import json
from collections.abc import Iterable
from pathlib import Path

from encoder_conformance.judging.core.sensitivity import (
    FILE,
    FOLDER,
    Played,
    Sensitivity,
    file_digest,
    patch_digest,
)
from encoder_conformance.platform.files import replace_file
from encoder_conformance.platform.paths import SPECS
from encoder_conformance.spec.deviation import Deviation
from tools.kill import Kill

CONFORMING_RMS = 1.6
"""The largest rms, in σ, of a conforming implementation in any required case (docs/findings.md: 1.59)."""
MARGIN = 200 * CONFORMING_RMS
"""The rms, in σ, from which a check detects a deviation: 200 times the largest conforming error."""


def make_sensitivity(kills: Iterable[Kill], deviations: dict[str, Deviation], specs: Path = SPECS) -> Sensitivity:
    """The sensitivity table of a detection matrix."""
    bit_of = {name: bit for bit, name in enumerate(deviations)}
    seen: dict[str, dict[str, dict[str, int]]] = {}
    for kill in kills:
        if kill.sigma >= MARGIN:
            checks = seen.setdefault(kill.case, {}).setdefault(kill.dtype, {})
            checks[kill.check] = checks.get(kill.check, 0) | 1 << bit_of[kill.deviation]
    return Sensitivity(
        margin=MARGIN,
        deviations={
            name: Played(patch=patch_digest(deviation), file=file_digest(specs / FOLDER / f"{name}.yaml"))
            for name, deviation in deviations.items()
        },
        seen={
            case: {
                dtype: {check: f"{bits:x}" for check, bits in sorted(checks.items())}
                for dtype, checks in sorted(formats.items())
            }
            for case, formats in sorted(seen.items())
        },
    )


def write_sensitivity(table: Sensitivity, specs: Path = SPECS) -> None:
    replace_file(
        specs / FILE, (json.dumps(table.model_dump(), separators=(",", ":")).replace("},", "},\n") + "\n").encode()
    )

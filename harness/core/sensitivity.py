"""Which check of which case sees which deviation: the kill matrix as one bit each, frozen in specs/sensitivity.json."""

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pydantic import Field, ValidationError

from encoder_conformance.deviations.kill import Kill
from encoder_conformance.errors import InputError
from encoder_conformance.files import replace_file
from encoder_conformance.paths import SPECS, shown
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import load_deviations
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.strict import Strict

FILE, FOLDER = "sensitivity.json", "deviations"
CONFORMING_RMS = 1.6
"""The largest rms, in σ, of a conforming implementation in any required case (README's matrix: 1.59)."""
MARGIN = 200 * CONFORMING_RMS
"""The rms, in σ, from which a check sees a deviation: 200 times the largest conforming error."""
_HINT = "conform core build makes it anew"


class Played(Strict):
    """A deviation as it was played."""

    patch: str = Field(description="SHA-256 of its patch")
    file: str = Field(description="SHA-256 of its file: where that is the same, nothing needs to be parsed")


class Sensitivity(Strict):
    """`seen` is golden id → format → check → a bit for each of `deviations`, as hexadecimal; bit 0 is the first.

    A bit is set where the check's rms is at least `margin` σ when the oracle plays that deviation.
    """

    format: str = "encoder-conformance sensitivity"
    version: int = 1
    margin: float
    deviations: dict[str, Played]
    seen: dict[str, dict[str, dict[str, str]]]

    def sees(self, case: Case, dtype: str, check: Check) -> int:
        """The deviations that a check of this case sees, a bit each. Nothing is known of other numbers than those of
        the frozen goldens, nor of padding that is not as drawn."""
        if case.numbers_from != (0, "") or case.situation.input.padding != "as_drawn":
            return 0
        return int(self.seen.get(case.golden_id, {}).get(dtype, {}).get(check, "0"), 16)

    def in_format(self, dtype: str) -> int:
        """The deviations that any case sees in this format."""
        found = 0
        for formats in self.seen.values():
            for bits in formats.get(dtype, {}).values():
                found |= int(bits, 16)
        return found

    def names(self, bits: int) -> list[str]:
        return [name for at, name in enumerate(self.deviations) if bits >> at & 1]


def measured(kills: Iterable[Kill], deviations: dict[str, Deviation], specs: Path = SPECS) -> Sensitivity:
    """The table of a kill matrix."""
    at = {name: number for number, name in enumerate(deviations)}
    seen: dict[str, dict[str, dict[str, int]]] = {}
    for kill in kills:
        if kill.sigma >= MARGIN:
            checks = seen.setdefault(kill.case, {}).setdefault(kill.dtype, {})
            checks[kill.check] = checks.get(kill.check, 0) | 1 << at[kill.deviation]
    return Sensitivity(
        margin=MARGIN,
        deviations={
            name: Played(patch=patch_digest(deviation), file=_file_digest(specs / FOLDER / f"{name}.yaml"))
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


def patch_digest(deviation: Deviation) -> str:
    """What a deviation's row was measured with: its sentence and links may be reworded."""
    without = None if deviation.patch.stages else {"stages"}  # the table is older than this key
    return hashlib.sha256(deviation.patch.model_dump_json(exclude=without).encode()).hexdigest()


def write_sensitivity(table: Sensitivity, specs: Path = SPECS) -> None:
    replace_file(
        specs / FILE, (json.dumps(table.model_dump(), separators=(",", ":")).replace("},", "},\n") + "\n").encode()
    )


@cache
def read_sensitivity(specs: Path = SPECS) -> Sensitivity:
    """The frozen table. Raises InputError where it is not of today's catalogue."""
    path = specs / FILE
    try:
        table = Sensitivity.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=shown(path), hint=_HINT) from None
    except ValidationError as error:
        raise InputError(f"is no table: {error.errors()[0]['msg']}", where=shown(path), hint=_HINT) from None
    if differ := sorted(_changed(table, specs)):
        what = f"was measured with another catalogue; {', '.join(differ)} differ"
        raise InputError(what, where=shown(path), hint=_HINT)
    return table


def _changed(table: Sensitivity, specs: Path) -> set[str]:
    """The deviations that were not played as they are today."""
    files = {path.stem: path for path in (specs / FOLDER).iterdir() if path.suffix in (".yaml", ".yml")}
    changed = set(files) ^ set(table.deviations)
    reworded = {
        name
        for name, path in files.items()
        if name in table.deviations and _file_digest(path) != table.deviations[name].file
    }
    if reworded:
        today = load_deviations(specs)
        changed |= {name for name in reworded if patch_digest(today[name]) != table.deviations[name].patch}
    return changed


def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

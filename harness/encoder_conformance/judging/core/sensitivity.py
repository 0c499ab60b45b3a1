"""The detection matrix as bits: which check of which case detects which deviation. Frozen in specs/sensitivity.json."""

import hashlib
from functools import cache
from pathlib import Path

from pydantic import Field, ValidationError

from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import SPECS, shown
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.load import load_deviations
from encoder_conformance.spec.situation import Check
from encoder_conformance.spec.strict import Strict
from encoder_conformance.spec.yaml_file import EXTENSIONS

FILE, FOLDER = "sensitivity.json", "deviations"
_HINT = "python -m tools core build writes it again"


class Played(Strict):
    """The digests of a deviation when the table was measured."""

    patch: str = Field(description="SHA-256 of its patch")
    file: str = Field(description="SHA-256 of its file: where that is the same, nothing needs to be parsed")


class Sensitivity(Strict):
    """`seen` is golden id → format → check → a bit set over `deviations`, in hexadecimal; bit 0 is the first.

    A bit is set if the check's rms is at least `margin` σ when the oracle simulates that deviation.
    """

    format: str = "encoder-conformance sensitivity"
    version: int = 1
    margin: float
    deviations: dict[str, Played]
    seen: dict[str, dict[str, dict[str, str]]]

    def sees(self, case: Case, dtype: str, check: Check) -> int:
        """The deviations that a check of this case detects, as a bit set.

        It is empty for cases with other numbers than the frozen goldens', and for padding that is not as drawn.
        """
        if case.numbers_from != (0, "") or case.situation.input.padding != "as_drawn":
            return 0
        return int(self.seen.get(case.golden_id, {}).get(dtype, {}).get(check, "0"), 16)

    def excluded_by(self, case: Case, dtype: str, check: Check, *, shows_all_stages: bool) -> int:
        """The deviations that a check excludes if it passes, as a bit set.

        It is empty for stages of an implementation that does not show all of them, since the table is measured on all.
        """
        return self.sees(case, dtype, check) if check != "stages" or shows_all_stages else 0

    def in_format(self, dtype: str) -> int:
        """The deviations that any case detects in this format, as a bit set."""
        detected = 0
        for formats in self.seen.values():
            for bits in formats.get(dtype, {}).values():
                detected |= int(bits, 16)
        return detected

    def names(self, bits: int) -> list[str]:
        """The names of the deviations in a bit set."""
        return [name for index, name in enumerate(self.deviations) if bits >> index & 1]


def patch_digest(deviation: Deviation) -> str:
    """A digest of the deviation's patch alone, since its sentence and links may be reworded."""
    patch = deviation.patch
    without = {key for key in ("stages", "replaces") if not getattr(patch, key)}  # the table is older than these keys
    return hashlib.sha256(patch.model_dump_json(exclude=without).encode()).hexdigest()


@cache
def read_sensitivity(specs: Path = SPECS) -> Sensitivity:
    """The frozen table. Raises InputError if it cannot be read or was measured with another catalogue."""
    path = specs / FILE
    try:
        table = Sensitivity.model_validate_json(path.read_bytes())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=shown(path), hint=_HINT) from None
    except ValidationError as error:
        raise InputError(f"is no table: {error.errors()[0]['msg']}", where=shown(path), hint=_HINT) from None
    if changed := sorted(_changed_deviations(table, specs)):
        message = f"was measured with another catalogue; {', '.join(changed)} differ"
        raise InputError(message, where=shown(path), hint=_HINT)
    return table


def _changed_deviations(table: Sensitivity, specs: Path) -> set[str]:
    """The deviations whose patches differ from those that were measured."""
    files = {path.stem: path for path in (specs / FOLDER).iterdir() if path.suffix in EXTENSIONS}
    changed = set(files) ^ set(table.deviations)
    reworded = {
        name
        for name, path in files.items()
        if name in table.deviations and file_digest(path) != table.deviations[name].file
    }
    if reworded:
        today = load_deviations(specs)
        changed |= {name for name in reworded if patch_digest(today[name]) != table.deviations[name].patch}
    return changed


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

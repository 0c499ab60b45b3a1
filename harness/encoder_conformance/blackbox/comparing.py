"""Outputs of two black boxes: which belong together, and how far apart they are, in σ."""

from collections.abc import Mapping

import numpy as np

from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding
from encoder_conformance.spec.axes import Array, Bools

LIMIT = 5.0
"""σ beyond which outputs are not the same. Right files come to 2.5 at most (docs/validating.md)."""
_CANCELLED = 1e-3
NO_NUMBERS = ("NaN", "an infinite number")
Outputs = Mapping[str, Array]


def paired(file: Outputs, source: Outputs) -> tuple[dict[str, str], list[str]]:
    """The file's output → the source's: of one name, whatever its shape, else the next of its shape; of as many as are
    left on both sides, the next; and those that have none."""
    pairs = {name: name for name in file if name in source}
    left = [name for name in source if name not in pairs.values()]
    unpaired = []
    for name, value in file.items():
        if name in pairs:
            continue
        other = next((each for each in left if source[each].shape == value.shape), None)
        if other is None:
            unpaired.append(name)
        else:
            pairs[name] = other
            left.remove(other)
    if len(unpaired) == len(left):  # each can be but the other's: it has another shape, and was compared with nothing
        pairs, unpaired = pairs | dict(zip(unpaired, left, strict=True)), []
    return {name: pairs[name] for name in file if name in pairs}, unpaired


def judged(found: Array, right: Array, sigma: float, undefined: Bools | None = None) -> tuple[float | None, str, bool]:
    """The rms of an output's error in σ, or the problem; and whether it has numbers where the source has none.

    `found` and `right` [*shape]; where the shapes are not the same, that is the problem. `undefined` [B, S]:
    positions that see padding alone, whose numbers nothing says: that there are any is compared.
    """
    if found.shape != right.shape:
        return None, f"its shape is {list(found.shape)}, and the source's {list(right.shape)}", False
    if not found.size:
        return None, "nothing to compare: it has no items", False
    mine, theirs = found.astype(np.float64), right.astype(np.float64)
    lacking = np.isfinite(theirs) & ~np.isfinite(mine)
    if lacking.any():
        what = NO_NUMBERS[0 if np.isnan(mine[lacking]).any() else 1]
        return None, f"{what} in {int(lacking.sum())} of {mine.size} places where the source has a number", False
    both = np.isfinite(theirs) & np.isfinite(mine)
    if not both.any():
        return None, "nothing to compare: the source has no finite number", False
    more = bool((~np.isfinite(theirs) & np.isfinite(mine)).any())
    if (left := _left_open(mine, undefined)) is not None:
        both[left] = False
    error = float(np.sqrt(np.mean(np.square(mine[both] - theirs[both])))) if both.any() else 0.0
    return error / sigma if sigma else (0.0 if error == 0.0 else float(np.finfo(np.float64).max)), "", more


def size_of(output: Array) -> float:
    """The root of the mean square of the finite numbers of an output [*shape]; 0 for none."""
    wide = output.astype(np.float64)
    return rms(wide[np.isfinite(wide)])


def tells_nothing(right: Array, sigma: float, largest: float) -> bool:
    """Whether zeros would be as near to an output [*shape] as a right file is: rounding is as large as its numbers.

    `largest`: the size of that output in any case, beside which what cancels out, as in a norm of one value, is small.
    """
    return sigma * LIMIT >= size_of(right) > _CANCELLED * largest


def undefined_apart(found: Array, right: Array, sigma: float, undefined: Bools | None) -> float:
    """How far positions [B, S] that see padding alone are apart, in σ; 0 without any, or where they have no numbers."""
    left = _left_open(found, undefined)
    if found.shape != right.shape or left is None:
        return 0.0
    rms, problem, _ = judged(found[left], right[left], sigma)
    return 0.0 if problem or rms is None else rms


def undefined_differ(case: WholeCase, output: str, rms: float) -> Finding:
    """That they are, which is nobody's mistake and may surprise somebody."""
    of_items = case.hidden is not None and bool(case.hidden.all(-1).any())
    who = "an item of padding alone gives" if of_items else "hidden positions that see hidden ones alone give"
    message = f"{case.name}: {who} other numbers in {output!r} (rms {rms:.3g} σ)"
    hint = "nothing says what it should give: keep such items out of the batch"
    hint = hint if of_items else "nothing says what they should give: read no output where padding is"
    about = {"case": case.name, "output": output, "rms": rms}
    return Finding(severity="warning", kind="fully-masked-rows-differ", message=message, hint=hint, about=about)


def _left_open(output: Array, undefined: Bools | None) -> Bools | None:
    """Of which positions of an output [B, S, ...], or items of any other [B, ...], nothing says what they should be;
    None: of none."""
    if undefined is None:
        return None
    of_positions = output.ndim > 2 and output.shape[:2] == undefined.shape
    left = undefined if of_positions else np.asarray(undefined.all(-1))
    return left if left.any() and output.shape[: left.ndim] == left.shape else None


def kind_of_problem(found: Array, right: Array) -> FindingKind:
    """For programs, of an output that is none of the other's, both [*shape]: another shape, or no number where the
    other has one; else there was nothing to compare."""
    if found.shape != right.shape:
        return "output-shape-differs"
    mine, theirs = found.astype(np.float64), right.astype(np.float64)
    return "no-numbers" if (np.isfinite(theirs) & ~np.isfinite(mine)).any() else "not-compared"

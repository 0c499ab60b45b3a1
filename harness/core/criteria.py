"""What a case can be in the core for: a deviation that it sees, a clause, a value of the languages, two told apart."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from encoder_conformance.core.pairs import Apart, predicted
from encoder_conformance.core.sensitivity import Sensitivity
from encoder_conformance.deviations.kill import PLAYED
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.coverage import LANGUAGES, values_of
from encoder_conformance.spec.parameters import parameters_of, without_prefix

_FORMATS = ("float32", "float64")


@dataclass(frozen=True, order=True)
class Criterion:
    """One reason to be in the core.

    `deviation`: `name` is seen by check `at`. `clause`: `name` is cited. `value`: the language's key `at` has the value
    `name`, or what `at` says is so of `name`. `pair`: `name` and `at` are two deviations that are told apart.
    """

    kind: Literal["deviation", "clause", "value", "pair"]
    name: str
    at: str = ""


def small_required(cases: Iterable[Case]) -> list[Case]:
    """What the core is chosen from. Large layers show nothing that small ones do not, and take far longer."""
    return [case for case in cases if case.is_required and case.layer.d_model <= LARGEST]


LARGEST = 64
"""The largest d_model in the core."""


def of_deviations(cases: Iterable[Case], table: Sensitivity) -> dict[str, set[Criterion]]:
    """Case id → each deviation that it sees, in each format: at the output if any case sees it there, or else at a
    stage, for not every implementation shows stages."""
    seen = {
        (case.id, dtype, check): table.sees(case, dtype, check)
        for case in cases
        for dtype in case.situation.dtypes
        for check in PLAYED
        if check in case.situation.checks
    }
    at_output: dict[str, int] = {}
    for (_, dtype, check), bits in seen.items():
        if check == "output":
            at_output[dtype] = at_output.get(dtype, 0) | bits
    found: dict[str, set[Criterion]] = {}
    for (case_id, dtype, check), bits in seen.items():
        due = bits if check == "output" else bits & ~at_output.get(dtype, 0)
        criteria = found.setdefault(case_id, set())
        criteria |= {Criterion("deviation", name, f"{check}, {dtype}") for name in table.names(due)}
    return found


def of_text(case: Case) -> set[Criterion]:
    """The clauses that a case cites, the values that its layer and situation have at the languages' keys, and what is
    asked of which part: in which form each mask is given, and which check asks about each parameter."""
    found = {Criterion("clause", clause) for clause in case.clauses}
    mask, given_as = case.situation.mask, case.situation.given
    for part, value in (("padding", mask.padding), ("attention", mask.attention), ("bias", mask.bias)):
        if value is not None:
            found |= {Criterion("value", given_as.masks, f"masks of {part}")}
            found |= {Criterion("value", str(given_as.rank), f"rank of {part}")}
    for check in {"gradients", "initialisation"}.intersection(case.situation.checks):
        for parameter in parameters_of(case.layer):
            found.add(Criterion("value", without_prefix(parameter.name)[1], f"{check} of"))
    given = {"layer": case.layer, "situation": case.situation}
    for language, values in _VALUES.items():
        for key, tests in values.items():
            found |= {
                Criterion("value", value, f"{language}.{key}")
                for value, is_used in tests.items()
                if (language, key) not in _OF_SIZE and is_used(given[language])
            }
    return found


_VALUES = {language: values_of(model) for language, model in LANGUAGES.items()}
_OF_SIZE = {("layer", "family")}
"""A family is a name for which situations apply; those of the large layers have no small one."""


def of_pairs(apart: Mapping[str, Apart], names: list[str]) -> dict[str, set[Criterion]]:
    """Golden id → the pairs of deviations that its case tells apart, where any case does: at the output if any case
    tells them apart there, in float32 if any case does so."""
    exact = predicted()
    due = np.triu(exact[:, None] | exact[None, :], 1)
    found: dict[str, set[Criterion]] = {case: set() for case in apart}
    for dtype in _FORMATS:
        for check in PLAYED:
            told = {case: tables[dtype, check] & due for case, tables in apart.items() if (dtype, check) in tables}
            for case, table in told.items():
                found[case] |= {Criterion("pair", names[i], names[j]) for i, j in np.argwhere(table)}
            due = due & ~np.any(list(told.values()), axis=0)
    return found

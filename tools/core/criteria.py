"""The criteria of the core: a deviation detected, a clause cited, a language value used, a pair distinguished."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from encoder_conformance.judging.core.sensitivity import Sensitivity
from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.coverage import LANGUAGES, values_of
from encoder_conformance.spec.parameters import parameters_of, without_prefix
from tools.core.pairs import Distinguished, predictable_deviations
from tools.kill import PLAYED

_FORMATS = ("float32", "float64")


@dataclass(frozen=True, order=True)
class Criterion:
    """One reason to be in the core.

    `deviation`: check `at` detects `name`. `clause`: the case cites `name`. `value`: the language's key `at` has the
    value `name`, or the property `at` applies to `name`. `pair`: the case distinguishes deviations `name` and `at`.
    """

    kind: Literal["deviation", "clause", "value", "pair"]
    name: str
    at: str = ""


def small_required(cases: Iterable[Case]) -> list[Case]:
    """The candidates for the core. Large layers show nothing that small ones do not, and take far longer."""
    return [case for case in cases if case.is_required and case.layer.d_model <= LARGEST]


LARGEST = 64
"""The largest d_model in the core."""


def of_deviations(cases: Iterable[Case], table: Sensitivity) -> dict[str, set[Criterion]]:
    """Case id → a criterion for each deviation that it detects, in each format.

    A deviation counts at the output if any case detects it there, and otherwise at a stage, since not every
    implementation shows stages.
    """
    detected = {
        (case.id, dtype, check): table.sees(case, dtype, check)
        for case in cases
        for dtype in case.situation.dtypes
        for check in PLAYED
        if check in case.situation.checks
    }
    at_output: dict[str, int] = {}
    for (_, dtype, check), bits in detected.items():
        if check == "output":
            at_output[dtype] = at_output.get(dtype, 0) | bits
    criteria_by_case: dict[str, set[Criterion]] = {}
    for (case_id, dtype, check), bits in detected.items():
        counted = bits if check == "output" else bits & ~at_output.get(dtype, 0)
        criteria = criteria_by_case.setdefault(case_id, set())
        criteria |= {Criterion("deviation", name, f"{check}, {dtype}") for name in table.names(counted)}
    return criteria_by_case


def of_text(case: Case) -> set[Criterion]:
    """The criteria that follow from the text of a case.

    They are the clauses that it cites, the values at the languages' keys in its layer and situation, the format of each
    mask, and the checks of each parameter.
    """
    criteria = {Criterion("clause", clause) for clause in case.clauses}
    mask, input_format = case.situation.mask, case.situation.given
    for part, value in (("padding", mask.padding), ("attention", mask.attention), ("bias", mask.bias)):
        if value is not None:
            criteria |= {Criterion("value", input_format.masks, f"masks of {part}")}
            criteria |= {Criterion("value", str(input_format.rank), f"rank of {part}")}
    for check in {"gradients", "initialisation"}.intersection(case.situation.checks):
        for parameter in parameters_of(case.layer):
            criteria.add(Criterion("value", without_prefix(parameter.name)[1], f"{check} of"))
    by_language = {"layer": case.layer, "situation": case.situation}
    for language, values in _VALUES.items():
        for key, tests in values.items():
            criteria |= {
                Criterion("value", value, f"{language}.{key}")
                for value, is_used in tests.items()
                if (language, key) not in _OF_SIZE and is_used(by_language[language])
            }
    return criteria


_VALUES = {language: values_of(model) for language, model in LANGUAGES.items()}
_OF_SIZE = {("layer", "family")}
"""Keys that depend on size: a family selects situations, and those of the large layers have no small cases."""


def of_pairs(apart: Mapping[str, Distinguished], names: list[str], possible: Bools) -> dict[str, set[Criterion]]:
    """Golden id → a criterion for each pair of deviations that its case distinguishes.

    A pair counts at the output if any case distinguishes it there, and in float32 if any case does so. `possible`: [n],
    true for deviations that a candidate may have; of one that none has, nothing is to be told apart.
    """
    predictable = predictable_deviations()
    missing = np.triu(predictable[:, None] | predictable[None, :], 1) & possible[:, None] & possible[None, :]
    criteria: dict[str, set[Criterion]] = {case: set() for case in apart}
    for dtype in _FORMATS:
        for check in PLAYED:
            distinguished = {
                case: tables[dtype, check] & missing for case, tables in apart.items() if (dtype, check) in tables
            }
            for case, table in distinguished.items():
                criteria[case] |= {Criterion("pair", names[i], names[j]) for i, j in np.argwhere(table)}
            missing = missing & ~np.any(list(distinguished.values()), axis=0)
    return criteria

"""What was judged, and the largest errors of it: plain data, which docs/rewritings.json keeps."""

from collections.abc import Iterable
from dataclasses import dataclass, field

DTYPES = ("float64", "float32", "bfloat16", "float16")
_SHOWN = 3


@dataclass(frozen=True)
class Judged:
    """One tensor of a rewriting in one case: its errors in σ, or the `problem` that leaves no numbers to compare."""

    rewriting: str
    dtype: str
    case: str
    seed: int
    tensor: str
    conforms: bool
    rms: float | None
    max: float | None
    problem: str = ""

    def __str__(self) -> str:
        error = self.problem or f"rms {self.rms:.3g} σ, max {self.max:.3g} σ"
        return f"{self.case}, seed {self.seed}, {self.tensor}: {error}"


@dataclass
class Largest:
    """Over all tensors of a rewriting in one format: their number, the largest errors in σ, and how many are accused.

    `worst`: of the accused, those with the largest rms.
    """

    tensors: int
    rms: float
    max: float
    accused: int
    not_finite: int
    worst: list[str]


@dataclass
class Row:
    """A rewriting: the step that is done otherwise, what is computed, the clause by which it is less exact if it is,
    and its largest errors by format."""

    group: str
    says: str
    less_exact: str
    by_format: dict[str, Largest] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """Rows by rewriting; how many goldens, and at which input seeds."""

    goldens: int
    seeds: list[int]
    rows: dict[str, Row]

    def honest(self) -> dict[str, Row]:
        return {name: row for name, row in self.rows.items() if not row.less_exact}

    def less_exact(self) -> dict[str, Row]:
        return {name: row for name, row in self.rows.items() if row.less_exact}

    def accused(self) -> list[str]:
        """One line for each honest rewriting and format that is accused."""
        return [
            f"**{name}** in {dtype}, {largest.accused} of {largest.tensors} tensors: {'; '.join(largest.worst)}"
            for name, row in self.honest().items()
            for dtype, largest in row.by_format.items()
            if largest.accused
        ]


def largest_of(judged: Iterable[Judged]) -> dict[str, Largest]:
    """Format → the largest errors, of one rewriting."""
    by_format: dict[str, list[Judged]] = {}
    for one in judged:
        by_format.setdefault(one.dtype, []).append(one)
    return {dtype: _largest(by_format[dtype]) for dtype in DTYPES if dtype in by_format}


def _largest(judged: list[Judged]) -> Largest:
    compared = [one for one in judged if one.rms is not None and one.max is not None]
    accused = sorted((one for one in judged if not one.conforms), key=lambda one: -(one.rms or float("inf")))
    return Largest(
        tensors=len(judged),
        rms=float(f"{max((one.rms or 0.0 for one in compared), default=0.0):.3g}"),
        max=float(f"{max((one.max or 0.0 for one in compared), default=0.0):.3g}"),
        accused=len(accused),
        not_finite=len(judged) - len(compared),
        worst=[str(one) for one in accused[:_SHOWN]],
    )

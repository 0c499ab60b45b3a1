"""What of an invariant an implementation can be asked: each way of asking is a case like any other, with its needs."""

from harness.impl.manifest import Implementation
from harness.invariants.variants import Variant, base_of, variants
from harness.spec.case import Case


def asked_variants(implementation: Implementation, case: Case, dtype: str) -> tuple[Variant, ...]:
    """The variants that the implementation takes; what it does not take is not given to it."""
    return tuple(v for v in variants(case) if implementation.opt_out(v.case, dtype, "output") is None)


def opt_out(implementation: Implementation, case: Case, dtype: str) -> str | None:
    """Why the case's invariant is not asked, or None if it is: of the case itself, or of every variant of it."""
    said = implementation.opt_out(case, dtype, "invariant") or implementation.opt_out(base_of(case), dtype, "output")
    if said:
        return said
    reasons = [implementation.opt_out(variant.case, dtype, "output") for variant in variants(case)]
    return reasons[0] if all(reasons) else None

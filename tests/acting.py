"""The deviations that required cases can have: those of additions show in recommended cases alone (V-9)."""

from functools import cache

from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.spec.load import load


@cache
def acting_in_required_cases() -> frozenset[str]:
    required = [case for case in load().cases.values() if case.is_required]
    return frozenset(name for name, each in catalogue().items() if any(changes(case, each) for case in required))

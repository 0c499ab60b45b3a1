"""Keeps a fault of ours to the diagnosis that it happens in: the run goes on, and its verdicts stand.

An interrupt is no fault, and ends the run. Memory that runs out is one: what this diagnosis had read is let go with it,
and the next one begins.
"""

import traceback
from collections.abc import Callable, Iterable
from typing import Literal

from encoder_conformance.judging.records import Diagnosis, Fault

_LONGEST_ERROR, _LONGEST_TRACE = 300, 20_000
"""Characters."""


def fault_of(error: Exception) -> Fault:
    """Return what a report keeps of an exception."""
    first = next(iter(str(error).splitlines()), "")
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return Fault(error=text[:_LONGEST_ERROR], trace="".join(traceback.format_exception(error))[-_LONGEST_TRACE:])


def lost(
    implementation: str,
    dtype: str,
    cases: Iterable[str],
    fault: Fault,
    of: Literal["forward", "backward"] = "forward",
) -> Diagnosis:
    """Return the diagnosis of these cases, which knows no cause because of a fault."""
    return Diagnosis(
        implementation=implementation,
        dtype=dtype,
        confidence="unknown",
        of=of,
        fault=fault,
        first_stage=None,
        cases=tuple(sorted(cases)),
    )


def or_lost(diagnose: Callable[[], Iterable[Diagnosis]], losing: Callable[[Fault], Diagnosis]) -> list[Diagnosis]:
    """Return what is diagnosed, or the one diagnosis that says by which fault of ours all of it is lost."""
    try:
        return list(diagnose())
    except Exception as error:
        return [losing(fault_of(error))]

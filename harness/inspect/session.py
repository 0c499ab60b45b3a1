"""Asking one implementation about one case, outside a run: which one, and what a worker that fails says."""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from encoder_conformance.errors import InputError, Unanswered
from encoder_conformance.impl.interpreter import Missing, Ready, resolve
from encoder_conformance.impl.manifest import default_implementations, find_implementation
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.situation import Check
from encoder_conformance.task import Task
from encoder_conformance.wire.frames import LARGEST_FRAME, Tensors
from encoder_conformance.worker.lifecycle import Failure
from encoder_conformance.worker.session import Session

_LAST_LINES = 8


def find_task(named: str | None, case: Case, dtype: DtypeName, check: Check) -> tuple[Ready, Task]:
    """The implementation `named`, or else the first one here that can do this; and what it is asked."""
    candidates = [find_implementation(named)] if named else default_implementations()
    reasons, hint = [], "pip install 'encoder-conformance[all]', or ask another --impl, --layer or --dtype"
    for folder, implementation in candidates:
        found = resolve(implementation, folder, {})
        cannot = implementation.opt_out(case, dtype, check)
        if isinstance(found, Missing):
            reasons.append(f"{implementation.name}: {found.reason}")
            hint = found.hint if named else hint
        elif cannot:
            reasons.append(f"{implementation.name}: {cannot.text}")
            hint = "ask another --impl, --layer or --dtype" if named else hint
        else:
            return found, Task(implementation, case, dtype, check, None)
    what = "; ".join(reasons) if named else f"no implementation can be asked here ({'; '.join(reasons)})"
    raise InputError(what, where="--impl", hint=hint)


def must_fit(elements: int, case: Case, dtype: DtypeName) -> None:
    """Refuse, before anything is computed, what could not come back in one frame."""
    size = elements * FORMATS[dtype].numpy.itemsize
    if size > LARGEST_FRAME * 0.99:  # the header and the rounding up take the rest
        batch = int(LARGEST_FRAME * 0.99 * case.situation.batch) // size
        hint = f"--batch {batch} would fit" if batch else "take a smaller --sequence: even one item is too large"
        what = f"what comes back would be {size / 2**30:.2f} GiB; a frame holds {LARGEST_FRAME / 2**30:g}"
        raise InputError(what, where="--batch, --sequence", hint=hint)


@contextmanager
def asking(
    ready: Ready, threads: int, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[Session, Callable[[Tensors | Failure], Tensors]]]:
    """A session, ended with the block, and what turns its answers into observations or raises `Unanswered`."""
    with tempfile.TemporaryDirectory(prefix="conform-") as folder:
        log = Path(folder) / "worker.log"
        session = Session(ready, "cpu", threads, log, variables)

        def answered(answer: Tensors | Failure) -> Tensors:
            if not isinstance(answer, Failure):
                return answer
            raise Unanswered("\n".join([f"{ready.implementation.name}: {answer.message}", *_end_of(log)]))

        try:
            yield session, answered
            session.close()
        finally:
            session.abort()


def _end_of(log: Path) -> list[str]:
    lines = log.read_text(errors="replace").splitlines() if log.is_file() else []
    return [f"  {line}" for line in lines[-_LAST_LINES:]]

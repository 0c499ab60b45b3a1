"""Runs one implementation on one case, outside `conform run`: selection, session, and failures."""

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
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.launch import end_of_log
from encoder_conformance.worker.limits import Limits
from encoder_conformance.worker.session import Session

_LAST_LINES = 8


def find_task(name: str | None, case: Case, dtype: DtypeName, check: Check) -> tuple[Ready, Task]:
    """The implementation of this name or folder, or else the first available one that supports the check; and its task.

    Raises InputError if there is none.
    """
    candidates = [find_implementation(name)] if name else default_implementations()
    reasons, hint = [], "pip install 'encoder-conformance[all]', or choose another --impl, --layer or --dtype"
    for folder, implementation in candidates:
        interpreter = resolve(implementation, folder, {})
        opt_out = implementation.opt_out(case, dtype, check)
        if isinstance(interpreter, Missing):
            reasons.append(f"{implementation.name}: {interpreter.reason}")
            hint = interpreter.hint if name else hint
        elif opt_out:
            reasons.append(f"{implementation.name}: {opt_out.text}")
            hint = "choose another --impl, --layer or --dtype" if name else hint
        else:
            return interpreter, Task(implementation, case, dtype, check, None)
    message = "; ".join(reasons) if name else f"no implementation is available here ({'; '.join(reasons)})"
    raise InputError(message, where="--impl", hint=hint)


def refuse_too_large(elements: int, batch: int, dtype: DtypeName) -> None:
    """Raises InputError if an answer of so many elements, of so many items, would not fit in one frame."""
    size = elements * FORMATS[dtype].numpy.itemsize
    if size > LARGEST_FRAME * 0.99:  # the header and the rounding up take the rest
        most = int(LARGEST_FRAME * 0.99 * batch) // size
        hint = f"--batch {most} would fit" if most else "take a smaller --sequence: even one item is too large"
        message = f"the answer would be {size / 2**30:.2f} GiB; a frame holds {LARGEST_FRAME / 2**30:g}"
        raise InputError(message, where="--batch, --sequence", hint=hint)


@contextmanager
def open_session(
    ready: Ready, threads: int, environment: Mapping[str, str] | None = None, limits: Limits | None = None
) -> Iterator[tuple[Session, Callable[[Tensors | Failure], Tensors]]]:
    """A session, closed at the end of the block, and a function that returns an answer's tensors.

    The function raises `Unanswered`, with the last lines of the worker's log, if the answer is a failure.
    """
    with tempfile.TemporaryDirectory(prefix="conform-") as folder:
        log = Path(folder) / "worker.log"
        session = Session(ready, "cpu", threads, log, environment, limits=limits)

        def require_answer(answer: Tensors | Failure) -> Tensors:
            if not isinstance(answer, Failure):
                return answer
            session.worker.write_log()
            raise Unanswered("\n".join([f"{ready.implementation.name}: {answer.message}", *_last_lines(log)]))

        try:
            yield session, require_answer
            session.close()
        finally:
            session.abort()


def _last_lines(log: Path) -> list[str]:
    return [f"  {line}" for line in end_of_log(log).splitlines()[-_LAST_LINES:]]

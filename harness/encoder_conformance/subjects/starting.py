"""Starts the worker of one implementation, outside `conform run`."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from encoder_conformance.implementation.choices import Chosen
from encoder_conformance.implementation.interpreter import Missing, Ready, resolve
from encoder_conformance.implementation.manifest import (
    Implementation,
    default_implementations,
    find_implementation,
    read_implementation,
)
from encoder_conformance.implementation.task import Task
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import READERS
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.situation import Check
from encoder_conformance.subjects.subject import SubjectRequest
from encoder_conformance.worker.limits import WorkerLimits
from encoder_conformance.worker.session import Session

AnyDescription = TypeVar("AnyDescription", bound=BaseModel)


def require_ready(
    implementation: Implementation, folder: Path, pythons: Mapping[str, str], where: str, problem: str = ""
) -> Ready:
    """The command that starts it. Raises InputError, `PROBLEM: reason`, if there is none; by default it is named."""
    found = resolve(implementation, folder, dict(pythons))
    if isinstance(found, Missing):
        raise InputError(f"{problem or implementation.name}: {found.reason}", where=where, hint=found.hint)
    return found


def find_task(name: str | None, case: Case, dtype: DtypeName, check: Check) -> tuple[Ready, Task]:
    """The implementation of this name or folder, or else the first available one that supports the check; and its task.

    Raises InputError if there is none.
    """
    candidates = [find_implementation(name)] if name else default_implementations()
    reasons, hint = [], "pip install 'encoder-conformance[all]', or choose another --impl, --layer or --dtype"
    for folder, implementation in candidates:
        found = resolve(implementation, folder, {})
        if isinstance(found, Missing):
            reason, advice = found.reason, found.hint
        elif opt_out := implementation.opt_out(case, dtype, check):
            reason, advice = opt_out.text, "choose another --impl, --layer or --dtype"
        else:
            return found, Task(implementation, case, dtype, check, None)
        reasons.append(f"{implementation.name}: {reason}")
        hint = advice if name else hint
    message = "; ".join(reasons) if name else f"no implementation is available here ({'; '.join(reasons)})"
    raise InputError(message, where="--impl", hint=hint)


def new_session(
    ready: Ready,
    log: Path,
    threads: int = 1,
    *,
    variables: Mapping[str, str] | None = None,
    limits: WorkerLimits | None = None,
) -> Session:
    """A session on the processor with a log of its own; its worker starts with the first request.

    `variables`: environment variables of the worker.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    return Session(ready, "cpu", threads, log, variables, limits=limits)


@contextmanager
def open_session(
    ready: Ready,
    threads: int = 1,
    variables: Mapping[str, str] | None = None,
    limits: WorkerLimits | None = None,
) -> Iterator[Session]:
    """A session with a log that is gone with it, closed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="conform-") as folder:
        session = new_session(ready, Path(folder) / "worker.log", threads, variables=variables, limits=limits)
        try:
            yield session
            session.close()
        finally:
            session.abort()


def reader_session(
    reader: str,
    chosen: Chosen,
    request: SubjectRequest,
    where: str,
    log: Path,
    variables: Mapping[str, str] | None = None,
) -> Session:
    """A session of a reader with these options, for the subject of a request. Raises InputError if none can start.

    `variables`: environment variables of its worker."""
    folder = READERS / reader
    implementation = read_implementation(folder, chosen, request.target)
    if request.seconds is not None:
        limited = implementation.timeouts.model_copy(update={"build": request.seconds, "run": request.seconds})
        implementation = implementation.model_copy(update={"timeouts": limited})
    ready = require_ready(implementation, folder, request.pythons, where, "cannot be loaded here")
    return new_session(ready, log, variables=variables, limits=request.limits)


def described_as(kind: type[AnyDescription], found: Mapping[str, Any], what: str, session: Session) -> AnyDescription:
    """A reader's description of `what`, validated as strictly as YAML. Raises RuntimeError where it is none."""
    try:
        return kind.model_validate_json(json.dumps(found))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        reader = session.ready.folder.name
        raise RuntimeError(f"readers/{reader} describes {what} in another way: {problem}") from None

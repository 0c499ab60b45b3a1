"""Writes a file with what is mechanical mended, and, of integers, with as few operators left in float as keep it within
a limit."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from encoder_conformance.commands.validate.evidence import ExaminedFile, ValidationRequest
from encoder_conformance.commands.validate.examining import examined, reachable
from encoder_conformance.commands.validate.own_data import own_data
from encoder_conformance.commands.validate.rounding.measured import MadeFrom, RoundingComparison, measure_rounding
from encoder_conformance.commands.validate.rounding.ranking import Variants
from encoder_conformance.commands.validate.rounding.results import far, shown
from encoder_conformance.commands.validate.runtimes import FOLDER, RuntimeRun, close_all, runtime_runs
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.progress import Progress
from encoder_conformance.subjects.opening import open_source, source_session
from encoder_conformance.worker.failure import Failure

_WHERE = "--fix"


def fixed(request: ValidationRequest, out: Path, progress: Progress, folder: Path = FOLDER) -> tuple[str, ...]:
    """Writes `request.fix`, the file with what is mechanical mended, and with what of its integers is left in float
    that keep it from its limit. What that was; () where nothing was written."""
    new = request.fix
    assert new is not None
    request = replace(request, model=reachable(request.model, out))
    logs = out / "logs"
    runs = runtime_runs(request.model, request.pythons, request.runtimes, folder)
    try:
        file = examined(request, runs, logs, folder)
        done = file.description.fixed
        if file.integers and request.limit is not None:
            mended = replace(file, request=replace(file.request, model=new)) if done else file
            left = _write_within_limit(mended, [run for run in runs if run.session is not None], new, logs, progress)
            done = (*done, f"left in float are {', '.join(left)}") if left else done
        return done
    finally:
        close_all(runs)


def _write_within_limit(
    file: ExaminedFile, runs: Sequence[RuntimeRun], new: Path, logs: Path, progress: Progress
) -> tuple[str, ...]:
    """Writes `new`, and says which operators are left in float; () where the file is within the limit as it is.

    Raises InputError where nothing says what it was made from, or none of its operators brings it within the limit.
    """
    request, limit = file.request, file.request.limit
    assert limit is not None
    with contextlib.ExitStack() as entered:
        made_from = _made_from(file, logs, entered)
        compared = RoundingComparison(file, runs, made_from, progress)
        whole = file.description.whole
        own = own_data(request.data, whole, compared.session) if request.data else []
        found = measure_rounding(compared, own, logs, limit)
        if isinstance(found, str) or found.ranking is None:
            why = found if isinstance(found, str) else "none of its operators is known to compute with integers"
            raise InputError(why, where=_WHERE, hint="nothing was left in float")
        ranking = found.ranking
        if far([ranking.as_it_is]) <= limit:
            return ()
        left = ranking.left[-1] if ranking.left else None
        if left is None or not far([left.error]) <= limit:
            best = min((far([each.error]) for each in ranking.left), default=far([ranking.as_it_is]))
            hint = f"of its {ranking.found} operators of integers in float, it comes to {shown(best)} at best"
            raise InputError(f"nothing brings it within the limit of {limit:g}", where=_WHERE, hint=hint)
        chosen = ranking.order[: left.count]
        variants = Variants(compared.session, request.model, compared.source_tensors)
        if isinstance(failed := variants.write(chosen, new), Failure):
            raise InputError(failed.message.splitlines()[0], where=f"{_WHERE} {new}")
        return tuple(each.node for each in ranking.places[: left.count])


def _made_from(file: ExaminedFile, logs: Path, entered: contextlib.ExitStack) -> MadeFrom | None:
    """Its source, in a session of its own, with the tensors that it has; None: none was named."""
    if file.request.against is None:
        return None
    source = replace(file.request.against, pythons=file.request.pythons)
    session = source_session(source, logs / "fix-source.log")
    if session is None:
        raise InputError("a checkpoint does not run", where=_WHERE, hint="--against a module, or the file in float")
    entered.callback(session.close)
    if source.target.endswith(".onnx"):
        return MadeFrom(source, session)
    with contextlib.suppress(InputError):  # of a module whose layer nobody can read no tensors are known
        origin = open_source(source, file.parameters, session, file.description.layer)
        return MadeFrom(replace(source, at=origin.at), session, origin.parameters)
    return MadeFrom(source, source_session(source, logs / "fix-source.log"))

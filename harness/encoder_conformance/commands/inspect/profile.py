"""A profile: the seconds that an implementation takes for each stage, the most expensive first."""

import os
from dataclasses import asdict, dataclass

import click
import numpy as np

from encoder_conformance.commands.inspect import looking
from encoder_conformance.commands.inspect.layer_selection import describe_case, refuse_too_large
from encoder_conformance.commands.options import print_json
from encoder_conformance.platform.errors import InputError, Unanswered
from encoder_conformance.protocol.frames import WHOLE, Tensors
from encoder_conformance.reports.run.terminal import show_line
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.subjects.starting import find_task, open_session
from encoder_conformance.worker.failure import Failure

FEWEST = 5
"""The fewest passes for which quartiles differ from extremes; with fewer, no stage is named most expensive."""

_SPREAD = (0.25, 0.75, 0.0, 1.0)
"""The quartiles, and the quantiles that are the least and the largest."""


@dataclass(frozen=True)
class StageTime:
    """The time of one stage. `seconds` is the median over the repeats, `share` its share of the stages' total, 0 … 1.

    `lower` and `upper` are the quartiles, `least` and `most` the extremes, in seconds.
    """

    stage: str
    seconds: float
    share: float
    lower: float
    upper: float
    least: float
    most: float


@dataclass(frozen=True)
class Times:
    """`total` is the sum of the stages' medians, `whole` the median of an ordinary, uninstrumented pass, in seconds.

    `most_expensive`: the stage with the largest median, then those that are indistinguishable from it, since their
    upper quartile reaches its lower one; empty with fewer than `FEWEST` passes.
    """

    stages: list[StageTime]
    total: float
    whole: float
    most_expensive: list[str]


def times(observed: Tensors, repeats: int) -> Times:
    """The stages sorted by cost. Raises ValueError if `observed` is not seconds [repeats] by stage and `whole`."""
    for name, seconds in observed.items():
        if seconds.shape != (repeats,) or seconds.dtype != np.float64:
            raise ValueError(f"{name}: {seconds.dtype} {list(seconds.shape)} instead of float64 [{repeats}]")
        if not np.isfinite(seconds).all() or (seconds < 0).any():
            raise ValueError(f"{name}: {seconds.min():g} s is no time")
    if WHOLE not in observed or len(observed) < 2:
        raise ValueError(f"no stage was timed, or {WHOLE!r} is missing")
    medians = {name: float(np.median(seconds)) for name, seconds in observed.items()}
    whole = medians.pop(WHOLE)
    total = sum(medians.values())
    stages = [
        StageTime(name, seconds, seconds / total if total else 0.0, *map(float, np.quantile(observed[name], _SPREAD)))
        for name, seconds in sorted(medians.items(), key=lambda item: -item[1])
    ]
    first, *others = stages
    indistinguishable = [stage.stage for stage in others if stage.upper >= first.lower]
    return Times(stages, total, whole, [first.stage, *indistinguishable] if repeats >= FEWEST else [])


_EXAMPLES = """
\b
Examples:
  conform profile --impl pytorch --batch 32 --sequence 50
  conform profile --impl onnx_pytorch --threads 1 --repeats 50
  conform profile --impl jax_pure --d-model 768 --d-ff 3072 --json
"""


@click.command(epilog=_EXAMPLES)
@looking.impl_option
@looking.layer_options
@looking.batch_option
@looking.sequence_option
@looking.dtype_option
@click.option("--threads", type=click.IntRange(1), help="Threads of the framework; default: one per processor.")
@click.option("--repeats", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Passes to time.")
@looking.json_option
def profile(
    layer: looking.LayerOptions,
    impl: str | None,
    batch: int | None,
    sequence: int | None,
    dtype: DtypeName,
    threads: int | None,
    repeats: int,
    as_json: bool,
) -> None:
    """Show how long each stage takes, the most expensive first: the median over the repeats, its share, the quartiles.

    The last line names the most expensive stage, and the stages that these passes cannot tell from it.

    How a stage is timed depends on the framework, see docs/looking.md; `whole` is an ordinary pass, uninstrumented.
    """
    case = layer.case(batch, sequence)
    ready, task = find_task(impl, case, dtype, "stages")
    name, threads = ready.implementation.name, threads or os.cpu_count() or 1
    refuse_too_large([case.x_shape], case.situation.batch, dtype)
    with open_session(ready, threads) as session, looking.at_work(f"timing {name}"):
        answer = session.profile(task, repeats)
        if isinstance(answer, Failure) and answer.refused == "unsupported":
            text = f"{name} cannot tell stages apart: {answer.message}"
            raise InputError(text, where="--impl", hint="profile another implementation")
        try:
            measured = times(session.require(answer), repeats)
        except ValueError as error:
            raise Unanswered(f"{name} answered profile with something else: {error}") from None
        subject = f"{name} ({looking.versions(session.versions)}), {threads} thread{'s' * (threads > 1)}"
    if as_json:
        facts = {"implementation": name, "versions": session.versions, "dtype": dtype, "threads": threads}
        output = {**facts, "case": describe_case(case), "repeats": repeats, **asdict(measured)}
        print_json(output)
    else:
        _show(f"{describe_case(case)}, {dtype}, {subject}, median of {repeats}", measured)


def _show(title: str, measured: Times) -> None:
    screen = looking.heading(title)
    table = looking.table(["stage"], ("ms", "share", "lower quartile", "upper"))
    for stage in measured.stages:
        table.add_row(stage.stage, _ms(stage.seconds), f"{stage.share:.1%}", _ms(stage.lower), _ms(stage.upper))
    table.add_section()
    table.add_row("all stages", _ms(measured.total), "100.0%")
    table.add_row("whole", _ms(measured.whole), f"{measured.whole / measured.total:.1%}" if measured.total else "")
    screen.print(table)
    show_line(screen, _most_expensive_line(measured))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _most_expensive_line(measured: Times) -> str:
    if not measured.most_expensive:
        return f"Most expensive: of fewer than {FEWEST} passes no stage is named"
    first, indistinguishable = measured.stages[0], measured.most_expensive[1:]
    spread = f"{_ms(first.lower)} to {_ms(first.upper)} ms in half of the passes"
    text = f"Most expensive: {first.stage}, {first.share:.1%} of all stages, {spread}"
    if not indistinguishable:
        return f"{text}; no other stage's quartiles reach that"
    return f"{text}; it cannot be told from {' and '.join(indistinguishable)}, whose quartiles overlap"

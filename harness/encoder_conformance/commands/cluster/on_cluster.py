"""`conform run --scheduler`: the plan in parts, on the workers of a Dask cluster, and one report of them."""

from collections.abc import Sequence
from pathlib import Path

import click

from encoder_conformance.commands.cluster.dask_cluster import DaskCluster, connected
from encoder_conformance.commands.cluster.dispatch import Dispatcher
from encoder_conformance.commands.cluster.kept import KeptParts
from encoder_conformance.commands.cluster.worker import PlanPart, RunQuestion, cases_of
from encoder_conformance.commands.merge import exit_status, show_tallies
from encoder_conformance.commands.run.chosen import require_distinct
from encoder_conformance.commands.run_arguments import RunArguments
from encoder_conformance.engine.scheduling import BUILDS_WORTH_A_WORKER
from encoder_conformance.implementation.declared import check_declared
from encoder_conformance.implementation.manifest import Implementation, default_implementations, find_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.records import Absent, Report, Shard
from encoder_conformance.platform.errors import InputError
from encoder_conformance.reports.run.folder import NAME, begun_run
from encoder_conformance.reports.run.terminal import console, diagnosis_text
from encoder_conformance.subjects.plan import asked_of, plan
from encoder_conformance.worker.limits import default_memory

_PARTS_A_WORKER = 2
"""Parts for each worker that can take them: with one each, the slowest worker would decide when the run ends."""


def run_on_cluster(arguments: RunArguments) -> int:
    """Judge on a cluster. Returns the exit status. --jobs: workers side by side in a part; default: the threads that
    Dask counts for that worker."""
    address, named, jobs = arguments.scheduler or "", arguments.impls, arguments.jobs
    chosen, question = _chosen(named), _question(arguments)
    cases = cases_of(question)
    plans = {
        text: plan(implementation, asked_of(implementation, cases), question.dtypes)
        for text, implementation in chosen.items()
    }
    with connected(address, list(chosen), question.device, _say) as cluster:
        able = _able(cluster, chosen, named)
        parts = [
            part
            for text, tasks in plans.items()
            if able[text]
            for part in _parts(text, tasks, able[text], question, jobs or min(cluster.threads[w] for w in able[text]))
        ]
        absent = [_absent(cluster, text, chosen[text]) for text in chosen if not able[text]]
        planned = [(chosen[text], plans[text]) for text in chosen if able[text]]
        with begun_run(arguments.out) as folder:
            kept = KeptParts(folder, planned, absent, question)
            with kept.closed_if_interrupted():
                said = (lambda _: None) if arguments.quiet else _say
                dispatched = Dispatcher(cluster, parts, said, kept.keep).run()
            if dispatched.refused and not dispatched.results:
                reasons = "; ".join(dict.fromkeys(dispatched.given_up.values()))
                raise InputError(f"no part was judged: {reasons}", where=f"--scheduler {address}")
            _show(kept.report, [part.name for part in dispatched.given_up], folder)
            return exit_status(kept.report)


def _say(line: str) -> None:
    click.echo(line, err=True)


def _question(arguments: RunArguments) -> RunQuestion:
    memory = arguments.limits.memory
    return RunQuestion(
        globs=arguments.globs,
        level=arguments.chosen_level,
        dtypes=arguments.dtypes,
        seed=arguments.seed,
        device=arguments.device,
        threads=arguments.threads,
        memory=None if memory == default_memory() else memory,  # else each machine's own
        isolate=arguments.limits.isolate,
    )


def _show(report: Report, given_up: Sequence[str], folder: Path) -> None:
    show_tallies(report)
    for diagnosis in report.diagnoses:
        console().print(diagnosis_text(diagnosis), style="bold", soft_wrap=True)
    if not report.complete:
        console().print(f"INCOMPLETE: not judged: {', '.join(given_up)}", style="bold red", soft_wrap=True)
    click.echo(f"Report: {folder / NAME}")


def _chosen(named: Sequence[str]) -> dict[str, Implementation]:
    """Implementations by what names them on every worker: a folder by its whole path."""
    if not named:
        return {implementation.name: implementation for _, implementation in default_implementations()}
    chosen = {}
    for text in named:
        folder, implementation = find_implementation(text)
        check_declared(implementation, folder)
        name, colon, choices = text.partition(":")
        chosen[f"{folder.resolve()}{colon}{choices}" if "/" in name else text] = implementation
    require_distinct([implementation.name for implementation in chosen.values()])
    return chosen


def _able(cluster: DaskCluster, chosen: dict[str, Implementation], named: Sequence[str]) -> dict[str, list[str]]:
    """Implementation → the workers that can run it. Raises InputError if one that was named has none."""
    there = cluster.workers()
    if not there:
        raise InputError("has no workers", where="--scheduler", hint="dask worker ADDRESS starts one")
    able = {text: [worker for worker, can_run in there.items() if text in can_run] for text in chosen}
    for worker, can_run in there.items():
        click.echo(f"{worker} can run {', '.join(sorted(can_run)) or 'nothing of this'}", err=True)
    for text, workers in able.items():
        if not workers and named:
            absent = _absent(cluster, text, chosen[text])
            raise InputError(f"no worker can run it: {absent.reason}", where=f"--impl {text}", hint=absent.hint)
    if not any(able.values()):
        raise InputError("no worker can run any implementation", where="--scheduler", hint="install a framework there")
    return able


def _absent(cluster: DaskCluster, text: str, implementation: Implementation) -> Absent:
    reasons = dict.fromkeys(offer.absent[text] for offer in cluster.offers.values() if text in offer.absent)
    hint = f"on a worker: pip install '{implementation.install}'"
    return Absent(name=implementation.name, reason="; ".join(reasons) or "no worker offers it", hint=hint)


def _parts(text: str, tasks: list[Task], workers: list[str], question: RunQuestion, jobs: int) -> list[PlanPart]:
    layers = len({task.build_key for task in tasks})
    count = max(1, min(_PARTS_A_WORKER * len(workers), layers // BUILDS_WORTH_A_WORKER))
    return [
        PlanPart(implementation=text, shard=Shard(number=number, of=count), jobs=jobs, question=question)
        for number in range(1, count + 1)
    ]

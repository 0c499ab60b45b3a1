"""Judges one variant of a road, through what `conform run` is made of."""

import re
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path

from harness.errors import InputError
from harness.golden.expected import Expected
from harness.golden.store import read_golden, read_manifest
from harness.impl.interpreter import Missing, resolve
from harness.impl.manifest import Implementation, find_implementation, known_folders
from harness.impl.manifest import read_manifest as read_implementations
from harness.judge.outcome import EXPECTED, Outcome
from harness.lines import Share
from harness.plan import Task, plan, select
from harness.report.model import Record
from harness.runner import Run
from harness.spec.case import Case
from harness.spec.constants import constants
from harness.spec.load import load
from impls.onnx_model.table.rows import Reason, Row

LEVELS_OF = {"onnxruntime": ("all", "extended", "basic", "disable"), "reference": ("all",), "openvino": ("all",)}
"""Runtime → the levels that tell it apart: it is ONNX Runtime's to have any."""


def variants() -> Iterator[str]:
    """Every road at every opset, in every runtime and at every level, as `conform run --impl` takes it."""
    for name, folder in known_folders().items():
        choices = {choice.name: choice.values for choice in read_implementations(folder).choices}
        if "opset" not in choices or "level" not in choices:
            continue
        running = ("runtime", "level")
        others = [[(key, value) for value in values] for key, values in choices.items() if key not in running]
        for opset in product(*others):
            for runtime, levels in LEVELS_OF.items():
                for level in levels:
                    told = [*opset, ("runtime", runtime), ("level", level)]
                    yield f"{name}:{','.join(f'{key}={value}' for key, value in told)}"


@cache
def cases() -> list[Case]:
    return select(load().cases, (), "required")


@cache
def expected() -> dict[str, Expected]:
    return {case.id: read_golden(case, read_manifest(), constants()) for case in cases()}


def judged(variant: str) -> Row:
    folder, implementation = find_implementation(variant)
    found = resolve(implementation, folder, {})
    if isinstance(found, Missing):
        raise InputError(f"{variant}: {found.reason}", hint=found.hint)
    tasks = [task for task in plan(implementation, cases(), ("float32",)) if asked(task)]
    with tempfile.TemporaryDirectory() as logs:
        share, goldens = Share(found, tasks), expected()
        told = {"jobs": 1, "threads": 1, "device": "cpu", "logs": Path(logs)}
        run = Run([share], lambda case: goldens[case.id], constants(), **told)
        records = list(run)
        session = run.session(implementation.name)
        versions = session.versions
    judged = [record for record in records if record.outcome != Outcome.UNSUPPORTED]
    passed = [record for record in judged if record.outcome in EXPECTED]
    return Row(
        variant=variant,
        road=implementation.folder_name,
        choices=dict(implementation.chosen),
        passed=len(passed),
        applicable=len(judged),
        rms=max((round(record.rms, 2) for record in passed if record.rms is not None), default=None),
        unsupported=reasons((r for r in records if r.outcome == Outcome.UNSUPPORTED), implementation),
        failed=reasons((record for record in judged if record.outcome not in EXPECTED), implementation),
        versions=dict(versions),
    )


def asked(task: Task) -> bool:
    """What no road does, training say, is no news in any row."""
    can = task.implementation.capabilities
    return task.check in (*can.checks, "invariant") and task.case.situation.mode in can.modes


def reasons(records: Iterable[Record], implementation: Implementation) -> list[Reason]:
    links = {entry.reason: entry.link for entry in implementation.unsupported}
    by_text: dict[str, list[str]] = {}
    for record in records:
        text = record.message if record.message in links else f"{record.outcome.value}: {unnumbered(record.message)}"
        by_text.setdefault(text, []).append(record.case)
    return [Reason(text, links.get(text, ""), len(found), some(found)) for text, found in by_text.items()]


def unnumbered(message: str) -> str:
    """One message for failures that differ in their numbers."""
    return re.sub(r"\d[\d.e+-]*", "…", message)[:300]


def some(found: list[str]) -> str:
    """Which layers, and which situations of theirs."""
    parted = [case.split("/") for case in found]
    layers, situations = (list(dict.fromkeys(part)) for part in zip(*parted, strict=True))
    return f"{_few(layers)} / {_few(situations)}"


def _few(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"

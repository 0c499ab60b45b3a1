"""An adapter in this process, planted and put through the cases of level core until one of them sees it."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from encoder_conformance import Masks, RunRequest
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.catalogue import catalogue
from encoder_conformance.oracle.deviant import changes
from encoder_conformance.oracle.expected import Expected
from encoder_conformance.oracle.golden.narrow import in_format
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.platform.paths import IMPLS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.outcome import Outcome

CHECKS = ("output", "stages")
DTYPES = ("float32", "float64")
"""What fills a mask with -1e30 cannot be planted in float16; every deviation shows in these."""


class Core:
    """The cases of level core that ask for the output or the stages, in the order in which they show most.

    But for layers that there are no plants for: those whose heads share their projections, or of other norms.
    """

    def __init__(self, adapter: Any, name: str, norms: tuple[str, ...]) -> None:
        self.adapter, specification, goldens = adapter, load(), read_golden_manifest()
        implementation = read_implementation(IMPLS / name)
        self.asked: list[tuple[Task, Expected]] = []
        cases = [specification.cases[name] for name in specification.core]
        planted = [
            case for case in cases if case.layer.norm.kind in norms and case.layer.attention.projections == "full"
        ]
        for case in planted:
            golden = read_golden(case, goldens, constants()) if set(CHECKS) & set(case.situation.checks) else None
            for dtype, check in product(DTYPES, CHECKS):
                if golden is not None and dtype in case.situation.dtypes and check in case.situation.checks:
                    task = Task(implementation, case, dtype, check, None)
                    self.asked.append((task, in_format(case, golden, task.format)))

    def can_have(self, name: str) -> bool:
        """Whether any of these cases changes with the deviation: some say nothing of the layers that plants know."""
        return any(changes(task.case, catalogue()[name]) for task, _ in self.asked)

    def failures(self, ids: list[str]) -> Iterator[str]:
        """What the implementation fails with these planted, one after the other."""
        self.adapter.plant(ids)
        built: object = None
        for task, expected in self.asked:
            if built != (built := task.build_key):
                drawn = {name: value.astype(task.format.numpy) for name, value in task.case.parameters().items()}
                self.adapter.build(task.case.layer.model_dump(mode="json"), drawn, task.dtype)
            with np.errstate(all="ignore"):
                verdict = judge(task.check, task.tensors, self._answer(task), expected, task.format)
            if verdict.outcome is not Outcome.PASS:
                yield f"{task.case.id} {task.dtype} {task.check}: {verdict.message}"

    def _answer(self, task: Task) -> dict[str, np.ndarray[Any, Any]]:
        """Masks in one form alone: how a situation gives them is read before a plant is reached."""
        case, dtype = task.case, task.format.numpy
        bias = case.attention_bias()
        masks = Masks(case.padding_mask(), case.attention_mask(), None if bias is None else bias.astype(dtype))
        x = case.x().astype(dtype) if case.layer.embedding is None else case.ids()
        run = RunRequest(mode=case.situation.mode)
        answer: dict[str, np.ndarray[Any, Any]] = self.adapter.run_check(task.check, x, masks, run)
        return answer

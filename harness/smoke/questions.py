"""What a smoke test asks: the smallest cases that tell most, of those that the implementation says it can answer."""

from collections.abc import Iterator, Sequence

from harness.impl.manifest import Implementation
from harness.plan import Task, plan
from harness.spec.case import Case
from harness.spec.dtypes import DtypeName
from harness.spec.load import load
from harness.spec.situation import Check

LAYERS = ("pre-gelu", "post-relu", "post-gelu", "pre-gelu-tanh", "pre-rms-silu", "post-gelu-bert")
"""Small, and unlike each other; the first of each placement that an implementation can do is asked."""
NUMBERS = ("no-mask", "padding-right", "causal", "low-variance")
"""A mask of either kind, and an input that shows the norm's epsilon."""
WEIGHTS = ("weights-returned",)
FORMS = (
    "no-mask-16-bit", "sequence-first", "unbatched", "checkpointed", "invariant-train",
    "padding-ignore", "padding-integer", "padding-float", "padding-additive", "padding-additive-float32",
)  # fmt: skip
"""One for each format, layout, kind of mask and mode that a manifest may declare beside the ordinary ones."""
REFUSALS = ("refuse-num-heads", "refuse-activation", "refuse-feature-size", "refuse-mask-shape", "refuse-input-dtype")
DTYPES: tuple[DtypeName, ...] = ("float32", "float64", "bfloat16", "float16")


class Questions:
    """Each list is empty where the manifest opts out of all of it."""

    def __init__(self, implementation: Implementation) -> None:
        self._of, self._specification = implementation, load()
        self._cases = self._specification.cases
        self.dtype = next(dtype for dtype in DTYPES if dtype in implementation.capabilities.dtypes)
        self.layers = tuple(self._layers())

    def check(self, check: Check) -> list[Task]:
        """A check of the cases of `NUMBERS`, or of the one that asks for weights."""
        return self._tasks(WEIGHTS if check == "weights" else NUMBERS, (self.dtype,), check)

    @property
    def forms(self) -> list[Task]:
        """Of one layer: every other format, layout, kind of mask and mode."""
        dtypes = self._of.capabilities.dtypes
        others = tuple(dtype for dtype in dtypes if dtype != self.dtype)
        # No dtype at all would mean each that a case is asked in.
        tasks = self._tasks(NUMBERS[:1], others, "output", self.layers[:1]) if others else []
        for situation in FORMS:
            of_form = self._specification.situations[situation]
            asked = others if self.dtype not in of_form.dtypes else (self.dtype,)
            check: Check = "output" if "output" in of_form.checks else of_form.checks[0]
            tasks += self._tasks((situation,), asked, check, self.layers[:1]) if asked else []
        return tasks

    @property
    def refusals(self) -> list[Task]:
        return self._tasks(REFUSALS, (self.dtype,), "refusal", self.layers[:1])

    def _layers(self) -> Iterator[str]:
        """One for each placement of the norms, if there is one that can be asked."""
        placements = set()
        for layer in LAYERS:
            case = self._cases[f"{layer}/{NUMBERS[0]}"]
            if case.layer.norm.placement in placements:
                continue
            if self._of.opt_out(case, self.dtype, "output") is None:
                placements.add(case.layer.norm.placement)
                yield layer

    def _tasks(
        self,
        situations: Sequence[str],
        dtypes: tuple[DtypeName, ...],
        check: Check,
        layers: Sequence[str] | None = None,
    ) -> list[Task]:
        ids = [
            f"{layer}/{situation}" for layer in (self.layers if layers is None else layers) for situation in situations
        ]
        cases: list[Case] = [self._cases[name] for name in ids if name in self._cases]
        return [task for task in plan(self._of, cases, dtypes) if task.check == check and task.opt_out is None]

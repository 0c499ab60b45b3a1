"""What a smoke test asks: the smallest cases that tell most, of those that the implementation says it can answer."""

from collections.abc import Iterator, Sequence

from encoder_conformance.impl.manifest import Implementation
from encoder_conformance.plan import plan
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Placement
from encoder_conformance.spec.load import Specification
from encoder_conformance.spec.parameters import parameter_count
from encoder_conformance.spec.situation import Check
from encoder_conformance.task import Task

LAYERS = ("pre-gelu", "post-relu", "post-gelu", "pre-gelu-tanh", "pre-rms-silu", "post-gelu-bert")
"""Small, and unlike each other; the first of each placement that an implementation can do is asked. Of one that can do
none of these, whose architecture is fixed, it is the smallest other."""
NUMBERS = (
    "no-mask", "padding-right", "causal", "low-variance", "tokens", "tokens-padding", "tokens-causal",
    "memory-shorter", "memory-padding",
)  # fmt: skip
"""A mask of either kind, and an input that shows the norm's epsilon; token ids, for what takes them; and of attention
alone a memory."""
PLAIN = ("no-mask", "memory-shorter")
"""With nothing masked."""
WEIGHTS = ("weights-returned", "memory-shorter")
FORMS = (
    "no-mask-16-bit", "sequence-first", "unbatched", "checkpointed", "invariant-train",
    "padding-ignore", "padding-integer", "padding-float", "padding-additive", "padding-additive-float32",
    "memory-shorter-16-bit", "memory-mask-per-item-additive",
)  # fmt: skip
"""One for each format, layout, kind of mask and mode that a manifest may declare beside the ordinary ones."""
REFUSALS = ("refuse-num-heads", "refuse-activation", "refuse-feature-size", "refuse-mask-shape", "refuse-input-dtype")
DTYPES: tuple[DtypeName, ...] = ("float32", "float64", "bfloat16", "float16")


class Questions:
    """Each list is empty where the manifest opts out of all of it. `layer`: ask of this one alone, and no other."""

    def __init__(self, implementation: Implementation, specification: Specification, layer: str | None) -> None:
        self._of, self._specification = implementation, specification
        self._cases = self._specification.cases
        self.dtype = next(dtype for dtype in DTYPES if dtype in implementation.capabilities.dtypes)
        self.layers = (layer,) if layer is not None else tuple(self._layers())

    def check(self, check: Check) -> list[Task]:
        """A check of the cases of `NUMBERS`, or of the one that asks for weights."""
        return self._tasks(WEIGHTS if check == "weights" else NUMBERS, (self.dtype,), check)

    @property
    def forms(self) -> list[Task]:
        """Of one layer: every other format, layout, kind of mask and mode."""
        dtypes = self._of.capabilities.dtypes
        others = tuple(dtype for dtype in dtypes if dtype != self.dtype)
        # No dtype at all would mean each that a case is asked in.
        tasks = self._tasks(PLAIN, others, "output", self.layers[:1]) if others else []
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
        placements = set[Placement]()
        by_size = sorted(self._specification.layers.values(), key=parameter_count)
        for layer in dict.fromkeys((*LAYERS, *(layer.layer for layer in by_size))):
            case = next((self._cases[name] for name in self._ids(layer, NUMBERS)), None)
            if case is None or case.layer.norm.placement in placements:
                continue
            if layer not in LAYERS and placements:
                return
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
        asked = self.layers if layers is None else layers
        cases: list[Case] = [self._cases[name] for layer in asked for name in self._ids(layer, situations)]
        return [task for task in plan(self._of, cases, dtypes) if task.check == check and task.opt_out is None]

    def _ids(self, layer: str, situations: Sequence[str]) -> list[str]:
        """Those of the layer's cases that there are."""
        return [name for situation in situations if (name := f"{layer}/{situation}") in self._cases]

"""The tasks of a smoke test: small, informative cases that the implementation does not opt out of."""

from collections.abc import Iterator, Sequence

from encoder_conformance.implementation.manifest import Implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer, Placement
from encoder_conformance.spec.load import Specification
from encoder_conformance.spec.parameters import parameter_count
from encoder_conformance.spec.situation import Check
from encoder_conformance.subjects.plan import plan

LAYERS = ("pre-gelu", "post-relu", "post-gelu", "pre-gelu-tanh", "pre-rms-silu", "post-gelu-bert")
"""Small and different layers. The first of each norm placement that the implementation supports is used; if it supports
none, because its architecture is fixed, the smallest other layer, and attention alone only where it has no layer."""
NUMBERS = (
    "no-mask", "padding-right", "causal", "low-variance", "tokens", "tokens-padding", "tokens-causal",
    "memory-shorter", "memory-padding",
)  # fmt: skip
"""Both kinds of masks, and an input that shows the norm's epsilon; token ids for layers with an embedding; a memory for
layers that are attention alone."""
GRADIENTS = (*NUMBERS, "blind-queries")
"""With queries that have no key: what they give is compared nowhere, and a NaN of theirs reaches every gradient."""
PLAIN = ("no-mask", "memory-shorter", "tokens")
"""Situations without masks."""
WEIGHTS = ("weights-returned", "memory-shorter")
FORMS = (
    "no-mask-16-bit", "sequence-first", "unbatched", "checkpointed", "invariant-train",
    "padding-ignore", "padding-integer", "padding-float", "padding-additive", "padding-additive-float32",
    "memory-shorter-16-bit", "memory-mask-per-item-additive", "tokens-padding-ids",
)  # fmt: skip
"""One situation for each format, layout, mask kind and mode that a manifest may declare beside the ordinary ones."""
_SITUATIONS: dict[Check, tuple[str, ...]] = {"weights": WEIGHTS, "gradients": GRADIENTS}
REFUSALS = ("refuse-num-heads", "refuse-activation", "refuse-feature-size", "refuse-mask-shape", "refuse-input-dtype")
DTYPES: tuple[DtypeName, ...] = ("float32", "float64", "bfloat16", "float16")


class SmokeTasks:
    """The tasks by check. A list is empty if the manifest opts out of all of it. `layer`: use this layer only."""

    def __init__(self, implementation: Implementation, specification: Specification, layer: str | None) -> None:
        self._implementation, self._specification = implementation, specification
        self._cases = self._specification.cases
        self.dtype = next(dtype for dtype in DTYPES if dtype in implementation.capabilities.dtypes)
        self.layers = (layer,) if layer is not None else tuple(self._choose_layers())

    def check(self, check: Check) -> list[Task]:
        """The tasks of a check, in the situations that are asked for it."""
        return self._tasks(_SITUATIONS.get(check, NUMBERS), (self.dtype,), check, self.layers)

    def why_none(self, check: str) -> str:
        """Why a check has no tasks."""
        if check not in self._implementation.capabilities.checks:
            return "its manifest does not declare it"
        asked = self.layers[:1] if check == "refusal" else self.layers
        return f"{' and '.join(asked)} has no case of it, or its manifest opts out of each"

    @property
    def forms(self) -> list[Task]:
        """Tasks of one layer in every other format, layout, mask kind and mode."""
        dtypes = self._implementation.capabilities.dtypes
        other_dtypes = tuple(dtype for dtype in dtypes if dtype != self.dtype)
        # An empty tuple of dtypes would select every dtype of a case.
        tasks = self._tasks(PLAIN, other_dtypes, "output", self.layers[:1]) if other_dtypes else []
        for situation in FORMS:
            definition = self._specification.situations[situation]
            dtypes_to_run = other_dtypes if self.dtype not in definition.dtypes else (self.dtype,)
            check: Check = "output" if "output" in definition.checks else definition.checks[0]
            tasks += self._tasks((situation,), dtypes_to_run, check, self.layers[:1]) if dtypes_to_run else []
        return tasks

    @property
    def refusals(self) -> list[Task]:
        return self._tasks(REFUSALS, (self.dtype,), "refusal", self.layers[:1])

    def _choose_layers(self) -> Iterator[str]:
        """One layer for each norm placement, if the implementation supports one."""
        placements = set[Placement]()
        by_size = sorted(self._specification.layers.values(), key=self._later)
        for layer in dict.fromkeys((*LAYERS, *(layer.layer for layer in by_size))):
            case = next((self._cases[name] for name in self._case_ids(layer, NUMBERS)), None)
            if case is None or case.layer.norm.placement in placements:
                continue
            if layer not in LAYERS and placements:
                return
            if self._implementation.opt_out(case, self.dtype, "output") is None:
                placements.add(case.layer.norm.placement)
                yield layer

    def _later(self, layer: Layer) -> tuple[bool, bool, int]:
        """Orders layers to try: attention alone last, before it those with one case of numbers, then larger ones."""
        return layer.takes_memory, len(self._case_ids(layer.layer, NUMBERS)) < 2, parameter_count(layer)

    def _tasks(
        self, situations: Sequence[str], dtypes: tuple[DtypeName, ...], check: Check, layers: Sequence[str]
    ) -> list[Task]:
        cases = [self._cases[name] for layer in layers for name in self._case_ids(layer, situations)]
        planned = plan(self._implementation, cases, dtypes)
        return [task for task in planned if task.check == check and task.opt_out is None]

    def _case_ids(self, layer: str, situations: Sequence[str]) -> list[str]:
        """The ids of the layer's cases in these situations that exist."""
        return [name for situation in situations if (name := f"{layer}/{situation}") in self._cases]

"""A step of a layer that nobody knows, as the identifier of diagnosis has it: what it is by its operands and its
result, which equation the other computes in its place, and the catalogue's name for that."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from encoder_conformance.blackbox.step_apart import hidden_in
from encoder_conformance.diagnosis.identify.edits import parsed
from encoder_conformance.diagnosis.identify.equation_search import Effort, nearest_equations
from encoder_conformance.diagnosis.identify.fitted_numbers import has_constant
from encoder_conformance.diagnosis.identify.samples import EXACT, StepSample
from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.oracle.equation import Operands
from encoder_conformance.oracle.forms import FORMS
from encoder_conformance.oracle.functions_of_one import FUNCTIONS_OF_ONE
from encoder_conformance.oracle.play import softmax_choices
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.equation import SIZES, Equation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load, load_deviations

_EVALUATIONS = 2000
"""Of equations: some four seconds, of as many numbers as are looked at."""
_MOST = 1 << 11
"""Numbers that are looked at: those of the items that are furthest apart."""
_EXACT = 1e-9
"""Of a value's root of the mean square: two ways to write one equation differ by less in float64."""
_LOWEST = -1e30
"""A score whose weight is 0 beside any other."""
_EPSILONS = (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 0.0)
_NORMS = {
    "layer_norm": "({x} - mean({x}, -1)) / sqrt(var({x}, -1) + {epsilon}) * norm1.gain + norm1.shift",
    "rms_norm": "{x} / sqrt(mean({x} ** 2, -1) + {epsilon}) * norm1.gain",
}
_READS = {"ffn_activation": "ffn_hidden", "attention_weights": "attention_scores", "norm1": "x"}
"""Stage → what it reads, of the stages that stand for every step of their form."""


@dataclass(frozen=True)
class StepAnswer:
    """Which equation is computed, `found`, where the other computes `specified`; `reads` is the name of its operand in
    both. `named`: what the catalogue says of it, or ""."""

    found: str
    specified: str
    reads: str
    named: str

    def __str__(self) -> str:
        found, specified = (self._shown(text) for text in (self.found, self.specified))
        name = f" ({self.named})" if self.named else ""
        return f"{found} of a, what it takes, and not {specified}{name}"

    def _shown(self, text: str) -> str:
        """An equation in the names of a step by itself, with the epsilon of the layer that stands in, and no mask."""
        text = re.sub(r"^where\(mask, (.*), 0\)$", r"\1", text.replace(", mask)", ")").replace(", mask, ", ", "))
        names = {self.reads: "a", "norm1.gain": "gain", "norm1.shift": "shift"}
        names["epsilon"] = f"{_stand_in().norm.epsilon:g}"
        return re.sub(r"[a-z_]\w*(\.\w+)?", lambda name: names.get(name[0], name[0]), text)


@dataclass(frozen=True)
class LoneStep:
    """What the other gives, `due` [*shape], of `read` [*shape]; `beside`: the parameters that it takes, [D] each."""

    read: Array
    due: Array
    beside: tuple[Array, ...] = ()

    def answer(self, found: Array, limit: float) -> StepAnswer | None:
        """What `found` [*shape] is of the same; `limit`: the rms that noise may leave. None where that is not known,
        or where the step is of no known form."""
        if not np.isfinite(found).all() or hidden_in(self.due).any():
            return None
        items = self._apart(found)
        few, seen = LoneStep(self.read[items], self.due[items], self.beside), found[items]
        if rms(seen - few.due) <= limit:
            return None
        for stage, specified, operands in few._forms():
            sample = few._sample(stage, specified, operands, seen, limit)
            near = nearest_equations(stage, [sample], Effort(_EVALUATIONS))
            meant = (each.text for each in near if _is_of_the_step(each.text, stage))
            text = next((text for text in meant if _fits(sample, text)), None)
            if text is not None and text != specified.form and self._gives(stage, specified, text, found, limit):
                return StepAnswer(text, specified.form, _READS[stage], _named(stage, sample))
        return None

    def _sample(self, stage: str, specified: Equation, operands: Operands, found: Array, limit: float) -> StepSample:
        every, noise = np.arange(found.size), np.full(found.size, limit)
        shown = found.astype(np.float64).ravel()
        return StepSample(stage, "", operands, specified, self.due.shape, every, shown, noise, 0.0)

    def _gives(self, stage: str, specified: Equation, text: str, found: Array, limit: float) -> bool:
        """Whether an equation that was found in some items gives `found` [*shape] in all."""
        return any(
            _fits(self._sample(stage, specified, operands, found, limit), text)
            for of, form, operands in self._forms()
            if (of, form.form) == (stage, specified.form)
        )

    def _apart(self, found: Array) -> Array:
        """The numbers [N] of the items in which the two are furthest apart, in order: as many as are looked at."""
        count = max(1, _MOST * len(self.due) // self.due.size)
        far = np.abs(found - self.due).reshape(len(found), -1).max(-1)
        return np.sort(np.argsort(-far, kind="stable")[:count])

    def _forms(self) -> Iterator[tuple[str, Equation, Operands]]:
        """The forms that give what is due: a stage, its equation, and the operands."""
        x = self.read.astype(np.float64)
        if not self.beside:
            for form in FUNCTIONS_OF_ONE:
                if not has_constant(parsed(form.format("ffn_hidden"))):
                    yield from self._if_due("ffn_activation", form.format("ffn_hidden"), {"ffn_hidden": x})
        if x.ndim == 4 and not self.beside:
            # What hides is a score like another here: the step before made it.
            values = {"attention_scores": np.maximum(x, _LOWEST), "mask": np.ones((1, 1, 1, 1), np.bool_)}
            yield from self._if_due("attention_weights", "softmax(attention_scores, mask)", values)
        gain = dict(zip(("norm1.gain", "norm1.shift"), self.beside, strict=False))
        if "norm1.gain" in gain:
            for form in _NORMS.values():
                for epsilon in _EPSILONS:
                    yield from self._if_due("norm1", form.format(x="x", epsilon=f"{epsilon:g}"), {"x": x, **gain})

    def _if_due(self, stage: str, text: str, values: Mapping[str, Array]) -> Iterator[tuple[str, Equation, Operands]]:
        layer, shape = _stand_in(), self.due.shape
        of_its_sizes = {"x": np.zeros((shape[0], shape[-2] if len(shape) > 1 else 1, 1))}
        operands = Operands(layer, {**of_its_sizes, **values}, softmax_choices(layer))
        every, noise = np.arange(self.due.size), np.ones(self.due.size)
        whole = StepSample(stage, "", operands, Equation(text), shape, every, self.due.ravel(), noise, 0.0)
        computed = whole.whole(parsed(text))
        if computed is not None and rms(computed - self.due) <= _EXACT * rms(self.due):
            yield stage, Equation(text), operands


def _is_of_the_step(text: str, stage: str) -> bool:
    """Whether it names no size, which would be one of the layer that stands in, and no input but the step's own."""
    names = Equation(text).names
    return names.isdisjoint({*SIZES} - {"pi", "epsilon"}) and ("x" not in names or _READS[stage] == "x")


def _fits(sample: StepSample, text: str) -> bool:
    """Whether it is off by noise alone: `sigma` is the most that noise may leave, as rms."""
    errors = sample.errors(parsed(text))
    return errors is not None and rms(errors) <= 1.0


def activations_of(read: Array, found: Array, limit: float) -> list[str]:
    """The names of the activations that give `found` of `read`, both [*shape], within rms `limit`."""
    wide = read.astype(np.float64)
    values = {name: variant(EXACT, wide)[0] for name, variant in FORMS["activation"].variants.items()}
    return [name for name, value in values.items() if rms(value - found) <= limit]


def _named(stage: str, sample: StepSample) -> str:
    """What the catalogue says of the variant of the form that gives what was observed."""
    read, right = sample.operands.values[_READS[stage]], sample.whole(sample.specified.tree)
    if stage != "ffn_activation" or right is None:
        return ""
    due = activations_of(read, right, _EXACT * rms(right))
    found = activations_of(read, sample.observed_whole(), float(sample.sigma[0]))
    for each in load_deviations().values():
        replaced = each.patch.replaces.get("activation", due)
        if [*each.patch.steps] == ["activation"] and each.patch.steps["activation"] in found and {*replaced} & {*due}:
            return each.sentence
    return ""


@lru_cache(maxsize=1)
def _stand_in() -> Layer:
    """A layer for what an equation may name of one: none of its sizes is meant."""
    return load().layers["post-gelu"]

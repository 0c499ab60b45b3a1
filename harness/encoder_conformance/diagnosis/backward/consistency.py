"""Holds the gradients of a wrong forward pass to what explains it: they follow from it, where equations say how."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from encoder_conformance.diagnosis.backward.observed import ObservedGradients
from encoder_conformance.diagnosis.in_sigma import rms
from encoder_conformance.oracle.deviant import active_parts, deviant
from encoder_conformance.oracle.forms import FORMS
from encoder_conformance.oracle.forms.activation import LAYER as ACTIVATIONS
from encoder_conformance.oracle.forms.needs import leaves_no_key
from encoder_conformance.spec.deviation import Deviation
from encoder_conformance.spec.layer import Layer

CEILING = 20.0
"""The rms error, in σ, above which a gradient is not what follows: the noise of a wrong backward pass is a guess."""
_CASES = 6
"""Cases that are looked at: each takes 50 plays."""
_SCALES = {"by-d-model": "d_model", "by-head-dim": "head_dim"}
"""Form of the scores → the scale of a layer that chooses it."""


def not_following(seen: Iterable[ObservedGradients], deviations: Sequence[Deviation]) -> dict[str, float]:
    """Return the cases whose gradients are not those of a layer that is wrong in these ways, each with the largest rms
    error, in σ.

    Six are looked at, at most, in their order. A wrong form of a step that no layer chooses has no gradient
    (V-3), and nobody specifies those of parameters that are exchanged: nothing is said where one of them is among the
    causes. Nor is anything of cases with padding: what a wrong mask lets through of it is the implementation's choice
    (M-3).
    """
    found = dict[str, float]()
    for case in islice(_followed(seen, deviations), _CASES):
        with np.errstate(all="ignore"):  # a wrong layer may overflow where the right one does not
            largest = max(map(rms, case.errors(case.right).values()), default=0.0)
        if largest > CEILING:
            found[case.case.id] = largest
    return found


def _followed(seen: Iterable[ObservedGradients], deviations: Sequence[Deviation]) -> Iterator[ObservedGradients]:
    """Yield the cases whose gradients follow from the deviations, with the wrong layer taken for right."""
    for each in (each for each in seen if each.case.valid().all()):
        acting = active_parts(each.case, deviations)
        wrong = deviant(each.case, acting)
        layer = _with_choices(wrong.layer, wrong.given.variants)
        if layer and not any(one.patch.parameters for one in acting) and not leaves_no_key(wrong.given.mask):
            yield replace(each, explained=replace(wrong, layer=layer))


def _with_choices(layer: Layer, forms: Mapping[str, str]) -> Layer | None:
    """Return the layer that chooses these forms of its steps; None where no layer can."""
    for step, form in forms.items():
        update: dict[str, object]
        if step == "activation" and (chosen := FORMS[step].is_choice.get(form, form)) in ACTIVATIONS:
            update = {"feed_forward": layer.feed_forward.model_copy(update={"activation": chosen})}
        elif step == "attention_scores" and form in _SCALES:
            update = {"attention": layer.attention.model_copy(update={"scale": _SCALES[form]})}
        else:
            return None
        layer = layer.model_copy(update=update)
    return layer

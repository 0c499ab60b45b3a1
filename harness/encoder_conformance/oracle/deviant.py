"""Plays deviations: the stages of a case as an implementation with these defects computes them (rules V-1 to V-4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from pydantic import ValidationError

from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.edited_masks import OF_CAUSAL, OF_ONE_SEQUENCE, edited_mask
from encoder_conformance.oracle.encoder import forward
from encoder_conformance.oracle.forms import FORMS, MIXES_ITEMS, VARIANTS, stage_equations, steps_of, takes, variant_of
from encoder_conformance.oracle.forms.needs import Inapplicable, masks_something
from encoder_conformance.oracle.forms.softmax import EMPTY_ROWS
from encoder_conformance.oracle.inputs import LayerInputs, given
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.spec.axes import Array, Bools
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.deviation import Deviation, LayerPatch, Measured, Patch
from encoder_conformance.spec.equation import Equation
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.masking import Causal
from encoder_conformance.spec.parameters import parameter_shapes, without_prefix
from encoder_conformance.spec.steps import STEPS


@dataclass(frozen=True)
class Deviant:
    """A case as a wrong implementation takes it: its layer, and the inputs and wrong forms of a play."""

    layer: Layer
    given: LayerInputs

    def stages(self, arithmetic: Arithmetic) -> dict[str, Array]:
        """Every stage by name."""
        with np.errstate(all="ignore"):  # a wrong form may divide by zero, and says so by NaN
            return forward(self.layer, self.given, arithmetic)


def deviant(case: Case, deviations: Sequence[Deviation], start: LayerInputs | None = None) -> Deviant:
    """The case with every patch applied, in order. `start` is `given(case)`, for a caller of many plays."""
    start, patched = start or given(case), _patched_case(case, deviations)
    parameters, mask, variants = dict(start.parameters), start.mask, dict[str, str]()
    epsilons, equations = dict[str, float](), dict[str, Equation]()
    for deviation in deviations:
        patch = deviation.patch
        if not has_what_it_replaces(case.layer, patch):
            continue
        if patch.parameters:
            parameters = {name: _edited(name, _edit_of(name, patch), parameters) for name in parameters}
        mask = edited_mask(case, mask, patch.mask)
        variants |= _variants(patched, patch)
        epsilons.update(deviation.epsilons if isinstance(deviation, Measured) else {})
        equations |= _equations(patched.layer, patch)
    wrong = replace(start, parameters=parameters, mask=mask, variants=variants, epsilons=epsilons, equations=equations)
    if "across-batch" in variants.values():  # heads [S, H, B, d] and scores [S, H, B, B] cannot be given these
        wrong = replace(wrong, bias=None, positions=None)
    return Deviant(patched.layer, wrong)


def active_parts(case: Case, deviations: Sequence[Deviation]) -> list[Deviation]:
    """The deviations that change the case, or the case with the layer that the others make: a post-norm layer that is
    pre-norm by one deviation may norm its output once more by another."""
    left = _patched_case(case, deviations)
    return [d for d in deviations if changes(case, d) or (left is not case and changes(left, d))]


def _patched_case(case: Case, deviations: Sequence[Deviation]) -> Case:
    layer = case.layer
    for deviation in deviations:
        layer = patched_layer(layer, deviation)
    return case if layer is case.layer else replace(case, layer=layer)


def changes(case: Case, deviation: Deviation) -> bool:
    """Whether the patch changes anything in the case."""
    return inapplicable(case, deviation) is None


def inapplicable(case: Case, deviation: Deviation) -> Inapplicable | None:
    """The reason why the patch changes nothing in the case; None if it changes something."""
    patch, layer = deviation.patch, case.layer
    if not has_what_it_replaces(layer, patch):
        reasons = {_of_step(case, step, form) for step, form in patch.steps.items()}
        own = reasons == {Inapplicable.OWN_CHOICE}
        return Inapplicable.OWN_CHOICE if own else Inapplicable.OTHER_CHOICE
    found: list[Inapplicable | None] = []
    if patch.in_training:
        found.append(_of_dropout(case, deviation))
    elif patch.layer is not None:
        found.append(_of_layer(layer, deviation))
    of_steps = [_of_step(case, step, form) for step, form in patch.steps.items()]
    if Inapplicable.OTHER_SHAPE in of_steps:  # no step could take what comes out
        return Inapplicable.OTHER_SHAPE
    found += of_steps
    found += [_of_parameter(layer, bare, patch) for bare in patch.parameters]
    of_stages = [_of_stage(layer, stage, patch) for stage in patch.stages]
    found += [None] if None in of_stages else of_stages  # each stage by itself: a layer may have one of two mistakes
    if patch.mask is not None:
        found.append(_of_mask(case, patch.mask))
    if isinstance(deviation, Measured) and deviation.epsilons:
        others = set(deviation.epsilons.values()) - {layer.norm.epsilon}
        has_norms = layer.part == "encoder_layer"
        found.append((None if others else Inapplicable.OWN_CHOICE) if has_norms else Inapplicable.NO_STEP)
    for reason in (Inapplicable.OTHER_CHOICE, Inapplicable.OTHER_SEQUENCE):
        if reason in found:  # what is left of the patch would be another deviation
            return reason
    return None if None in found else found[0]


def has_what_it_replaces(layer: Layer, patch: Patch) -> bool:
    """Whether the layer takes each step that the patch names by a form that it replaces, or not at all."""
    steps = steps_of(layer) if patch.replaces else {}
    return all(step not in steps or steps[step].right in forms for step, forms in patch.replaces.items())


def _of_layer(layer: Layer, deviation: Deviation) -> Inapplicable | None:
    assert deviation.patch.layer is not None
    edited = deviation.patch.layer.model_dump(exclude_none=True)
    if layer.part == "attention" and "attention" not in edited:
        return Inapplicable.NO_STEP
    try:
        return Inapplicable.OWN_CHOICE if edited_layer(layer, deviation) == layer else None
    except ValidationError:
        return Inapplicable.OTHER_CHOICE


def _of_dropout(case: Case, deviation: Deviation) -> Inapplicable | None:
    if patched_layer(case.layer, deviation) == case.layer:
        return Inapplicable.NO_DROPOUT
    return None if "dropout" in case.situation.checks else Inapplicable.IN_TRAINING


def _of_step(case: Case, name: str, wrong: str) -> Inapplicable | None:
    step = steps_of(case.layer).get(name)
    if step is None:
        is_too_many = STEPS[name].form == "end" and case.layer.norm.placement == "post"
        return Inapplicable.POST_NORM if is_too_many else Inapplicable.NO_STEP
    if not takes(case, step):
        return Inapplicable.NO_BIAS
    form = FORMS[step.form]
    if reason := next((need.otherwise for need in form.needs.get(wrong, ()) if not need.met(case, step)), None):
        return reason
    if step.right in (wrong, form.is_choice.get(wrong)):
        return Inapplicable.OWN_CHOICE
    return Inapplicable.OTHER_CHOICE if variant_of(step, wrong) is None else None


def _of_stage(layer: Layer, stage: str, patch: Patch) -> Inapplicable | None:
    specified = stage_equations(layer.one_of_it)
    if stage not in specified:
        return Inapplicable.NO_STEP
    equation = _equations(layer, patch).get(stage)
    if equation is None:
        return Inapplicable.OTHER_CHOICE
    return Inapplicable.OWN_CHOICE if equation.form == specified[stage].form else None


def _equations(layer: Layer, patch: Patch) -> dict[str, Equation]:
    """Stage → the equation in the place of the one that is specified for this layer, where the patch has one."""
    found = {}
    for stage, equation in stage_equations(layer.one_of_it).items() if patch.stages else ():
        wrong = {Equation(right).form: Equation(text) for right, text in patch.stages.get(stage, {}).items()}
        if equation.form in wrong:
            found[stage] = wrong[equation.form]
    return found


def _of_parameter(layer: Layer, bare: str, patch: Patch) -> Inapplicable | None:
    shapes = parameter_shapes(layer)
    edits = {name: edit for name in shapes if without_prefix(name)[1] == bare and (edit := _edit_of(name, patch))}
    if any(_applies(name, edit, shapes) for name, edit in edits.items()):
        return None
    return Inapplicable.OTHER_SHAPE if edits else Inapplicable.NO_PARAMETER


def _of_mask(case: Case, edit: str) -> Inapplicable | None:
    if case.layer.takes_memory and edit in OF_ONE_SEQUENCE:
        return Inapplicable.OTHER_SEQUENCE
    if not _same(edited_mask(case, case.mask(), edit), case):
        return None
    if not masks_something(case):
        return Inapplicable.NO_MASK
    causal = isinstance(case.situation.mask.attention, Causal)
    return Inapplicable.NO_CAUSAL_MASK if edit in OF_CAUSAL and not causal else Inapplicable.SAME_MASK


def _variants(case: Case, patch: Patch) -> dict[str, str]:
    """Each step that the case takes and the patch names → the wrong variant that it has there, if it has one."""
    steps = steps_of(case.layer)
    found = {
        name: variant_of(steps[name], wrong)
        for name, wrong in patch.steps.items()
        if name in steps and takes(case, steps[name])
    }
    return {name: variant for name, variant in found.items() if variant is not None}


def mixes_items(deviation: Deviation) -> bool:
    """Whether it makes an item of the batch depend on another."""
    patch = deviation.patch
    return patch.mask == "first-item" or bool(patch.stages) or any(form in MIXES_ITEMS for form in patch.steps.values())


def changes_unspecified_rows_alone(case: Case, deviation: Deviation) -> bool:
    """Whether it changes only the row of a query with no key, where nobody specifies that row (M-4)."""
    patch = deviation.patch
    alone = set(patch.steps) == {"masked_softmax"} and not (patch.layer or patch.parameters or patch.mask)
    unspecified = case.layer.attention.fully_masked_row == "unspecified"
    return alone and unspecified and patch.steps["masked_softmax"] in EMPTY_ROWS


def patched_layer(layer: Layer, deviation: Deviation) -> Layer:
    """The layer after the merge patch; as it is, where another of its choices contradicts that."""
    try:
        return edited_layer(layer, deviation)
    except ValidationError:
        return layer


def edited_layer(layer: Layer, deviation: Deviation) -> Layer:
    """The layer after the merge patch. Raises pydantic's ValidationError if that is no layer."""
    if deviation.patch.layer is None or not has_what_it_replaces(layer, deviation.patch):
        return layer
    edited = _merged(layer, deviation.patch.layer)
    return layer if edited is None else edited


@lru_cache(maxsize=1024)
def _merged(layer: Layer, by: LayerPatch) -> Layer | None:
    """The layer after the merge patch; None where that changes nothing. A search asks for each some thirty times."""
    patch = by.model_dump(exclude_none=True)
    merged = layer.model_dump(mode="json")
    for key, value in patch.items():
        merged[key] = {**merged[key], **value}
    valid = Layer.model_validate(merged, strict=False)
    # A valid one is a float32; a module's own may be a decimal, and a wrong implementation's is its own double (L-2).
    epsilon = patch.get("norm", {}).get("epsilon", layer.norm.epsilon)
    edited = valid.model_copy(update={"norm": valid.norm.model_copy(update={"epsilon": epsilon})})
    return None if edited == layer else edited


def check_steps(deviation: Deviation, where: str) -> None:
    """Raise InputError unless the steps and forms that a patch names exist, and the wrong ones are not the standard."""
    for step, form in deviation.patch.steps.items():
        _check_forms(step, (form,), {"standard"}, f"{where}: key patch.steps")
    for step, forms in deviation.patch.replaces.items():
        _check_forms(step, forms, set(), f"{where}: key patch.replaces")


def _check_forms(step: str, forms: Sequence[str], but: set[str], where: str) -> None:
    if step not in VARIANTS:
        raise InputError(f"there is no step {step!r}", where=where, hint=nearest(step, VARIANTS))
    known = set(VARIANTS[step]) - but
    for form in (form for form in forms if form not in known):
        wrong = "wrong form" if but else "form"
        raise InputError(f"step {step} has no {wrong} {form!r}", where=f"{where}.{step}", hint=nearest(form, known))


def _edit_of(name: str, patch: Patch) -> str | None:
    """The patch's edit of a parameter, or None. It names one without the prefix of a layer, and means every layer's."""
    prefix, bare = without_prefix(name)
    edit = patch.parameters.get(bare)
    return f"from {prefix}{edit.removeprefix('from ')}" if edit and edit.startswith("from ") else edit


def _applies(name: str, edit: str, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether an edit applies: the layer has the parameter, and what comes in its place has its shape."""
    source = edit.removeprefix("from ")
    if edit == "transposed" and name in shapes and shapes[name] != shapes[name][::-1]:
        return False
    if edit.startswith("from ") and (source == name or shapes.get(source) != shapes.get(name)):
        return False
    return name in shapes


def _edited(name: str, edit: str | None, parameters: dict[str, Array]) -> Array:
    value = parameters[name]
    if edit is None or not _applies(name, edit, {name: value.shape for name, value in parameters.items()}):
        return value
    if edit == "zero":
        return np.zeros_like(value)
    if edit == "one":
        return np.ones_like(value)
    if edit == "transposed":
        return np.ascontiguousarray(value.T)
    return parameters[edit.removeprefix("from ")]


def _same(mask: Bools | None, case: Case) -> bool:
    everywhere = np.ones((1, 1, 1, 1), dtype=np.bool_)
    one = everywhere if mask is None else mask
    right = case.mask()
    return bool(np.all(one == (everywhere if right is None else right)))

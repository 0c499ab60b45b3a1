"""Plays a deviation: what a case gives when an implementation is wrong in these ways (rules V-1 to V-4)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.errors import InputError, nearest
from harness.oracle.arithmetic import Arithmetic, Array
from harness.oracle.encoder import Given, forward, given
from harness.oracle.steps import WAYS
from harness.spec.case import Case
from harness.spec.deviation import Deviation
from harness.spec.layer import Layer


@dataclass(frozen=True)
class Deviant:
    """A case as a wrong implementation takes it: its layer, and what it makes of what it is given."""

    layer: Layer
    given: Given

    def stages(self, arithmetic: Arithmetic) -> dict[str, Array]:
        with np.errstate(all="ignore"):  # a wrong form may divide by zero, and says so by NaN
            return forward(self.layer, self.given, arithmetic)


def deviant(case: Case, deviations: Sequence[Deviation]) -> Deviant:
    """The case with every patch applied, in order."""
    layer, start = case.layer, given(case)
    parameters, mask, ways = dict(start.parameters), start.mask, dict[str, str]()
    for deviation in deviations:
        patch = deviation.patch
        layer = patched_layer(layer, deviation)
        parameters = {name: _edited(name, patch.parameters.get(name), parameters) for name in parameters}
        mask = _edited_mask(mask, patch.mask, case.situation.sequence)
        ways |= patch.steps
    return Deviant(layer, Given(start.x, parameters, mask, ways))


def changes(case: Case, deviation: Deviation) -> bool:
    """Whether the patch says anything that the case does not say already."""
    patch = deviation.patch
    layer_changes = patched_layer(case.layer, deviation) != case.layer
    steps_change = any(
        form != case.layer.feed_forward.activation or step != "activation" for step, form in patch.steps.items()
    )
    mask_changes = patch.mask is not None and (case.mask() is not None or patch.mask == "causal")
    return layer_changes or steps_change or bool(patch.parameters) or mask_changes


def patched_layer(layer: Layer, deviation: Deviation) -> Layer:
    """The layer after the merge patch; the deviation is to blame if that is no layer."""
    if deviation.patch.layer is None:
        return layer
    patch = deviation.patch.layer.model_dump(exclude_none=True)
    merged = layer.model_dump(mode="json")
    for key, value in patch.items():
        merged[key] = {**merged[key], **value}
    valid = Layer.model_validate(merged, strict=False)
    epsilon = patch.get("norm", {}).get("epsilon")
    if epsilon is None or valid == layer:
        return valid
    # A wrong implementation's epsilon is its own double, not the float32 that a right one takes it to be (L-2).
    return valid.model_copy(update={"norm": valid.norm.model_copy(update={"epsilon": epsilon})})


def check_steps(deviation: Deviation, where: str) -> None:
    """The steps and forms that a patch names exist, and are not the standard ones."""
    for step, form in deviation.patch.steps.items():
        if step not in WAYS:
            raise InputError(f"there is no step {step!r}", where=f"{where}: key patch.steps", hint=nearest(step, WAYS))
        if form not in WAYS[step] or form == "standard":
            raise InputError(
                f"step {step} has no wrong form {form!r}",
                where=f"{where}: key patch.steps.{step}",
                hint=nearest(form, set(WAYS[step]) - {"standard"}),
            )


def _edited(name: str, edit: str | None, parameters: dict[str, Array]) -> Array:
    value = parameters[name]
    if edit is None:
        return value
    if edit == "zero":
        return np.zeros_like(value)
    if edit == "one":
        return np.ones_like(value)
    if edit == "transposed":
        return np.ascontiguousarray(value.T)
    return parameters[edit.removeprefix("from ")]


def _edited_mask(mask: Array | None, edit: str | None, sequence: int) -> Array | None:
    """`mask` is None or bool [B, 1, 1, S] (or already edited to [B, 1, S, S])."""
    if edit == "causal":
        below = np.tri(sequence, dtype=np.bool_)
        return below[None, None] if mask is None else mask & below
    if edit is None or mask is None:
        return mask
    match edit:
        case "inverted":
            return ~mask
        case "ignored":
            return None
        case "on-queries":
            return np.swapaxes(mask, -1, -2)
        case "shifted":
            return np.roll(mask, 1, axis=-1)
        case "first-item":
            return np.broadcast_to(mask[:1], mask.shape)
        case _:  # reversed
            return mask[..., ::-1]

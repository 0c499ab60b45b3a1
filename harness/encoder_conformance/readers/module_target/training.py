"""Asks whether the gradients of a module in training are those of its output, with the elements that this dropped."""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from encoder_conformance.judging.checks.training.directional import FAR, ChangeAlong, nearest_change
from encoder_conformance.protocol.way_back import WayBackAnswer
from encoder_conformance.readers.module_target.dropping import never_called, nothing_dropped, said_by
from encoder_conformance.readers.module_target.errors import error_line
from encoder_conformance.readers.module_target.live import Feeds, LiveModule, NothingDrawn
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import DtypeName

_NOISE: Mapping[str, float] = {"float64": 1e-12, "float32": 1e-5}
"""The distance of two equal outputs, of their size."""


def with_dropout(module: LiveModule, feeds: Feeds, cotangent: Array, dtype: DtypeName) -> WayBackAnswer:
    """The answer for this copy, which is in eval mode. `cotangent`: in the shape of x."""
    try:
        training = module.in_training(feeds)
        if _alike(training.call(feeds), training.call(feeds), dtype):
            return _compared(module, training, feeds, cotangent, dtype)
        return _not_repeatable(training, feeds, cotangent, dtype)
    except NotImplementedError as error:
        return _answer("not-asked", str(error))
    except Exception as error:  # whatever a module does in training
        return _answer("not-asked", f"gradients with dropout on were not asked: in training {error_line(error)}")


def without_dropout(module: LiveModule, feeds: Feeds, cotangent: Array, dtype: DtypeName) -> WayBackAnswer | None:
    """The same in eval mode, of a module that is not known to have another: that its gradients are those of its output.
    None where they are not, or none are given: the gradients of cases tell that."""
    try:
        nearest = _nearest(module, feeds, cotangent, dtype)
    except Exception:  # whatever a module does that has no gradients
        return None
    if nearest.distance > FAR[dtype]:
        return None
    return WayBackAnswer(name="gradient", outcome="pass", distance=nearest.distance)


def drops_nothing(module: LiveModule, feeds: Feeds, in_eval: Array, dtype: DtypeName) -> WayBackAnswer | None:
    """An error where a module says what it drops, and its output in training is that in evaluation; a warning for parts
    that drop and are never called; else None.

    A warning where dropout is turned on by an argument: its name may be one that nobody knows."""
    modules, rates, _ = said_by((type(each).__name__, each) for each in module.objects())
    said = {**rates, **modules}
    if not said:
        return None
    try:
        nothing = _alike(module.in_training(feeds).call(feeds), in_eval, dtype)
    except NothingDrawn:
        nothing = True
    if not nothing and (unused := never_called(module.drops_uncalled(feeds))):
        return WayBackAnswer(name="dropout-parts", outcome="unusual", message=f"in training {unused}")
    answer = nothing_dropped(said) if nothing else None
    if answer is None or not module.draws_of_keys:
        return answer
    return answer.model_copy(update={"outcome": "unusual"})


def _compared(
    module: LiveModule, training: LiveModule, feeds: Feeds, cotangent: Array, dtype: DtypeName
) -> WayBackAnswer:
    nearest = _nearest(training, feeds, cotangent, dtype)
    if nearest.distance <= FAR[dtype]:
        return _answer("pass", distance=nearest.distance)
    if _nearest(module, feeds, cotangent, dtype).distance > FAR[dtype]:
        text = "gradients with dropout on were not asked: those in eval mode are not the changes of the output either"
        return _answer("not-asked", text)
    drops = not _alike(training.call(feeds), module.call(feeds), dtype)
    wrong = "with dropout on, the gradient is not that of the mask that the output shows"
    text = f"{wrong if drops else 'in training, the gradient is not that of the output'}: {nearest}"
    return _answer("fail", text, nearest.distance)


def _not_repeatable(training: LiveModule, feeds: Feeds, cotangent: Array, dtype: DtypeName) -> WayBackAnswer:
    """A module that draws from where no seed reaches: its gradients are asked twice of one output."""
    text = "gradients with dropout on were not compared with the output: with one seed it drops others each time"
    pair = training.backward_twice(feeds, cotangent)
    if pair is None:
        return _answer("not-asked", text)
    one, other = pair
    distance = float(np.linalg.norm(one - other) / (np.linalg.norm(one) or 1.0))
    if distance <= FAR[dtype]:
        return _answer("not-asked", text)
    text = (
        "with dropout on, the gradient is not that of the mask that the output shows: of one output, asked twice, it "
        f"is another by {distance:.2g} of its size"
    )
    return _answer("fail", text, distance)


def _nearest(module: LiveModule, feeds: Feeds, cotangent: Array, dtype: DtypeName) -> ChangeAlong:
    """The change of the output along a random direction of x and of all parameters."""
    values = {"x": feeds["x"], "own": module.flat()}
    by_x, own = module.backward(feeds, cotangent)

    def loss(moved: dict[str, Array]) -> float:
        module.assign(moved["own"])
        return float(np.sum(module.call({**feeds, "x": moved["x"]}).astype(np.float64) * cotangent))

    try:
        return nearest_change(values, {"x": by_x, "own": own}, loss, dtype)
    finally:
        module.assign(values["own"])


def _alike(one: Array, other: Array, dtype: DtypeName) -> bool:
    """Whether two outputs, in one shape, are equal but for rounding."""
    return bool(np.linalg.norm(one - other) <= _NOISE[dtype] * np.linalg.norm(one))


def _answer(
    outcome: Literal["pass", "fail", "not-asked"], message: str = "", distance: float | None = None
) -> WayBackAnswer:
    return WayBackAnswer(name="dropout-gradient", outcome=outcome, distance=distance, message=message)

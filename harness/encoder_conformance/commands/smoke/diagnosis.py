"""Diagnoses wrong numbers: an error in the map of a parameter, or a deviation of the catalogue.

Where forward values are right and gradients are not, the map of a gradient is often at fault.
"""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.commands.smoke.parameter_errors import ParameterError, parameter_errors
from encoder_conformance.commands.smoke.round_trip import with_own_names
from encoder_conformance.diagnosis.advice import ADVICE
from encoder_conformance.diagnosis.diagnose import Failing, diagnose
from encoder_conformance.diagnosis.lost import fault_of
from encoder_conformance.judging.observation import Observation
from encoder_conformance.judging.records import Record
from encoder_conformance.judging.simulate import simulate, simulate_with_noise
from encoder_conformance.judging.verdict import judge_tensor
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.expected import ExpectedTensor
from encoder_conformance.oracle.forms.needs import has_empty_row
from encoder_conformance.oracle.kinks import kinked_rows
from encoder_conformance.protocol.frames import Tensors
from encoder_conformance.reports.run.terminal import diagnosis_text, fault_text
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.case_parameters import CaseParameters

_CONFIRMED = 6
"""How many of the closest candidates are judged in their own noise, which takes as long as 24 simulations."""
_NOISE_FACTOR = 1000.0
"""The factor within which the noise of a wrong layer is approximated by that of the conforming one."""
_MOST_CAUSES = 3
_FAR = 1e12
_CLOSE = 1e-2
"""A relative error far above the noise of every format used here, and far below that of a different gradient."""


def diagnose_numbers(name: str, observations: Sequence[Observation], own: dict[str, str]) -> list[str]:
    """A line for each cause that explains all observations: parameter errors, or else the catalogue's diagnosis."""
    causes = [
        f"parameter{'s' * (len(error.names) > 1)} {with_own_names(error.names, own)} {error.description}"
        for error in find_parameter_errors(observations)
    ]
    if causes:
        return [
            causes[0],
            *(f"or, which these cases cannot distinguish from it: {other}" for other in causes[1:_MOST_CAUSES]),
        ]
    return [diagnosis_text(diagnose(Failing(name, observations[0].dtype.name), observations)).removeprefix("⇒ ")]


def or_lost(diagnose: Callable[[], Iterable[str]]) -> list[str]:
    """The lines of a diagnosis; where a fault of ours ends it, one that says so, and the trace on standard error."""
    try:
        return list(diagnose())
    except Exception as error:
        traceback.print_exc()
        return [fault_text(fault_of(error))]


def find_parameter_errors(observations: Sequence[Observation]) -> list[ParameterError]:
    """The parameter errors with which the oracle gives the observed values, in σ of its own noise."""
    observation_to_fit = max(observations, key=lambda observation: (observation.failed, len(observation.values)))
    by_distance = sorted(
        (_distance(error, observation_to_fit), index, error)
        for index, error in enumerate(_plausible_errors(observation_to_fit.case))
    )
    close = [error for distance, _, error in by_distance[:_CONFIRMED] if distance < _NOISE_FACTOR]
    return [error for error in close if all(_explains(error, observation) for observation in observations)]


def _plausible_errors(case: Case) -> Iterator[ParameterError]:
    """The parameter errors that change no shape, so that a layer can be built with them."""
    parameters = dict(case.parameters())
    for error in parameter_errors(parameters, case.layer):
        if all(value.shape == parameters[name].shape for name, value in error.apply(parameters).items()):
            yield error


def _with_error(error: ParameterError, case: Case) -> Case:
    parameters = dict(case.parameters())
    return replace(case, held=CaseParameters.of(parameters | error.apply(parameters)))


def _distance(error: ParameterError, observation: Observation) -> float:
    """The rms error of the values that `error` predicts, in σ of the conforming layer, as geometric mean over tensors.

    The mean is geometric: a tensor that is nearly 0 in the conforming layer has a σ far too small for a wrong one.
    """
    predicted, logarithms = simulate(_with_error(error, observation.case), ()), [0.0]
    for name, observed in observation.values.items():
        tensor = observation.expected.tensors[name]
        if observed is None or not observed.size:
            continue
        sigma = observation.dtype.sigma(tensor.condition)
        with np.errstate(all="ignore"):
            deviation = np.nan_to_num(
                (observed - _sample(predicted[name], tensor)) / sigma, nan=_FAR, posinf=_FAR, neginf=_FAR
            )
            logarithms.append(float(np.log(np.clip(np.sqrt(np.mean(deviation**2)), 1.0, _FAR))))
    return float(np.exp(np.mean(logarithms)))


def _explains(error: ParameterError, observation: Observation) -> bool:
    golden, condition = simulate_with_noise(_with_error(error, observation.case), ())
    for name, observed in observation.values.items():
        tensor = observation.expected.tensors[name]
        if observed is None:
            return False
        positions, shape = np.arange(observed.size), (observed.size,)
        predicted = ExpectedTensor(shape, positions, _sample(golden[name], tensor), _sample(condition[name], tensor))
        values = observed.astype(observation.dtype.numpy)
        if not judge_tensor(name, values, predicted, observation.dtype).conforms:
            return False
    return True


def _sample(values: Array, tensor: ExpectedTensor) -> Array:
    return np.asarray(values.reshape(-1)[tensor.positions])


def wrong_gradients(case: Case, observed: Tensors, record: Record, own: Mapping[str, str]) -> Iterator[str]:
    """A line for each gradient that does not conform, with its relation to the right one if it is recognised."""
    expected = evaluate(case, Arithmetic(np.float64), case.cotangent(kinked_rows(case))).gradients
    lost = [t.tensor for t in record.tensors if not t.conforms and not np.isfinite(observed[t.tensor]).all()]
    if lost:
        yield f"the gradients by {with_own_names((lost[0],), own)} and {len(lost) - 1} more hold NaN or infinity"
        if has_empty_row(case):
            yield ADVICE["gradient no-key"]
        return
    by_parameter = {name: value for name, value in expected.items() if name != "x"}
    for tensor in record.tensors:
        if tensor.conforms:
            continue
        name, gradient = tensor.tensor, observed[tensor.tensor].astype(np.float64)
        candidates = (error for error in parameter_errors(by_parameter, case.layer) if name in error.names)
        alike = next((each for each in candidates if _is_close(gradient, each.apply(by_parameter)[name])), None)
        relation = alike.description if alike else f"is {_factor_text(gradient, expected[name]) or 'another'}"
        yield f"the gradient by {with_own_names((name,), own)} {relation}"


def _is_close(gradient: Array, predicted: Array) -> bool:
    if gradient.shape != predicted.shape:
        return False
    return bool(np.abs(gradient - predicted).max() <= _CLOSE * max(np.abs(predicted).max(), 1e-30))


def _factor_text(gradient: Array, expected: Array) -> str:
    """`−1 times what it should be`, for a mean instead of a sum, or a wrong sign; "" if it is no multiple."""
    if gradient.shape != expected.shape or not np.any(expected):
        return ""
    factor = float(np.sum(gradient * expected) / np.sum(expected * expected))
    return f"{factor:.4g} times what it should be" if _is_close(gradient, factor * expected) and factor else ""

"""Why the numbers are wrong: which parameter the map got wrong and how, or which deviation of the catalogue it is."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from encoder_conformance.adapter.base import Array
from encoder_conformance.deviations.simulate import simulate, simulate_with_noise
from encoder_conformance.diagnosis.diagnose import diagnose
from encoder_conformance.judge.expected import ExpectedTensor
from encoder_conformance.judge.observation import Observation
from encoder_conformance.judge.verdict import judge_tensor
from encoder_conformance.report.terminal import diagnosis_text
from encoder_conformance.smoke.parameter_errors import ParameterError, parameter_errors
from encoder_conformance.smoke.round_trip import named
from encoder_conformance.spec.case import Case, CaseParameters
from encoder_conformance.spec.constants import constants

_CONFIRMED = 6
"""Of the closest, how many are tried in their own noise, which takes as long as 24 plays."""
_GUESSED = 1000.0
"""The factor within which the noise of a wrong layer can be guessed from that of the right one."""
_SAID = 3
_FAR = 1e12


def diagnose_numbers(name: str, observations: Sequence[Observation], own: dict[str, str]) -> list[str]:
    """A line for each cause that accounts for all that was seen: a parameter's, or else the catalogue's."""
    found = [
        f"parameter{'s' * (len(edit.names) > 1)} {named(edit.names, own)} {edit.says}"
        for edit in wrong_parameters(observations)
    ]
    if found:
        return [found[0], *(f"or, not to be told apart here: {other}" for other in found[1:_SAID])]
    return [diagnosis_text(diagnose(name, observations[0].dtype.name, observations)).removeprefix("⇒ ")]


def wrong_parameters(observations: Sequence[Observation]) -> list[ParameterError]:
    """The edits of parameters with which the oracle gives what was seen, in σ of its own noise."""
    first = max(observations, key=lambda observation: (observation.failed, len(observation.values)))
    near = sorted((_distance(edit, first), at, edit) for at, edit in enumerate(_plausible(first.case)))
    likely = [edit for distance, _, edit in near[:_CONFIRMED] if distance < _GUESSED]
    return [edit for edit in likely if all(_accounts_for(edit, observation) for observation in observations)]


def _plausible(case: Case) -> Iterator[ParameterError]:
    """Those that leave every shape as it is, which a layer can be built with."""
    right = case.parameters()
    for edit in parameter_errors(right, case.layer):
        if all(value.shape == right[name].shape for name, value in edit.made(right).items()):
            yield edit


def _with_error(edit: ParameterError, case: Case) -> Case:
    right = case.parameters()
    return replace(case, held=CaseParameters.of(right | edit.made(right)))


def _distance(edit: ParameterError, observation: Observation) -> float:
    """The rms error of what it predicts, in σ of the right layer: the geometric mean over what was seen, since a
    tensor that is all but 0 in the right layer has a σ that says nothing of the wrong one's."""
    predicted, logarithms = simulate(_with_error(edit, observation.case), ()), [0.0]
    for name, seen in observation.values.items():
        tensor = observation.expected.tensors[name]
        if seen is None or not seen.size:
            continue
        sigma = np.maximum(observation.dtype.roundoff * tensor.condition, observation.dtype.smallest_normal)
        with np.errstate(all="ignore"):
            error = np.nan_to_num((seen - _kept(predicted[name], tensor)) / sigma, nan=_FAR, posinf=_FAR, neginf=_FAR)
            logarithms.append(float(np.log(np.clip(np.sqrt(np.mean(error**2)), 1.0, _FAR))))
    return float(np.exp(np.mean(logarithms)))


def _accounts_for(edit: ParameterError, observation: Observation) -> bool:
    golden, condition = simulate_with_noise(_with_error(edit, observation.case), ())
    for name, seen in observation.values.items():
        tensor = observation.expected.tensors[name]
        if seen is None:
            return False
        at, shape = np.arange(seen.size), (seen.size,)
        predicted = ExpectedTensor(shape, at, _kept(golden[name], tensor), _kept(condition[name], tensor))
        values = seen.astype(observation.dtype.numpy)
        if not judge_tensor(name, values, predicted, observation.dtype, constants()).conforms:
            return False
    return True


def _kept(values: Array, tensor: ExpectedTensor) -> Array:
    return np.asarray(values.reshape(-1)[tensor.positions])

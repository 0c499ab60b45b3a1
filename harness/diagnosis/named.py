"""The deviations that a diagnosis names, ready to be simulated."""

from encoder_conformance.deviations.catalogue import catalogue
from encoder_conformance.diagnosis.epsilon import measured_epsilon
from encoder_conformance.diagnosis.identify.identify import deviation_of, patches_of
from encoder_conformance.results import Diagnosis
from encoder_conformance.spec.deviation import Deviation


def named_deviations(diagnosis: Diagnosis) -> list[Deviation]:
    """Those of the catalogue, those with a measured epsilon, and one with the equations that it states."""
    found = [catalogue()[name] for name in diagnosis.deviations if name in catalogue()]
    found += [measured_epsilon(each.deviation.removesuffix("-epsilon"), each.value) for each in diagnosis.measured]
    return [*found, deviation_of(patches_of(diagnosis.equations))] if diagnosis.equations else found

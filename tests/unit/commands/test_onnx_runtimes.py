"""A runtime of ONNX files, and a phase of a validation, is listed once: what else names them follows."""

from encoder_conformance.commands.validate.phases.table import VALIDATION_PHASES
from encoder_conformance.commands.validate.runtimes import DEPLOYED, RUNTIMES
from encoder_conformance.implementation.manifest import known_folders, read_implementation_manifest
from encoder_conformance.protocol.findings import PHASES
from encoder_conformance.protocol.onnx_runtimes import ONNX_RUNTIMES


def test_every_phase_that_a_finding_can_be_of_is_an_object_in_the_same_order() -> None:
    assert tuple(phase.name for phase in VALIDATION_PHASES) == PHASES


def test_every_manifest_that_has_a_runtime_to_choose_has_all_of_them_with_what_they_require() -> None:
    found = {}
    for name, folder in known_folders().items():
        manifest = read_implementation_manifest(folder)
        choices = {choice.name: choice for choice in manifest.choices}
        if {"runtime", "level"} <= choices.keys():
            found[name] = choices["runtime"].values, choices["runtime"].requires, choices["level"].values
            more = {r.name: (r.package,) for r in ONNX_RUNTIMES if r.package not in manifest.requires}
            levels = tuple(reversed(next(r.levels for r in ONNX_RUNTIMES if len(r.levels) > 1)))
            assert found[name] == (tuple(runtime.name for runtime in ONNX_RUNTIMES), more, levels), name
    assert len(found) > 5


def test_the_level_that_is_deployed_and_those_that_are_literal_are_among_the_asked() -> None:
    assert DEPLOYED in RUNTIMES
    assert {(r.name, r.literal) for r in ONNX_RUNTIMES if r.literal is not None} <= set(RUNTIMES)

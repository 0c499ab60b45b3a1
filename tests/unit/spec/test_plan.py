"""The plan of a layer: it reads what was made, its forms are those that there are, and everything follows from it."""

import ast
from pathlib import Path

import pytest

from encoder_conformance.oracle.forms import FORMS, VARIANTS, stage_equations
from encoder_conformance.platform.paths import PACKAGE
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.load import load
from encoder_conformance.spec.parameters import parameters_of, without_prefix
from encoder_conformance.spec.plan import Step, between_layers, plan, stack_plan, unlike_layers, with_attributes
from encoder_conformance.spec.stages import layer_stage, stages
from encoder_conformance.spec.steps import STEPS, stage_of
from tests.catalogue import of_every

LAYERS = load().layers
INPUTS = {"x", "memory", "bias", "ids", "token_types"}


def steps(layer: Layer) -> tuple[Step, ...]:
    own = tuple(step for number in unlike_layers(layer) for step in plan(layer, number))
    return (*stack_plan(layer), *own) if layer.is_stack else own


def unmade(taken: tuple[Step, ...]) -> list[str]:
    """What a step reads and no step before it made."""
    known, found = set(INPUTS), list[str]()
    for step in taken:
        found += [f"{step.makes} reads {name}" for name in (*step.reads, *step.beside.values()) if name not in known]
        known.add(step.makes)
    return found


@of_every(LAYERS)
def test_a_step_reads_inputs_and_what_was_made_before_it(name: str) -> None:
    layer = LAYERS[name]
    assert unmade(plan(layer)) == []
    assert not layer.is_stack or unmade(stack_plan(layer)) == []


def test_a_step_that_reads_what_nothing_made_is_found() -> None:
    before, *after = plan(LAYERS["pre-gelu"])
    assert before.makes == "norm1"
    assert [line for line in unmade(tuple(after)) if "norm1" in line]


def test_there_are_no_forms_but_those_of_steps() -> None:
    assert {step.form for step in STEPS.values()} == set(FORMS)


@of_every(LAYERS)
def test_a_form_has_the_variant_that_is_right_its_equation_and_its_parameters(name: str) -> None:
    for step in (*steps(LAYERS[name]), *between_layers(LAYERS[name])):
        form = FORMS[step.form]
        assert step.right in form.variants or step.form == "same", step
        assert step.right in form.equation or step.form == "layers", step
        assert set(step.parameters) <= set(form.roles), step


@of_every(LAYERS)
def test_an_adapter_reads_the_same_plan_off_the_dict_that_it_is_given(name: str) -> None:
    assert plan(with_attributes(LAYERS[name].model_dump(mode="json"))) == plan(LAYERS[name])


@of_every(LAYERS)
def test_stages_equations_and_parameters_are_those_of_the_steps(name: str) -> None:
    layer = LAYERS[name]
    shown = [step.makes for step in plan(layer) if step.shown]
    named = {name for step in steps(layer) for name in step.parameter_axes()}
    assert {without_prefix(parameter.name)[1] for parameter in parameters_of(layer)} == named
    if layer.is_stack:
        assert stages(layer)[-1] == "output"
        assert layer_stage(layer.stack.layers - 1) in stages(layer)
    else:
        assert list(stages(layer)) == shown
        assert list(stage_equations(layer)) == shown


def test_a_post_norm_layer_is_a_pre_norm_one_whose_norms_follow_their_sums() -> None:
    pre, post = ([step.makes for step in plan(LAYERS[name]) if step.shown] for name in ("pre-gelu", "post-gelu"))
    for norm, total in (("norm1", "residual1"), ("norm2", "residual2")):
        pre.remove(norm)
        pre.insert(pre.index(total) + 1, norm)
    assert pre == post


@pytest.mark.parametrize(
    ("step", "stage"),
    [("masked_softmax", "attention_weights"), ("after_ffn", "ffn_output"), ("tokens", "embedded"), ("norm1", "norm1")],
)
def test_the_stage_that_shows_a_step_is_the_first_that_is_made_of_it(step: str, stage: str) -> None:
    assert step in VARIANTS
    assert stage_of(step) == stage


STAGES = {step.makes for step in STEPS.values() if step.shown} - {"query", "key", "value", "output", "context"}
"""Names that are nothing but stages' in the harness."""
SAY = {
    "spec/plan.py",
    "spec/steps.py",  # a key of a stack, final_norm
    "oracle/forms/softmax.py",  # dropout that is left on is drawn for the stage that it is of
    "oracle/forms/activation.py",
    "oracle/forms/embedding.py",
    "spec/layer.py",  # the rates of dropout
    "spec/case.py",  # the check `weights`, and the scores of padded keys (M-3)
}


def literals(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_the_specification_and_the_oracle_name_stages_in_the_plan_alone() -> None:
    """A step more is a line of the plan: no other module there has to learn its name."""
    found = {
        str(path.relative_to(PACKAGE)): sorted(literals(path) & STAGES)
        for room in ("spec", "oracle")
        for path in (PACKAGE / room).rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names and path not in SAY} == {}

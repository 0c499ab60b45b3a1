"""An implementation of published layers is asked those, and nothing else; nobody else is asked them."""

import numpy as np
import pytest

from encoder_conformance.implementation.manifest import default_implementations, find_implementation
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.spec.load import every_case, load, published_layers, published_specification
from encoder_conformance.subjects.plan import asked_of, plan

CASES = [*every_case().values()]


def test_an_implementation_of_published_layers_is_asked_each_of_them_and_no_other() -> None:
    _, theirs = find_implementation("hf_encoders")
    assert {case.layer.layer for case in asked_of(theirs, CASES)} == set(published_layers())
    core = {case.id for case in asked_of(theirs, CASES) if case.level == "core"}
    assert core == {f"{layer}/{asked}" for layer in published_layers() for asked in ("no-mask", "padding-right")}


def test_others_are_asked_what_they_were() -> None:
    _, ours = find_implementation("pytorch")
    assert [case.id for case in asked_of(ours, CASES)] == [*load().cases]
    assert "hf_encoders" not in [implementation.name for _, implementation in default_implementations()]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_it_opts_out_of_what_it_names_alone(attention: str) -> None:
    _, theirs = find_implementation(f"hf_encoders:attention={attention}")
    tasks = plan(theirs, asked_of(theirs, CASES))
    declared = {task.case.layer.layer for task in tasks if task.opt_out and task.opt_out.kind == "declared"}
    assert declared == ({"t5gemma", "dinov2-giant"} if attention == "sdpa" else {"dinov2-giant"})
    assert {task.opt_out.kind for task in tasks if task.opt_out} <= {"declared", "no-gradient"}


def test_goldens_are_computed_of_published_layers_alone() -> None:
    frozen, published = load().cases["pre-gelu/no-mask"], published_specification().cases["bert/no-mask"]
    goldens = Goldens([frozen, published], jobs=0)
    assert goldens.waiting
    goldens.compute()
    assert not goldens.waiting
    goldens.check()
    assert goldens(published).tensors.keys() >= {"output", "norm1"}
    outputs = [goldens(case).tensors["output"].golden for case in (frozen, published)]
    assert not np.array_equal(*outputs)
    with pytest.raises(KeyError):
        Goldens([frozen])(published)

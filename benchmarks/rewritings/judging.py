"""Runs a rewriting on a case and judges it, as a run of `conform` would judge its answers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from benchmarks.rewritings.catalogue import CATALOGUE, Rewriting
from benchmarks.rewritings.layer import Allowed, Tensors, layer_stages
from benchmarks.rewritings.results import Judged
from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor
from encoder_conformance.judging.verdict import judge
from encoder_conformance.oracle.expected import Expected, key
from encoder_conformance.oracle.golden.build import compute
from encoder_conformance.oracle.golden.narrow import in_format
from encoder_conformance.oracle.golden.store import read_golden, read_golden_manifest
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.load import constants, load
from encoder_conformance.spec.situation import Check
from tools.core.criteria import small_required

CHECKS: tuple[Check, ...] = ("stages", "output", "gradients")
FORWARD: tuple[Check, ...] = ("stages", "output")


@dataclass(frozen=True)
class Numbers:
    """A golden, and the formats in which cases ask for it. Cases that differ only in how they are given share it."""

    case: Case
    dtypes: tuple[str, ...]


def numbers(*, core_only: bool = False) -> list[Numbers]:
    """The goldens of all small required cases, or of the core's."""
    formats: dict[str, set[str]] = {}
    for case in small_required(load().cases.values()):
        if not case.needs_no_golden and case.situation.batch and (case.in_core or not core_only):
            formats.setdefault(case.golden_id, set()).update(case.situation.dtypes)
    return [Numbers(load().cases[golden], tuple(sorted(dtypes))) for golden, dtypes in sorted(formats.items())]


def expected_of(case: Case) -> Expected:
    """The frozen golden, or for another seed than 0 one that the oracle makes."""
    return compute(case, constants()) if case.seed else read_golden(case, read_golden_manifest(), constants())


def judged(subject: Numbers, seed: int, names: Sequence[str]) -> list[Judged]:
    """Every tensor of these rewritings, as far as their steps are the layer's."""
    torch.set_num_threads(1)
    case = replace(subject.case, seed=seed)
    golden = expected_of(case)
    wanted = [CATALOGUE[name] for name in names if CATALOGUE[name].applies(case.layer)]
    found = list[Judged]()
    for dtype in subject.dtypes:
        expected = in_format(case, golden, FORMATS[dtype])
        for rewriting in wanted:
            found += judged_in_format(rewriting, case, expected, dtype)
    return found


def judged_in_format(rewriting: Rewriting, case: Case, expected: Expected, dtype: str) -> Iterator[Judged]:
    wide = dtype in ("float32", "float64")
    with_gradients = wide and "gradients" in case.situation.checks
    try:
        stages, gradients = answers(rewriting, case, dtype, expected.kinked_rows if with_gradients else None)
    except RuntimeError as error:
        if "not implemented for" not in str(error):
            raise
        return  # PyTorch has not this operation in this format
    for check in CHECKS if wide else FORWARD:
        if check not in case.situation.checks:
            continue
        shown = gradients if check == "gradients" else stages
        names = tuple(name for name in case.expected_shapes(check) if name in shown)
        observed = {name: to_numpy(shown[name].detach().contiguous()) for name in names}
        for verdict in judge(check, names, observed, expected, FORMATS[dtype]).tensors:
            yield Judged(
                rewriting.name, dtype, case.id, case.seed, key(check, verdict.tensor), verdict.conforms,
                verdict.rms, verdict.max, verdict.problem.text if verdict.problem else "",
            )  # fmt: skip


def answers(rewriting: Rewriting, case: Case, dtype: str, kinked_rows: object | None) -> tuple[Tensors, Tensors]:
    """Stages, and gradients where `kinked_rows` is given."""
    kind = getattr(torch, dtype)
    layer, mask, bias, memory = case.layer, case.mask(), case.attention_bias(), case.memory()

    def leaf(value: object, *, wanted: bool = True) -> Tensor:
        return to_tensor(np.asarray(value)).to(kind).requires_grad_(wanted and kinked_rows is not None)

    parameters = {name: leaf(value) for name, value in case.parameters().items()}
    fill = layer.attention.masked_score
    allowed = Allowed(
        None if mask is None else to_tensor(mask),
        None if bias is None else leaf(bias, wanted=False),
        -np.inf if fill == "minus_infinity" else float(fill),
        layer.attention.fully_masked_row,
    )
    given = leaf(case.x()) if layer.embedding is None else to_tensor(case.ids())
    taken = None if memory is None else leaf(memory)
    stages = layer_stages(layer, rewriting.steps(), given, taken, parameters, allowed)
    if kinked_rows is None:
        return stages, {}
    leaves = {"x": given, "memory": taken, **parameters}
    wanted = {name: value for name, value in leaves.items() if value is not None and value.requires_grad}
    found = torch.autograd.grad(
        stages["output"], list(wanted.values()), leaf(case.cotangent(kinked_rows), wanted=False), materialize_grads=True
    )
    return stages, dict(zip(wanted, found, strict=True))

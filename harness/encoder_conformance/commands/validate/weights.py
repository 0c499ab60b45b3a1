"""Warnings about a file's parameters: two that are one, a weight that holds another's values, one that changes nothing.

None of them is wrong by itself. Each is what a slip of the export leaves behind: keys and values of one projection, a
weight loaded twice, a zero in a projection.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np

from encoder_conformance.commands.validate.evidence import ExaminedFile
from encoder_conformance.commands.validate.runtimes import DEPLOYED, RuntimeRun
from encoder_conformance.oracle.arithmetic import Arithmetic
from encoder_conformance.oracle.condition import Expectation
from encoder_conformance.oracle.encoder import evaluate
from encoder_conformance.oracle.expected import NOTHING, Expected
from encoder_conformance.oracle.golden.thinning import thin
from encoder_conformance.oracle.inputs import given
from encoder_conformance.oracle.kinks import condition_at_kinks, kinked_rows
from encoder_conformance.oracle.measured import sampled_conditions
from encoder_conformance.protocol.description import FileDescription
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import PhaseFinding, Severity
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import constants
from encoder_conformance.spec.parameters import parameter_count
from encoder_conformance.spec.situation import Situation

_UNSEEN = "attention.key.bias"
"""Adds the same to every score of a row, so that no output ever shows it."""


def layer_finding(severity: Severity, kind: FindingKind, message: str, hint: str = "", **about: object) -> PhaseFinding:
    """A finding of the phase `layer`."""
    return PhaseFinding(phase="layer", severity=severity, kind=kind, message=message, hint=hint, about=about)


def shared(parameters: Mapping[str, Array], description: FileDescription) -> Iterator[PhaseFinding]:
    """Parameters that hold the same values, or each other's transposed, or with the columns in another order."""
    whole, members = _equal_layers(parameters)
    for one, others in whole.items():
        message = f"{' and '.join([one, *others])} hold the same parameters"
        hint = "is each layer its own? ALBERT's are one; a stack that was never trained is a copy of one layer"
        yield layer_finding("warning", "layers-hold-same-parameters", message, hint, layers=[one, *others])
    own = {name: value for name, value in parameters.items() if name not in members and np.ptp(value)}
    for names in _groups(own, _digest):
        held = {source.initializer for name in names if (source := description.parameters.get(name))}
        one = held.pop() if len(held) == 1 else ""
        what = f"are one tensor, {one!r}" if one else "hold the same values"
        kind: FindingKind = "parameters-tied" if one else "parameters-alike"
        yield _alike(names, what, kind)
    matrices = {name: value for name, value in own.items() if value.ndim == 2}
    for first, second in _transposed(matrices):
        yield _alike((first, second), "hold the same values, the one transposed", how="transposed")
    # Their columns are compared in the order of their first elements.
    for names in _groups(matrices, lambda value: _digest(value[:, np.argsort(value[0], kind="stable")])):
        if len({_digest(matrices[name]) for name in names}) > 1:
            yield _alike(names, "hold the same columns, in another order", how="reordered")


def _alike(
    names: tuple[str, ...], what: str, kind: FindingKind = "parameters-alike", how: str = "equal"
) -> PhaseFinding:
    hint = "in published encoders each has values of its own: was one projection exported for another?"
    message = f"{' and '.join(names)} {what}"
    return layer_finding("warning", kind, message, hint, parameters=names, how=how)


def _digest(value: Array) -> bytes:
    return sha256(str(value.shape).encode() + np.ascontiguousarray(value).tobytes()).digest()


def _groups(values: Mapping[str, Array], digest: Any) -> list[tuple[str, ...]]:
    """The names whose values have one digest, where there are several."""
    found: dict[bytes, list[str]] = defaultdict(list)
    for name, value in values.items():
        found[digest(value)].append(name)
    return [tuple(names) for names in found.values() if len(names) > 1]


def _transposed(matrices: Mapping[str, Array]) -> Iterator[tuple[str, str]]:
    as_is = {_digest(value): name for name, value in matrices.items()}
    for name, value in matrices.items():
        other = as_is.get(_digest(value.T))
        if other is not None and name < other:
            yield name, other


def _equal_layers(parameters: Mapping[str, Array]) -> tuple[dict[str, list[str]], set[str]]:
    """Layer of a stack → the later ones that equal it; and the parameters of those later ones."""
    layers: dict[str, dict[str, str]] = defaultdict(dict)
    for name in parameters:
        if name.startswith("layers."):
            prefix = ".".join(name.split(".")[:2])
            layers[prefix][name.removeprefix(f"{prefix}.")] = name
    first: dict[bytes, str] = {}
    equal: dict[str, list[str]] = defaultdict(list)
    members: set[str] = set()
    for prefix, names in layers.items():
        digest = b"".join(_digest(parameters[name]) for _, name in sorted(names.items()))
        if digest in first:
            equal[first[digest]].append(prefix)
            members |= set(names.values())
        first.setdefault(digest, prefix)
    return equal, members


def without_effect(case: Case) -> Iterator[PhaseFinding]:
    """The parameters that the output of this case does not depend on: their gradients are 0, each and everywhere.

    Not of a layer with more numbers than LARGE: gradients take as much memory as all its parameters once more.
    """
    if parameter_count(case.layer) > LARGE:
        return
    cotangent = np.random.default_rng(5).normal(size=case.x_shape)
    with np.errstate(all="ignore"):
        gradients = evaluate(case, Arithmetic(), cotangent).gradients
    dead = [
        name
        for name, gradient in gradients.items()
        if name in case.parameters() and not name.endswith(_UNSEEN) and not np.any(gradient)
    ]
    if dead:
        zeros = [name for name, value in case.parameters().items() if value.ndim == 2 and not np.any(value)]
        why = f"{' and '.join(zeros)} {'is' if len(zeros) == 1 else 'are'} 0 everywhere" if zeros else ""
        message = f"{', '.join(dead)} {'changes' if len(dead) == 1 else 'change'} nothing in the output"
        hint = "was a weight lost on the way, or never loaded?"
        message = f"{message}{': ' if why else ''}{why}"
        yield layer_finding("warning", "parameter-without-effect", message, hint, parameters=dead, zeros=zeros)


LARGE = 8_000_000
"""Parameters from which on a file is sampled: asked everything, a stack of six layers of 384 takes four minutes."""
_USUAL = 33
"""Positions of the longest case: a file that fixes more has so many fewer parameters from which on it is."""
RUNS = 4
"""Monte-Carlo runs behind σ, for the suite's 64: of an element with its neighbours it is known within a quarter."""
BATCH, SEQUENCE = 2, 6
KEPT = frozenset({"padding-right", "no-mask", "invariant-determinism", "invariant-padding-content"})


def sample(situations: Iterable[Situation], *, is_long: bool = False) -> Iterator[Situation]:
    """Those that a large file is asked: the first of other sizes, and what is kept. One that fixes a long sequence is
    asked no relation: each needs its own noise, of 64 runs."""
    sizes = 0
    for each in situations:
        if is_long and each.invariant is not None:
            continue
        sizes += each.situation.startswith("size-")
        if each.situation in KEPT or (sizes == 1 and each.situation.startswith("size-")):
            yield each


def is_sampled(subject: ExaminedFile) -> bool:
    """Whether it is; in float64, whose noise needs a wider golden, nothing is."""
    layer = subject.layer
    if layer is None or not subject.is_understood or subject.dtype == "float64":
        return False
    _, sequence = subject.description.sizes()
    return parameter_count(layer) * max(sequence or 1, _USUAL) > LARGE * _USUAL


def is_long(subject: ExaminedFile) -> bool:
    """Whether it fixes a longer sequence than is asked of others."""
    return (subject.description.sizes()[1] or 0) > _USUAL


def sampled_runs(runs: Sequence[RuntimeRun]) -> list[RuntimeRun]:
    """Those that are asked where the user names none; all, where none of them is among them."""
    return [run for run in runs if run.as_numbers or (run.runtime, run.level) == DEPLOYED] or list(runs)


def sampled_note(subject: ExaminedFile, runs: Sequence[RuntimeRun], cases: Iterable[Case]) -> PhaseFinding:
    assert subject.layer is not None
    million = parameter_count(subject.layer) / 1e6
    asked = ", ".join(run.name for run in runs)
    asked_in = list(cases)
    names = ", ".join(case.situation.situation for case in asked_in)
    largest = [max(size) for size in zip(*(case.x_shape[:2] for case in asked_in), strict=True)]
    size = f"at up to {' × '.join(map(str, largest))} positions"
    message = f"its {million:.0f} million parameters are sampled: {names}, {size}, in {asked}"
    hint = f"σ comes from {RUNS} runs of the oracle; --runtime asks others; a file of fewer layers is judged in full"
    about = {"parameters": parameter_count(subject.layer), "runs": [run.name for run in runs]}
    return PhaseFinding(phase="numbers", severity="note", kind="sampled", message=message, hint=hint, about=about)


def expected_of_sample(cases: Sequence[Case]) -> Mapping[str, Expected]:
    """Compute what each case should give, in this process: the parameters would have to travel to other processes."""
    return {case.id: _expected(case) for case in cases}


def _expected(case: Case) -> Expected:
    if case.needs_no_golden:
        return NOTHING
    inputs = given(case)
    with np.errstate(all="ignore"):
        golden = evaluate(case, Arithmetic(np.float64), None, inputs).stages
        condition = condition_at_kinks(case.layer, golden, sampled_conditions(case.layer, inputs, golden, RUNS))
    return thin(case, Expectation(dict(golden), condition, kinked_rows(case)), constants())

"""Finds out by perturbation how x lies: on the live module, not on an export."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product

import numpy as np

from encoder_conformance.protocol.description import Port
from encoder_conformance.readers.module_target.calling import is_another_sequence
from encoder_conformance.readers.module_target.errors import OF_ENCODERS, BadTarget, needs_cuda
from encoder_conformance.readers.module_target.furthest import furthest
from encoder_conformance.readers.module_target.live import LiveModule, Signature, joined, pieces
from encoder_conformance.readers.module_target.local import growth_by
from encoder_conformance.readers.module_target.missing import missed_by
from encoder_conformance.readers.module_target.otherwise_called import not_as_given
from encoder_conformance.readers.module_target.refusing import GivesNaN
from encoder_conformance.readers.module_target.returned import OtherShape
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics, semantics_of
from encoder_conformance.readers.onnx_file.interface.ports import Interface
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE, ProbeRun
from encoder_conformance.spec.axes import Array

_OF_NONE = (
    "NoneType", "is not None", "Got 'None'", "None values not supported", "'bool' object",
    "can't multiply sequence by non-int", "where it is not associated with a value",
)  # fmt: skip
"""What Python and the frameworks raise where one computes with None, or asserts that something is not None. What
is compared with it is one bool, and no array of them. What is made where it is given alone is never set. For the mask
of a list of tensors Keras puts a list of None."""
NO_KEY = re.compile(r"KeyError: '(\w+)'")
"""What Python raises where an argument is read off `**kwargs`."""
AS_MUCH = "an encoder layer takes x [batch, sequence, d_model] and gives as much; --at names a part of a model"
"""What is to be known where none of it does."""
_OTHER_LENGTHS = (8, 16, 64, 128, 512)
"""Numbers of positions that are tried where 5 are refused: blocks and landmarks divide them."""
_ASLEEP = 1e-3
"""Parameters that are all smaller have too little effect to be seen: a layer scale begins at 1e-4 to 1e-6."""
_STEEP = 4.0
"""A matrix that lets numbers grow by more, as one drawn of size 1, makes a softmax give one key everything: nobody sees
the others then. Those that frameworks draw are at 1.5 at most."""
_WIDTHS_TAKEN = 8
"""Of a whole model, which has more sizes than a layer."""
_WIDTHS = 4
"""The most values of d_model that are tried."""


def usual_x(runner: LiveModule) -> Array | None:
    """An x [3, 5, D] that it takes with nothing beside; None if it takes none."""
    for d_model in widths_of(runner):
        x = drawn((BATCH, SEQUENCE, d_model))
        with suppress(ExecutionError):
            runner.run({"x": x})
            return x
    return None


def first_x(runner: LiveModule) -> Array:
    """An x that it takes, [3, 5, D] in either layout, or [3, S, D] where it takes no 5 positions. Raises BadTarget if
    that fits with no D."""
    problems, tried, returned = [], [], ""
    lengths = dict.fromkeys([SEQUENCE, *([runner.length] if runner.length else []), *_OTHER_LENGTHS])
    for S, d_model in product(lengths, widths_of(runner)):
        x = drawn((BATCH, S, d_model))
        try:
            runner.run({"x": x})
        except ExecutionError as error:
            problems.append(str(error))
            returned = returned or (problems[-1] if isinstance(error, OtherShape) else "")
            tried.append((runner.signature.arrangement, x))
        else:
            return x
    if not problems:
        raise BadTarget(
            f"{runner.type_name} has no parameters", "an encoder layer has norms and weights", "no-parameters"
        )
    found = None if returned else furthest(runner, tried)
    if found and (refused := not_as_given(runner, found)):
        raise refused
    if found and found.reached.mend:
        problem = f"it takes no x [{BATCH}, {SEQUENCE}, d_model], nor any other: {found.problem}"
        raise BadTarget(problem, found.reached.mend, "takes-no-x")
    missed = missed_by(runner, found.arrangement, found.x, left_out(runner.signature)) if found else []
    said = returned or (found.problem if found else problems[0])
    raise _taking_none(runner, said, missed, answers=bool(returned))


def left_out(signature: Signature) -> list[str]:
    """The arguments that are left at their defaults, masks and other arrays first."""
    given, names = {*signature.fixed, *signature.arrangement.beside}, (*signature.masks, *signature.arrays)
    return [name for name in dict.fromkeys((*names, *signature.names)) if name not in given]


def _taking_none(runner: LiveModule, said: str, missed: list[str], *, answers: bool) -> BadTarget:
    """What is to be said of a module that takes no x. `said`: what it raised where it came furthest. `missed`: those
    arguments of it that may be left out, and for which it then raised that. `answers`: it raised nothing, and gave
    another shape."""
    signature = runner.signature
    if missing := not_given(signature):
        if signature.hands_on and (key := NO_KEY.match(said)) and key[1] not in missing:
            missing.append(key[1])
        refused = "None is refused" if is_of_none(said) else "with None it fails"
        problem = f"it needs {', '.join(missing)} beside {signature.x}, and {refused}: {said}"
        return BadTarget(problem, to_be_said(signature, "", *missing), "needs-arguments", arguments=missing)
    if given := "; ".join(f"{name}: {each.said}" for name, each in signature.arrangement.beside.items()):
        problem = f"it takes no x [{BATCH}, {SEQUENCE}, d_model], nor of other lengths tried, with {given}: {said}"
        return BadTarget(problem, to_be_said(signature), "takes-no-x")
    if runner.called_with:
        problem = f"it takes no x [{BATCH}, {SEQUENCE}, d_model]: its model calls it with {runner.called_with}"
        return BadTarget(problem, said, "takes-no-x")
    if second := next(filter(is_another_sequence, missed), ""):
        problem = f"it is a layer of a decoder: it needs {second} beside {signature.x}, which it attends to: {said}"
        return BadTarget(problem, OF_ENCODERS, "takes-several-inputs", arguments=[signature.x, second])
    unmasked = next((name for name in signature.masks if is_about(name, said)), None)
    if lacking := next(iter(missed), unmasked):
        default = f"give {lacking} a default that allows every key" if lacking in signature.masks else ""
        problem = f"it takes no x without {lacking}, whose default None it cannot do with: {said}"
        return BadTarget(problem, to_be_said(signature, default, lacking), "needs-arguments", arguments=[lacking])
    if needs_cuda(said):
        hint = "have it compute where x is: on x.device, and without kernels for the GPU alone"
        return BadTarget(f"it needs CUDA, and is called on the CPU: {said}", hint, "takes-no-x")
    if answers:
        return BadTarget(f"it takes x and gives nothing of its shape: {said}", AS_MUCH, "takes-no-x")
    unset = f"; {', '.join(signature.arrays)} had no value" if signature.arrays else ""
    problem = f"it takes no x [{BATCH}, {SEQUENCE}, d_model], nor of other lengths tried: {said}"
    return BadTarget(problem, AS_MUCH + unset, "takes-no-x")


def not_given(signature: Signature) -> list[str]:
    """The arguments that it needs beside x, and of which nothing is known."""
    beside = signature.arrangement.beside
    return [name for name, value in signature.fixed.items() if value is None and name not in beside]


def to_be_said(signature: Signature, first: str = "", *needed: str) -> str:
    """What a user does: what comes `first`, and how to say what an argument is given of which nothing is known.
    `needed`: those that it is about."""
    missing = needed or not_given(signature) or list(signature.arrangement.beside)
    hook = "say what it is given by def conform_inputs(batch, sequence) in its file, which gives a dict"
    ways = (f"--with {name}=VALUE (no array) and --inputs FILE (arrays)" for name in missing[:1])
    said = "".join(f"{hook}; conform check also has {each}" for each in ways)
    return "; or ".join(each for each in (first, said) if each)


def is_of_none(problem: str) -> bool:
    """Whether a call failed since an argument was left at None, by what the framework raised."""
    return any(words in problem for words in _OF_NONE)


def is_about(name: str, problem: str) -> bool:
    """Whether a call failed for None was given for an argument, which the last line of its frames reads."""
    return is_of_none(problem) and re.search(rf"\b{re.escape(name)}\b", problem.rpartition(": ")[2]) is not None


def refuse_what_changes_nothing(runner: LiveModule, x: Array) -> None:
    """Raises BadTarget where it returns x as it is. `runner`: with no parameter that is next to zero."""
    if np.array_equal(runner.run({"x": x})["output"], x):
        problem = "it returns its input as it is: nothing in it changes x"
        raise BadTarget(problem, "an encoder layer adds to x what its attention and network give", "input-returned")


def live_semantics(runner: LiveModule, x: Array) -> InputSemantics:
    """The layout of x, which it takes, and who sees whom, without masks. Raises BadTarget if it takes no other."""
    try:
        return semantics_of(probe_of(runner, x.shape))
    except ExecutionError as error:
        problem = f"it takes one x {list(x.shape)}, and not another: {error}"
        raise BadTarget(problem, "", "takes-no-x", taken=x.shape) from None


def probe_of(runner: LiveModule | GivesNaN, shape: tuple[int, ...], masks: tuple[Port, ...] = ()) -> ProbeRun:
    """`shape` of x, as the module takes it."""
    x, output = (Port(name=name, dtype="float32", shape=(None, None, shape[-1])) for name in ("x", "output"))
    shapes = {mask.name: tuple(size for size in mask.shape or () if isinstance(size, int)) for mask in masks}
    past_first = frozenset(runner.signature.arrangement.past_first)
    return ProbeRun(runner, Interface(x, output, masks), drawn(shape), shapes, past_first=past_first)  # type: ignore[arg-type]


def drawn(shape: tuple[int, ...]) -> np.ndarray:
    """Normal numbers of this shape, always the same."""
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def features_turned(x: Array, at: slice | tuple[slice | int, ...]) -> Array:
    """x [B, S, D], or in another order with D last, with the features turned round in one place: of a number that is
    added to all of them a norm would see nothing."""
    other = x.copy()
    other[at] = x[at][..., ::-1]
    return other


def is_one_number(output: Array) -> bool:
    """Whether all its elements are one number, as under a mask that hides everything."""
    return np.array_equal(output, np.broadcast_to(output.flat[0], output.shape))


@contextmanager
def awake(module: LiveModule) -> Iterator[None]:
    """For the time of a probe parameters that are next to zero are others, as the gain or the last map of a branch that
    begins training without effect: no mask changes what such a branch adds to x. Biases stay. Matrices of large numbers
    are smaller, so that attention is to more than one key."""
    before, generator = module.flat(), np.random.default_rng(1)
    values = dict(zip(module.shapes, pieces(before, module.shapes.values()), strict=True))
    asleep = {name for name, value in values.items() if _is_asleep(name, value)}
    steep = {name: growth for name, value in values.items() if (growth := growth_by(value)) > _STEEP}
    if not (asleep or steep):
        yield
        return
    drawn = {name: generator.normal(size=values[name].shape).astype(before.dtype) for name in asleep}
    smaller = {name: values[name] / growth for name, growth in steep.items()}
    module.assign(joined((values | drawn | smaller).values()))
    try:
        yield
    finally:
        module.assign(before)


def _is_asleep(name: str, value: Array) -> bool:
    return value.size > 0 and "bias" not in name.lower() and float(np.abs(value).max()) < _ASLEEP


def widths_of(module: LiveModule) -> list[int]:
    """The likeliest values of d_model: those of norms, then the commonest sizes."""
    sizes = Counter[int]()
    for name, shape in module.shapes.items():
        weight = 100 if "norm" in name.lower() or name.lower().startswith("ln") else 1
        sizes.update(dict.fromkeys(shape, weight))
    return [size for size, _ in sizes.most_common(_WIDTHS)]


def widths_taken(module: LiveModule) -> list[int]:
    """The likeliest numbers of features that a whole model takes: those of d_model, and those of its matrices, the
    first of which maps what it is given."""
    of_matrices = (size for shape in module.shapes.values() if len(shape) > 1 for size in reversed(shape))
    return [*dict.fromkeys([*widths_of(module), *of_matrices])][:_WIDTHS_TAKEN]

"""Reads off a signature which argument is x, which may be masks or other arrays, and what the others are given."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_origin

import numpy as np

from encoder_conformance.readers.module_target.callables import keys_read
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.live import Feeds, LiveModule, Second, Signature
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError

_MASK = re.compile("mask|padding|(?:^|_)(?:non)?pads?$|(?:^|_)adj(?:acency)?(?:_|$)")
_NO_MASK_WORDS = ("head_mask", "position", "rel", "encoder_att", "mem", "cross", "context", "cache")
_SWITCHES = ("output_", "return_", "use_", "is_causal", "need_", "needs_", "do_", "has_", "interpolate_", "enable_")
"""Beginnings of names that say what to do, and are given no array whatever their default is."""
_OF_STATE = ("is_", "with_")
"""Beginnings of others, unless a mask is named: is_padding."""
_SAID = ("mode", "name", "dtype", "device", "generator", "mutable", "method", "layer_idx", "seed")
_PLAIN = {"bool", "int", "float", "str", "tuple", "list", "Tuple", "List", "Sequence", "Callable", "dict", "Generator"}
_HOLDING = {"tuple", "list", "Tuple", "List", "Sequence"}
"""Of these, types that may hold arrays where nothing is said of what they hold."""
_ABSENT = {"None", "NoneType", "Optional", "Union", "typing", "builtins"}
_SECOND = re.compile(
    r"mem(ory)?(_states)?|context|tgt|cross_states|enc|encoded|"
    r"enc(od(er|ed|ing))?_(out(puts?)?|hidden(_states?)?|states?)"
)
"""Names of another sequence, which a layer of a decoder attends to."""
_X = (
    *("x", "hidden_states", "hidden_state", "inputs", "input", "src", "embeddings", "features", "tokens", "hidden"),
    *("inputs_embeds", "inp", "seq", "sequence", "h", "z"),
)
"""Names of x, where it is not the first argument."""
TRAINING = "training"
_EVALUATION: Mapping[str, bool] = {
    **dict.fromkeys(("deterministic", "inference"), True),
    **dict.fromkeys(("train", TRAINING, "is_training", "enable_dropout"), False),
}
"""What an argument that turns dropout off is given."""
_RANDOM = re.compile(r"((dropout|drop|random|rng|prng)_)?key|(\w+_)?p?rngs?")
"""Names of what random numbers are drawn of."""


def signature_of(forward: Callable[..., Any], name: str, *, skipped: int = 0, keys: bool = True) -> Signature:
    """Arguments that say whether it is in training are set to evaluation. `skipped`: arguments before x. `keys`: random
    numbers are drawn of keys that it is given, and nothing but such an argument says that it is in training.

    Raises BadTarget for a forward pass without arguments.
    """
    every = [*inspect.signature(forward).parameters.values()][skipped:]
    parameters = [p for p in every if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    hands_on = any(p.kind == p.VAR_KEYWORD for p in every)
    by_keys = hands_on and len(every) == len(parameters) + 1 and all(p.name in _SAID for p in parameters)
    if by_keys and (read := keys_read(forward, every[-1].name)):
        return _of_keys(read, [p.name for p in parameters if p.default is p.empty])
    if not parameters and every:  # whatever it is called with
        x = every[0].name if every[0].kind == every[0].VAR_POSITIONAL and len(every) == 1 else _X[0]
        return Signature(x, (), named=every[0].kind == every[0].VAR_KEYWORD, hands_on=hands_on)
    if not parameters:
        raise BadTarget(f"{name} takes no argument", "an encoder layer takes x", "takes-no-x")
    no_keys = [p for p in parameters if not (keys and is_random(p.name))]
    if not no_keys and any(p.kind == p.VAR_POSITIONAL for p in every):  # x is the first of those without a name
        drawn_of = tuple(p.name for p in parameters)
        return Signature(_X[0], (), dict.fromkeys(drawn_of), names=drawn_of, hands_on=hands_on)
    first = None if _is_called_by_place(every) else _x_of(no_keys or parameters)
    others = [p for p in parameters if p is not first]
    by_name = first is not None and (first.kind == first.KEYWORD_ONLY or first is not parameters[0])
    arrays = [p.name for p in others if _takes_array(p) and not (keys and is_random(p.name))]
    masks = tuple(name for name in arrays if may_be_mask(name))
    places = {p.name: place for place, p in enumerate(parameters) if p.kind != p.KEYWORD_ONLY}
    flags = (p for p in others if p.name in _EVALUATION)
    told = {p.name: _EVALUATION[p.name] for p in flags if keys or p.name == TRAINING or p.default is p.empty}
    needed = [p.name for p in others if _has_no_default(p) and p.name not in told]
    random = [each for each in needed if keys and is_random(each)]
    seconds = (each for each in needed if is_another_sequence(each) and each not in random)
    second = next((Second(each, name, _line_of(forward)) for each in seconds), None)
    left = tuple(name for name in arrays if name not in masks)
    fixed = {**dict.fromkeys(needed), **told}
    names = tuple(p.name for p in others)
    x = _X[0] if first is None else first.name
    return Signature(x, masks, fixed, left, places, by_name, names, hands_on=hands_on, second=second)


def _of_keys(read: Mapping[str, bool], said: Iterable[str]) -> Signature:
    """Of a call that takes arguments by whatever name. `read`: each that it reads → whether it does not do without.
    `said`: what has to be said beside them, as a mode."""
    read = {**read, **dict.fromkeys(said, True)}
    needed = [name for name, is_needed in read.items() if is_needed]
    no_masks = [name for name in (*needed, *read) if not may_be_mask(name) and name not in _SAID]
    x = next((name for name in no_masks if name in _X), next(iter(no_masks), _X[0]))
    others = tuple(name for name in read if name != x)
    masks = tuple(name for name in others if may_be_mask(name))
    arrays = (name for name in others if name not in (*masks, *_SAID, *_EVALUATION) and not name.startswith(_SWITCHES))
    fixed = {name: _EVALUATION.get(name) for name in needed if name != x}
    return Signature(x, masks, fixed, tuple(arrays), named=True, names=others, hands_on=True)


def is_another_sequence(name: str) -> bool:
    """Whether an argument is by its name what a layer of a decoder attends to."""
    return _SECOND.fullmatch(name) is not None


def refuse_uncalled(module: object) -> None:
    """Raises BadTarget for a module that cannot be called, as one whose methods are called by their names."""
    if not callable(module):
        raise uncalled(module, "__call__")


def uncalled(module: object, call: str) -> BadTarget:
    """What is to be said of a module that has no such `call`."""
    kind = type(module)
    own = ((name, each) for name, each in vars(kind).items() if inspect.isfunction(each) and name != call)
    methods = [name for name, each in own if _takes_inputs(name, each)]
    hint = f"name a module of yours whose {call} calls {' or '.join(methods) or 'it'}"
    return BadTarget(f"{kind.__name__} has no {call}", hint, "takes-no-x")


def _takes_inputs(name: str, method: Callable[..., Any]) -> bool:
    return not name.startswith("_") and name != "setup" and len(inspect.signature(method).parameters) > 1


def _is_called_by_place(parameters: list[inspect.Parameter]) -> bool:
    """Whether x is the first of arguments without a name, as of `__call__(self, *args, method=None)`."""
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    by_name_alone = all(p.kind == p.KEYWORD_ONLY and p.name not in _X for p in named)
    return by_name_alone and any(p.kind == p.VAR_POSITIONAL for p in parameters)


def _x_of(parameters: list[inspect.Parameter]) -> inspect.Parameter:
    """The first argument; or one that is called as x is, where the first is a mask, or has a default and that none."""
    first = parameters[0]
    named = [p for p in parameters if p.name in _X]
    is_other = may_be_mask(first.name) or (first.default is not first.empty and named[:1] != [first])
    return named[0] if named and is_other else first


def _line_of(forward: Callable[..., Any]) -> str:
    """Where it is defined, as ` (file.py:12)`; "" where that is not known."""
    code = getattr(inspect.unwrap(forward), "__code__", None)
    return f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code else ""


def is_of_evaluation(named: Mapping[str, Any]) -> bool:
    """Whether these arguments say nothing but that it is not in training."""
    return all(name in _EVALUATION and value is _EVALUATION[name] for name, value in named.items())


def in_training(forward: Callable[..., Any], key: object = None) -> dict[str, Any]:
    """The arguments that turn dropout on, and what it is drawn from: `key`, where there is one."""
    names = inspect.signature(forward).parameters
    told = {name: not value for name, value in _EVALUATION.items() if name in names}
    return told | ({} if key is None else {name: key for name in names if is_random(name)})


def turned_to_training(signature: Signature) -> Signature:
    """The same call, in which the arguments that turn dropout off turn it on."""
    told = {name: not _EVALUATION[name] for name in signature.fixed if name in _EVALUATION}
    return replace(signature, fixed={**signature.fixed, **told})


def drops_unless_told(signature: Signature, called: Callable[[Signature], LiveModule], feeds: Feeds) -> bool:
    """Whether it answers otherwise where nothing is said of training."""
    if TRAINING not in signature.fixed:
        return False
    left = {name: value for name, value in signature.fixed.items() if name != TRAINING}
    try:
        told, untold = (called(each).run(feeds)["output"] for each in (signature, replace(signature, fixed=left)))
    except ExecutionError:  # it has to be told
        return False
    return not np.array_equal(told, untold)


def is_random(name: str) -> bool:
    """Whether by its name an argument is what random numbers are drawn of, where a framework draws them of keys."""
    return _RANDOM.fullmatch(name) is not None


def may_have_any_name(name: str) -> bool:
    """Whether the name of an argument leaves open what it is."""
    return not any(word in name.lower() for word in _NO_MASK_WORDS)


def is_called_mask(name: str) -> bool:
    """Whether its name says that an argument hides positions, and not that it is a bias of scores."""
    return _MASK.search(name.lower()) is not None


def may_be_mask(name: str) -> bool:
    return (is_called_mask(name) or "bias" in name.lower()) and may_have_any_name(name)


def _has_no_default(parameter: inspect.Parameter) -> bool:
    """Whether it has to be given: it has none, or a type in its place, as in `size=List[int]`."""
    default = parameter.default
    is_type = get_origin(default) is not None or any(default is each for each in (int, float, tuple, list))
    return default is parameter.empty or is_type


def _takes_array(parameter: inspect.Parameter) -> bool:
    """Whether it is left at None, and neither its name nor its type says that it is no array, or none of several."""
    left = parameter.default is None or parameter.default is parameter.empty
    if not left or parameter.name in (*_SAID, *_EVALUATION):
        return False
    words = set(re.findall(r"\w+", _type_of(parameter))) - _ABSENT
    name = parameter.name
    switch = name.startswith(_SWITCHES) or (name.startswith(_OF_STATE) and not may_be_mask(name))
    return not switch and not (words and words <= _PLAIN and not words <= _HOLDING)


def _type_of(parameter: inspect.Parameter) -> str:
    """The annotation as a source has it; "" without one."""
    kind = parameter.annotation
    return "" if kind is parameter.empty else kind if isinstance(kind, str) else inspect.formatannotation(kind)

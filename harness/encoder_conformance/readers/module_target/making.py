"""What a class or function is called with to make a module: what the user says, and what its required arguments mean
by their names, as `d_model`, `nhead` and `config` do."""

import ast
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial
from itertools import takewhile
from types import UnionType
from typing import Any, Union, get_args, get_origin

from encoder_conformance.readers.module_target.argument_names import (
    FEED_FORWARD,
    MEANT,
    WIDTH,
    Known,
    kinds_of,
    with_width_of_heads,
)
from encoder_conformance.readers.module_target.callables import FREE, attributes_read, names_of, parameters_of
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.graphs_of_keras import initializer_of, symbolic_x
from encoder_conformance.readers.module_target.importing import without_input

_OF_CONFIGURATION = re.compile(r"(.*_)?(config|cfg|conf|args|hparams|opts?|params)")
_OF_MAPPINGS = ("get", "keys", "items", "pop", "setdefault", "update")
"""What a mapping has, and no configuration by attributes."""
UNKNOWN = "…"
"""What stands in an expression for what nobody knows."""
_OF_RANDOMNESS = {"rngs": "nnx.Rngs(0)", "key": "jax.random.PRNGKey(0)", "rng": "jax.random.PRNGKey(0)"}
"""What Flax NNX, Equinox and plain JAX draw parameters with."""
_PARTS = (
    (re.compile(r"(\w+_)?(attn|attention|mha)"), re.compile(r".*Attention")),
    (re.compile(r"(\w+_)?(feed_?forward|ffn?|mlp)"), re.compile(r".*(FeedForward|Feed_Forward|FFN|MLP|Mlp)\w*")),
    (re.compile(r"(encoder_)?(layer|block)"), re.compile(r".*(EncoderLayer|Block)")),
)
"""Names of arguments that are modules, and of the classes that these may be."""


def value_of(text: str, names: Mapping[str, Any] | None = None) -> Any:
    """The value of an argument: a Python literal, an expression of `names` as in `cfg=Config(dim=64)`, or a word.

    A name alone is a word, but for that of a configuration that the file holds. Raises BadTarget for a call of what is
    not among the names.
    """
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    try:
        expression = ast.parse(text, mode="eval").body
    except SyntaxError:
        return text
    if isinstance(expression, ast.Name) and _is_configuration(held := (names or {}).get(text)):
        return held
    if names is None or not isinstance(expression, (ast.Call, ast.Attribute)):
        return text
    if _root(expression) not in names:
        if isinstance(expression, ast.Attribute):
            return text
        hint = "an argument uses the names that the target's file defines or imports"
        raise BadTarget(f"{text}: the file of the target has no {_root(expression)!r}", hint)
    return without_input(lambda: eval(text, dict(names)))


def _is_configuration(held: object) -> bool:
    """A mapping, an instance of a dataclass, or a class of that name whose attributes are read, as of `base_config`."""
    if inspect.isclass(held):
        return "config" in held.__name__.lower() and not is_dataclass(held)
    return isinstance(held, Mapping) or is_dataclass(held)


def _root(expression: ast.expr) -> str:
    while isinstance(expression, (ast.Call, ast.Attribute)):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def needed(found: Any, given: Mapping[str, Any]) -> list[inspect.Parameter]:
    """The arguments without which it cannot be called, less those given."""
    missing = (p for p in parameters_of(found) if p.name not in given)
    return [p for p in missing if p.default is p.empty and p.kind not in FREE]


def randomness_left_out(found: Any, given: Mapping[str, Any]) -> dict[str, str]:
    """Argument that is None unless it is given, and draws parameters by its name → the text of an expression of it."""
    names = names_of(found)
    left = (p.name for p in parameters_of(found) if p.default is None and p.name not in given)
    return {name: _OF_RANDOMNESS[name] for name in left if _draws(name, names)}


def _draws(name: str, names: Mapping[str, Any]) -> bool:
    return name in _OF_RANDOMNESS and _OF_RANDOMNESS[name].partition(".")[0] in names


def _defaults(found: Any) -> dict[str, Any]:
    """Argument → what it is where nothing is given."""
    return {p.name: p.default for p in parameters_of(found) if p.default is not p.empty}


def is_known(text: str) -> bool:
    """Whether an expression that was supposed can be evaluated: nothing in it is unknown."""
    return bool(text) and UNKNOWN not in text


def supposed(found: Any, given: Mapping[str, str], stated: Mapping[re.Pattern[str], str]) -> dict[str, str]:
    """Required argument → what its name or class says that it may be, as the text of an expression, with `UNKNOWN`
    for what says nothing in it; "" for one that says nothing at all. What is given stands for all of its kind: `--arg
    dim=32` for the width of each part, too. `stated`: what the layer has that it should be."""
    known = {**dict(MEANT), **stated}
    missing = {p.name: p for p in needed(found, given)}
    found = found.func if isinstance(found, partial) else found
    known = {**with_width_of_heads(known, _defaults(found))}
    for name, text in given.items():
        known |= dict.fromkeys(kinds_of(name)[:1], text)
    chosen = _of_names(missing, found, known, ())
    if (name := next(iter(missing), "")) and not chosen[name]:
        chosen[name] = symbolic_x(found, name, known[WIDTH])
    return chosen


def _of_names(
    parameters: Mapping[str, inspect.Parameter | None], found: Any, known: Known, outer: tuple[Any, ...]
) -> dict[str, str]:
    """`known`: the table, with what is given. `outer`: the classes that are being made, of which none is an argument of
    itself."""
    kinds = {name: kinds_of(name) for name in parameters}
    if not any(WIDTH in found_kinds for found_kinds in kinds.values()):  # a depth that no loop counts is a width
        kinds |= {name: [WIDTH] for name in kinds if name == "depth" and not _loops_over(found, name)}
    widths = [name for name, found_kinds in kinds.items() if WIDTH in found_kinds]
    if all(FEED_FORWARD in kinds[name] for name in widths):  # `hidden_size` is that of x, unless another is
        kinds |= {name: [WIDTH] for name in widths[:1]}
    return {
        name: (_of_class(parameter, found, known, outer) if parameter else "")
        or next((known[kind] for kind in kinds[name]), "")
        for name, parameter in parameters.items()
    }


def _loops_over(found: Any, name: str) -> bool:
    """Whether it makes as many of something: its source tells, and where there is none it may."""
    try:
        source = inspect.getsource(found)
    except (OSError, TypeError):
        return True
    return bool(re.search(rf"(range|\w*clones?|repeat)\([^)]*\b{name}\b", source))


def _of_class(parameter: inspect.Parameter, found: Any, known: Known, outer: tuple[Any, ...]) -> str:
    """What an argument is by its class, or by the one class that its name fits; "" for one that is of none."""
    name, names = parameter.name, names_of(found)
    if _draws(name, names):
        return _OF_RANDOMNESS[name]
    if begun := initializer_of(found, name):
        return begun
    kind = _annotated(parameter, found, names) or _part(name, found, names)
    if _OF_CONFIGURATION.fullmatch(name) and (kind is None or inspect.isclass(kind)):
        kind = _that_has_what_is_read(kind, found, name)
    if (
        inspect.isclass(kind)
        and kind not in (*outer, found)
        and _is_of_it(kind, found)
        and (said := _name(kind, names))
    ):
        fitting = with_width_of_heads(known, _defaults(kind))
        made = _called(said, _of_names({p.name: p for p in needed(kind, {})}, kind, fitting, (*outer, found)))
        if is_known(made) or not _OF_CONFIGURATION.fullmatch(name):
            return made
    if (kind is None or inspect.isclass(kind)) and _OF_CONFIGURATION.fullmatch(name):
        for of_kind, keys in (("SimpleNamespace", False), ("dict", True)):
            attributes = dict.fromkeys(attributes_read(found, name, (), keys=keys))
            attributes = {each: None for each in attributes if keys or each not in _OF_MAPPINGS}
            read = _of_names(attributes, found, known, outer)
            if any(read.values()):
                return _called(of_kind, read)
    return ""


def _that_has_what_is_read(annotated: type | None, found: Any, name: str) -> type | None:
    """The class of a configuration: the annotated one, where an instance has what is read of it, else one of the same
    file that has, those first whose names begin most as that of what is made, as CanineConfig for CanineLayer. An
    annotation may name the model's, where a layer is made from that of one of its parts."""
    read = set(attributes_read(found, name, ()))
    classes = (each for each in names_of(found).values() if inspect.isclass(each) and each.__name__.endswith("Config"))
    own = [each for each in dict.fromkeys(classes) if each is not annotated and _is_of_it(each, found)]
    nearest_first = sorted(own, key=lambda each: each not in _nearest(own, found))
    kinds = [*([annotated] if annotated else []), *(nearest_first if read else [])]
    return next((each for each in kinds if _has(each, read)), annotated)


def _has(kind: type, attributes: set[str]) -> bool:
    """Whether an instance that is made of nothing has these attributes."""
    try:
        made = without_input(kind)
    except BadTarget:
        return False
    return all(hasattr(made, each) for each in attributes)


def _is_of_it(kind: type, found: Any) -> bool:
    """Whether a class is of the same package, or a configuration: `nn.Module` says nothing of what it may be."""
    return kind.__module__.partition(".")[0] == found.__module__.partition(".")[0] or kind.__name__.endswith("Config")


def _part(name: str, found: Any, names: Mapping[str, Any]) -> Any:
    """The one class of its file that an argument without annotation may be, by its name; `d_ff` is a size."""
    if kinds_of(name):
        return None
    for pattern, of_class in _PARTS:
        if pattern.fullmatch(name):
            kinds = [each for each in names.values() if inspect.isclass(each) and of_class.fullmatch(each.__name__)]
            own = [each for each in dict.fromkeys(kinds) if _is_of_it(each, found) and each is not found]
            return own[0] if len(own) == 1 else None
    return None


def _nearest(kinds: Sequence[type], found: Any) -> list[type]:
    """Those whose names begin most as that of what is made."""
    own = getattr(found, "__name__", "")
    pairs = (zip(own, each.__name__, strict=False) for each in kinds)
    alike = [len([*takewhile(lambda pair: pair[0] == pair[1], each)]) for each in pairs]
    return [each for each, length in zip(kinds, alike, strict=True) if length == max(alike)]


def _called(name: str, arguments: Mapping[str, str]) -> str:
    return f"{name}({', '.join(f'{each}={text or UNKNOWN}' for each, text in arguments.items())})"


def _annotated(parameter: inspect.Parameter, found: Any, names: Mapping[str, Any]) -> Any:
    """The annotation of an argument, of several classes the first of the nearest to the name of what is made; None
    where it has none, or one that cannot be evaluated."""
    annotation = None if parameter.annotation is parameter.empty else parameter.annotation
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, dict(names))
        except Exception:  # of a name that is there for type checkers alone
            return None
    kinds = [each for each in get_args(annotation) if inspect.isclass(each) and each is not type(None)]
    return _nearest(kinds, found)[0] if kinds and get_origin(annotation) in (Union, UnionType) else annotation


def _name(kind: type, names: Mapping[str, Any]) -> str:
    """How a file calls a class: by a name of its own, or as an attribute of a module; "" where it does neither."""
    own = next((name for name, value in names.items() if value is kind), "")
    holders = (name for name, value in names.items() if inspect.ismodule(value))
    held = (name for name in holders if getattr(names[name], kind.__name__, None) is kind)
    return own or next((f"{name}.{kind.__name__}" for name in held), "")

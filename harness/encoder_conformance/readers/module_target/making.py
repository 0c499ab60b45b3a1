"""What a class or function is called with to make a module: what the user says, and what its required arguments mean
by their names, as `d_model`, `nhead` and `config` do."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.importing import without_input
from encoder_conformance.readers.module_target.size_names import FEED_FORWARD, WIDTH
from encoder_conformance.spec.layer import Layer

_FREE = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
_OF_CONFIGURATION = re.compile(r"(.*_)?(config|cfg|conf|args|hparams|opts?|params)")
_SIDE = re.compile(r"(encoder|enc|src|source|model|transformer|layer)_(?=.)")
"""What a name may begin with, and says nothing of what it is."""
_KEY_VALUE_HEADS = re.compile(r"(n|num)?_?(kv|key_?value)_?(heads?|groups)")
_HEADS = re.compile(r"h|n_?head|(n|num|number_of)?_?(attn|attention)?_?heads?(_?(num|count))?")
_HEAD_WIDTH = re.compile(r"heads?_?(dim|size)|(dim|d)_?heads?(_inner)?|d_?[kv]|d_?kv|(key|value|query)_(dim|size)")
_LAYERS = re.compile(r"depth|layers|N|(n|num|number_of)_?(hidden_?)?(layers?|blocks)")
_EPSILON = re.compile(r"(.*_)?eps(ilon)?")
_ACTIVATION = re.compile(r"(hidden_)?act(ivation)?(_fn|_function)?")
_BIAS = re.compile(r"(\w+_)?bias")
_NORM_FIRST = re.compile(r"norm(alize)?_(before|first)|pre_?(norm|ln)")
_MEANT = (
    (FEED_FORWARD, "96"),
    (WIDTH, "64"),
    (_KEY_VALUE_HEADS, "2"),
    (_HEADS, "4"),
    (_HEAD_WIDTH, "16"),
    (re.compile(r"(mlp|ffn?|expansion|widening)_?(ratio|mult|factor)|forward_expansion"), "2"),
    (_LAYERS, "2"),
    (re.compile(r"(.*_)?p?drop(out|_?path)?(_?(rate|prob|p|ratio))?|rate|p|dp"), "0.1"),
    (_EPSILON, "1e-05"),
    (re.compile(r"voc(ab(ulary)?)?_?(size|dim)|n_((src|trg|tgt)_)?vocab|num_(tokens|embeddings)|ntokens?"), "100"),
    (re.compile(r"max_?(seq(uence)?_?)?len(gth)?|max_position(s|_embeddings)|block_size|context_length|n_ctx"), "512"),
    (_ACTIVATION, "'gelu'"),
    (_BIAS, "True"),
    (_NORM_FIRST, "True"),
    (re.compile(r"is_decoder|(add_)?cross_attention|output_attentions|gradient_checkpointing"), "False"),
    (re.compile(r"(\w+_)?pad(ding)?_(idx|id|index)"), "0"),
    (re.compile(r"chunk_size_feed_forward|(layer_|block_)?(id|idx|index|number)"), "0"),
    (re.compile(r"init(ializer)?_(range|std)"), "0.02"),
    (re.compile(r"device"), "'cpu'"),
)  # fmt: skip
"""What a required argument of such a name is given, the first that fits: a layer of 4 heads and 64 features, whose
sizes can be told apart."""
UNKNOWN = "…"
"""What stands in an expression for what nobody knows."""
_Known = Mapping[re.Pattern[str], str]
_OF_RANDOMNESS = {"rngs": "nnx.Rngs(0)", "key": "jax.random.PRNGKey(0)", "rng": "jax.random.PRNGKey(0)"}
"""What Flax NNX, Equinox and plain JAX draw parameters with."""
_MODULES = {"jax": "jax", "nnx": "flax.nnx"}
"""Names that each argument may use where they are imported."""
_PARTS = (
    (re.compile(r"(\w+_)?(attn|attention|mha)"), re.compile(r".*Attention")),
    (re.compile(r"(\w+_)?(feed_?forward|ffn?|mlp)"), re.compile(r".*(FeedForward|Feed_Forward|FFN|MLP|Mlp)\w*")),
    (re.compile(r"(encoder_)?(layer|block)"), re.compile(r".*(EncoderLayer|Block)")),
)
"""Names of arguments that are modules, and of the classes that these may be."""


def value_of(text: str, names: Mapping[str, Any] | None = None) -> Any:
    """The value of an argument: a Python literal, an expression of `names` as in `cfg=Config(dim=64)`, or a word.

    A name alone is a word. Raises BadTarget for a call of what is not among the names.
    """
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        pass
    try:
        expression = ast.parse(text, mode="eval").body
    except SyntaxError:
        return text
    if names is None or not isinstance(expression, (ast.Call, ast.Attribute)):
        return text
    if _root(expression) not in names:
        if isinstance(expression, ast.Attribute):
            return text
        hint = "an argument uses the names that the target's file defines or imports"
        raise BadTarget(f"{text}: the file of the target has no {_root(expression)!r}", hint)
    return without_input(lambda: eval(text, dict(names)))


def _root(expression: ast.expr) -> str:
    while isinstance(expression, (ast.Call, ast.Attribute)):
        expression = expression.func if isinstance(expression, ast.Call) else expression.value
    return expression.id if isinstance(expression, ast.Name) else ""


def names_of(found: Any) -> dict[str, Any]:
    """The names that the arguments of a class or function may use: those of the file that defines it, SimpleNamespace,
    and what draws parameters. One that was handed over by value has the names that its own code uses."""
    code = found.__init__ if inspect.isclass(found) else found
    own = sys.modules.get(getattr(found, "__module__", None) or "")
    imported = {name: sys.modules[module] for name, module in _MODULES.items() if module in sys.modules}
    return {
        "SimpleNamespace": SimpleNamespace,
        **imported,
        **(vars(own) if own else {}),
        **getattr(code, "__globals__", {}),
    }


def parameters_of(found: Any) -> list[inspect.Parameter]:
    """What it is called with; [] where its signature is not to be had. Raises nothing."""
    try:
        parameters = list(inspect.signature(found).parameters.values())
        if inspect.isclass(found) and all(
            p.kind in _FREE for p in parameters
        ):  # Flax NNX calls __init__ by a metaclass
            parameters = list(inspect.signature(found.__init__).parameters.values())[1:]
    except (TypeError, ValueError):
        return []
    return parameters


def needed(found: Any, given: Mapping[str, Any]) -> list[inspect.Parameter]:
    """The arguments without which it cannot be called, less those given."""
    missing = (p for p in parameters_of(found) if p.name not in given)
    return [p for p in missing if p.default is p.empty and p.kind not in _FREE]


def is_known(text: str) -> bool:
    """Whether an expression that was supposed can be evaluated: nothing in it is unknown."""
    return bool(text) and UNKNOWN not in text


def supposed(found: Any, given: Mapping[str, str], stated: Mapping[re.Pattern[str], str]) -> dict[str, str]:
    """Required argument → what its name or class says that it may be, as the text of an expression, with `UNKNOWN`
    for what says nothing in it; "" for one that says nothing at all. What is given stands for all of its kind: `--arg
    dim=32` for the width of each part, too. `stated`: what the layer has that it should be."""
    known = {**dict(_MEANT), **stated}
    missing = {p.name: p for p in needed(found, given)}
    found = found.func if isinstance(found, partial) else found
    for name, text in given.items():
        known |= dict.fromkeys(_kinds_of(name)[:1], text)
    return _of_names(missing, found, known, ())


def stated_by(layer: Layer | None, resize: bool) -> dict[re.Pattern[str], str]:
    """What arguments are by the layer that a module should be: its choices, and its sizes unless the layer is asked at
    the module's own (`resize`). {} where none is stated; "" for biases of which it has some."""
    if layer is None:
        return {}
    attention, biases = (
        layer.attention,
        {layer.attention.qkv_bias, layer.attention.output_bias, layer.feed_forward.bias},
    )
    chosen = {
        _EPSILON: f"{layer.norm.epsilon:.6g}",  # which is rounded to float32
        _ACTIVATION: repr(layer.feed_forward.activation),
        _BIAS: repr(biases.pop()) if len(biases) == 1 else "",
        _NORM_FIRST: repr(layer.norm.placement == "pre"),
    }
    if resize:
        return chosen if attention.kv_heads else {**chosen, _KEY_VALUE_HEADS: dict(_MEANT)[_HEADS]}
    sizes = {
        WIDTH: layer.d_model,
        FEED_FORWARD: layer.feed_forward.d_ff,
        _HEADS: attention.num_heads,
        _KEY_VALUE_HEADS: attention.kv_heads or attention.num_heads,
        _HEAD_WIDTH: layer.head_dim,
        _LAYERS: layer.stack.layers,
    }
    return chosen | {pattern: str(size) for pattern, size in sizes.items()}


def _kinds_of(name: str) -> list[re.Pattern[str]]:
    """The patterns of the table that a name fits, the likeliest first."""
    short = _SIDE.sub("", name, count=1)
    return [pattern for pattern, _ in _MEANT if pattern.fullmatch(short)]


def _of_names(
    parameters: Mapping[str, inspect.Parameter | None], found: Any, known: _Known, outer: tuple[Any, ...]
) -> dict[str, str]:
    """`known`: the table, with what is given. `outer`: the classes that are being made, of which none is an argument of
    itself."""
    kinds = {name: _kinds_of(name) for name in parameters}
    widths = [name for name, found_kinds in kinds.items() if WIDTH in found_kinds]
    if all(FEED_FORWARD in kinds[name] for name in widths):  # `hidden_size` is that of x, unless another is
        kinds |= {name: [WIDTH] for name in widths[:1]}
    return {
        name: (_of_class(parameter, found, known, outer) if parameter else "")
        or next((known[kind] for kind in kinds[name]), "")
        for name, parameter in parameters.items()
    }


def _of_class(parameter: inspect.Parameter, found: Any, known: _Known, outer: tuple[Any, ...]) -> str:
    """What an argument is by its class, or by the one class that its name fits; "" for one that is of none."""
    name, names = parameter.name, names_of(found)
    if name in _OF_RANDOMNESS and _OF_RANDOMNESS[name].partition(".")[0] in names:
        return _OF_RANDOMNESS[name]
    kind = _annotated(parameter, names) or (None if _kinds_of(name) else _part(name, found, names))
    if (
        inspect.isclass(kind)
        and kind not in (*outer, found)
        and _is_of_it(kind, found)
        and (said := _name(kind, names))
    ):
        made = _called(said, _of_names({p.name: p for p in needed(kind, {})}, kind, known, (*outer, found)))
        if is_known(made) or not _OF_CONFIGURATION.fullmatch(name):
            return made
    if (kind is None or inspect.isclass(kind)) and _OF_CONFIGURATION.fullmatch(name):
        attributes = dict.fromkeys(_read_of(found, name, ()))
        read = _of_names(attributes, found, known, outer)
        return _called("SimpleNamespace", read) if any(read.values()) else ""
    return ""


def _is_of_it(kind: type, found: Any) -> bool:
    """Whether a class is of the same package, or a configuration: `nn.Module` says nothing of what it may be."""
    return kind.__module__.partition(".")[0] == found.__module__.partition(".")[0] or kind.__name__.endswith("Config")


def _part(name: str, found: Any, names: Mapping[str, Any]) -> Any:
    """The one class of its file that an argument without annotation may be, by its name; `d_ff` is a size."""
    if _kinds_of(name):
        return None
    for pattern, of_class in _PARTS:
        if pattern.fullmatch(name):
            kinds = [each for each in names.values() if inspect.isclass(each) and of_class.fullmatch(each.__name__)]
            own = [each for each in dict.fromkeys(kinds) if _is_of_it(each, found) and each is not found]
            return own[0] if len(own) == 1 else None
    return None


def _called(name: str, arguments: Mapping[str, str]) -> str:
    return f"{name}({', '.join(f'{each}={text or UNKNOWN}' for each, text in arguments.items())})"


def _annotated(parameter: inspect.Parameter, names: Mapping[str, Any]) -> Any:
    """The annotation of an argument; None where it has none, or one that cannot be evaluated."""
    if not isinstance(parameter.annotation, str):
        return None if parameter.annotation is parameter.empty else parameter.annotation
    try:
        return eval(parameter.annotation, dict(names))
    except Exception:  # of a name that is there for type checkers alone
        return None


def _name(kind: type, names: Mapping[str, Any]) -> str:
    """How a file calls a class: by a name of its own, or as an attribute of a module; "" where it does neither."""
    own = next((name for name, value in names.items() if value is kind), "")
    holders = (name for name, value in names.items() if inspect.ismodule(value))
    held = (name for name in holders if getattr(names[name], kind.__name__, None) is kind)
    return own or next((f"{name}.{kind.__name__}" for name in held), "")


def _read_of(found: Any, name: str, seen: tuple[Any, ...]) -> Iterator[str]:
    """The attributes that a class or function reads of its argument, and those that what it hands it on to reads."""
    if found in seen or not (tree := _tree_of(found)):
        return
    names = names_of(found)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and _is_named(node.value, name):
            yield node.attr
        called = names.get(node.func.id) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
        if isinstance(node, ast.Call) and callable(called) and (handed := _parameter_given(node, name, called)):
            yield from _read_of(called, handed, (*seen, found))
    for base in getattr(found, "__bases__", ()):
        if base.__module__ == found.__module__:
            yield from _read_of(base, name, (*seen, found))


def _tree_of(found: Any) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(found)))
    except (OSError, TypeError, SyntaxError):
        return None


def _is_named(value: ast.expr, name: str) -> bool:
    """Whether it is this argument, or what `self` keeps it as."""
    if isinstance(value, ast.Attribute):
        return value.attr == name and isinstance(value.value, ast.Name) and value.value.id == "self"
    return isinstance(value, ast.Name) and value.id == name


def _parameter_given(call: ast.Call, name: str, called: Any) -> str:
    """Under which name a call hands an argument on; "" where it does not."""
    for keyword in call.keywords:
        if keyword.arg and _is_named(keyword.value, name):
            return keyword.arg
    at = next((at for at, value in enumerate(call.args) if _is_named(value, name)), None)
    parameters = needed(called, {})
    return parameters[at].name if at is not None and at < len(parameters) else ""

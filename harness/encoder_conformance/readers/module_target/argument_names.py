"""What the name of an argument says that it is: a size, a choice or a rate; and what the layer has that was stated."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from encoder_conformance.spec.layer import Layer

Known = Mapping[re.Pattern[str], str]
"""Pattern of a name → the text of its value."""
_HIDDEN = r"(num_|n_?)?hid(den)?s?(_?(dim|size|features|channels|units))?"
"""Either, by what stands beside it."""
_FEED_FORWARD = (
    r"d_?((point|position)_?wise_?)?(ffn?|feed_?forward)(_inner)?|d_?(inner|hid(den)?|mlp)|"
    r"dim_?(feed_?forward|ffn?|inner|mlp)|linear_units|inner|feed_?forward_depth|"
    r"((point|position)_?wise_?)?(ff|ffn|mlp|feed_?forward|pf|inner|dense|filter|intermediate|expansion|expanded)"
    r"(_?(num|embed|hiddens?|layer_size|projection|dims?|size|features|channels|units|nodes|neurons))+"
)
FEED_FORWARD = re.compile(f"{_FEED_FORWARD}|{_HIDDEN}")
WIDTH = re.compile(
    r"d_?(models?|input|emb(ed|d)?|word_vec)|dm|dim_?(model|emb(ed|d)?)|h_dim|model_depth|projection_dim|"
    r"(model_?|emb(ed(ding)?|d)?_?|in(put)?_?|out(put)?_?|feature_?|token_?)?dims?|"
    r"(emb(ed(d(ing)?)?|d)?|model|feature|output)_?size|"
    r"n_?embe?d?|n_?inp(ut)?|n_state|width|(in_|out_|num_|n_)?(features|channels)|size|units|" + _HIDDEN
)
_ALL_HEADS = re.compile(r"(qkv|qk|attn|attention)_?(dim|size|features|width)")
"""The width of all heads together."""
_SIDE = re.compile(r"(encoder|enc|src|source|model(?!_depth)|transformer|layer|total)_(?=.)")
"""What a name may begin with, and says nothing of what it is."""
_DIMENSIONS = re.compile(r"(?<![a-z])dimension(ality|s)?(?![a-z])")
"""What others shorten to `dim`."""
_KEY_VALUE_HEADS = re.compile(r"(n|num)?_?(kv|key_?value)_?(heads?|groups)")
_HEADS = re.compile(r"h|n_?head|(n|nb|nr|num|number_of)?_?(attn|atten|attention)?_?heads?(_?(num|count))?")
_HEAD_WIDTH = re.compile(
    r"heads?_?(dim|size)|h_size|(dim|d)_?heads?(_inner)?|d_?[kv]|d_?kv|"
    r"(projection_)?(keys?|values?|quer(y|ies)|[kv])_(dim|size)|dim_?(key|value|[kv])"
)
_LAYERS = re.compile(r"depth|layers|N|(n|num|number_of)_?(hidden_?)?(layers?|blocks)")
_EPSILON = re.compile(r"(.*_)?eps(ilon)?")
_VOCABULARY = re.compile(
    r"((in|out)put_|target_|tgt_|trg_)?voc(ab(ulary)?)?_?(size|dim)|n_((src|trg|tgt)_)?vocab|num_(tokens|embeddings)|"
    r"ntokens?"
)
_LENGTH = re.compile(
    r"max_?(seq(uence)?_?)?len(gth)?|(seq(uence)?_)?max_len(gth)?|max_seq(uence)?|"
    r"max(imum)?_(T|pos(ition(s|(al)?_(embedding|encoding)s?)?)?)|block_size|context_length|n_ctx"
)
_ACTIVATION = re.compile(r"(hidden_)?act(ivation)?(_fn|_function)?")
_BIAS = re.compile(r"(\w+_)?bias")
_NORM_FIRST = re.compile(r"norm(alize)?_(before|first)|pre_?(norm|ln)")
MEANT = (
    (FEED_FORWARD, "96"),
    (WIDTH, "64"),
    (_ALL_HEADS, "64"),
    (_KEY_VALUE_HEADS, "2"),
    (_HEADS, "4"),
    (_HEAD_WIDTH, "16"),
    (re.compile(r"(mlp|(d_?)?ffn?|expansion|widening)(_?dim)?_?(ratio|mult|factor)|forward_expansion"), "2"),
    (_LAYERS, "2"),
    (re.compile(r"(.*_)?[pP]?drop(out|_?path)?(_?(rate|prob|p|ratio|mlp|ffn?|attn))?|rate|p|dp"), "0.1"),
    (_EPSILON, "1e-05"),
    (_VOCABULARY, "100"),
    (re.compile(r"(n|num|number_of)_?(class(es)?|labels?|tags?|targets?|outputs?)"), "10"),
    (re.compile(r"(n|num|number_of)_?items?|items?_(n|num|number|count|size)"), "100"),
    (_LENGTH, "512"),
    (re.compile(r"(n|num|number_of)_?(patch(es)?|positions)|(q|ts|seq(uence)?)_?len(gth)?"), "64"),
    (_ACTIVATION, "'gelu'"),
    (_BIAS, "True"),
    (_NORM_FIRST, "True"),
    (re.compile(r"(use|with|has|return|add|do|enable)_\w+"), "False"),
    (re.compile(r"is_decoder|(is_)?causal|(add_)?cross_attention|output_attentions|gradient_checkpointing"), "False"),
    (re.compile(r"(\w+_)?pad(ding)?_(idx|id|index)"), "0"),
    (re.compile(r"chunk_size_feed_forward|(layer_|block_)?(id|idx|index|number)"), "0"),
    (re.compile(r"init(ializer)?_(range|std)"), "0.02"),
    (re.compile(r"device"), "'cpu'"),
    (re.compile(r"name"), "'layer'"),
)  # fmt: skip
"""What a required argument of such a name is given, the first that fits: a layer of 4 heads and 64 features, whose
sizes can be told apart."""
_OF_THAT_ALONE = re.compile(_FEED_FORWARD)
_OF_X = re.compile(f"(?!units$|(in_|out_|num_)?features$)({WIDTH.pattern})")
"""The names of x's width that are no map's own, as `units` and `features` are."""
_LEAST = 8


def stated_by(layer: Layer | None, resize: bool) -> Known:
    """What arguments are by the layer that a module should be: its choices, and its sizes unless the layer is asked at
    the module's own (`resize`). {} where none is stated; "" for biases of which it has some."""
    if layer is None:
        return {}
    attention = layer.attention
    biases = {attention.qkv_bias, attention.output_bias, layer.feed_forward.bias}
    chosen = {
        _EPSILON: f"{layer.norm.epsilon:.6g}",  # which is rounded to float32
        _ACTIVATION: repr(layer.feed_forward.activation),
        _BIAS: repr(biases.pop()) if len(biases) == 1 else "",
        _NORM_FIRST: repr(layer.norm.placement == "pre"),
    }
    if resize:
        return chosen if attention.kv_heads else {**chosen, _KEY_VALUE_HEADS: dict(MEANT)[_HEADS]}
    sizes = {
        WIDTH: layer.d_model,
        FEED_FORWARD: layer.feed_forward.d_ff,
        _ALL_HEADS: layer.head_dim * attention.num_heads,
        _HEADS: attention.num_heads,
        _KEY_VALUE_HEADS: attention.kv_heads or attention.num_heads,
        _HEAD_WIDTH: layer.head_dim,
        _LAYERS: layer.stack.layers,
    }
    return chosen | {pattern: str(size) for pattern, size in sizes.items()}


def with_width_of_heads(known: Known, defaults: Mapping[str, Any]) -> Known:
    """The same, with a width that as many heads divide as there are by default, an even part for each: 72 for 12."""
    heads = next((size for name, size in defaults.items() if _HEADS in kinds_of(name) and type(size) is int), 0)
    width = dict(MEANT)[WIDTH]
    if heads < 1 or known.get(WIDTH) != width or int(width) % heads == 0:
        return known
    return {**known, WIDTH: str(heads * 2 * -(-int(width) // (2 * heads)))}


def kinds_of(name: str) -> list[re.Pattern[str]]:
    """The patterns of the table that a name fits, the likeliest first."""
    short = _DIMENSIONS.sub("dim", _SIDE.sub("", name, count=1))
    return [pattern for pattern, _ in MEANT if pattern.fullmatch(short)]


def feed_forward_last(named: Iterable[tuple[str, int]], likely: Iterable[int], usual: Iterable[int]) -> list[int]:
    """The widths of x to be tried, each once: what is likely, the usual ones, then what is a count, as of heads, or the
    size of the hidden features by all of its names: sizes that are equal cannot be told apart."""
    fields = [(name.lstrip("_"), size) for name, size in named]
    hidden = {size for name, size in fields if _OF_THAT_ALONE.fullmatch(name) or size < _LEAST}
    hidden -= {size for name, size in fields if _OF_X.fullmatch(name)}
    widths = dict.fromkeys([*likely, *usual])
    return sorted(widths, key=lambda width: width in hidden)

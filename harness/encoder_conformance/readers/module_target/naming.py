"""Guesses which own parameter is which of the specification's, by names, shapes and modules."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from encoder_conformance.protocol.module_description import ModuleSource
from encoder_conformance.spec.parameters import without_prefix

_WORDS: Mapping[str, tuple[str, ...]] = {
    "attention.query": ("query", "q", "wq", "wquery", "queries", "qs", "wqs", "qry", "toq", "qproj", "queryproj"),
    "attention.key": ("key", "k", "wk", "wkey", "keys", "ks", "wks", "tok", "kproj", "keyproj"),
    "attention.value": ("value", "v", "wv", "wvalue", "values", "vs", "wvs", "val", "tov", "vproj", "valueproj"),
    "attention.output": ("out", "o", "wo", "proj", "dense", "output", "merge"),
    "attention.query_norm": ("q_norm", "query_norm", "q_ln", "norm_q", "q"),
    "attention.key_norm": ("k_norm", "key_norm", "k_ln", "norm_k", "k"),
    "attention.appended_key": ("bias_k", "null_k", "null_key", "k"),
    "attention.appended_value": ("bias_v", "null_v", "null_value", "v"),
    "attention.position_bias": ("relative_attention_bias", "rel_attn_embed", "position_bias", "relative", "bias"),
    "feed_forward.gate": ("gate", "gate_proj", "wi_0", "w1", "fc1_g"),
    "feed_forward.hidden": ("linear1", "fc1", "intermediate", "lin1", "w1", "up", "hidden", "fc", "expand", "in"),
    "feed_forward.output": ("linear2", "fc2", "lin2", "w2", "down", "output", "out", "proj", "contract"),
    "norm1": ("norm1", "ln1", "ln_1", "before", "attn", "attention", "sa", "self_attn", "1"),
    "final_norm": ("final_norm", "norm", "ln_f", "final", "layernorm", "ln"),
    "norm2": ("norm2", "ln2", "ln_2", "after", "ffn", "final", "output", "mlp", "2"),
}
"""Part of the layer → the words that name it."""
_PLACES = {"attention": ("attn", "attention", "self", "sa", "mha"), "feed_forward": ("ffn", "mlp", "ff", "feed")}
_KINDS = {
    "weight": ("weight", "kernel", "w"),
    "bias": ("bias", "b"),
    "gain": ("weight", "gamma", "gain", "scale", "g"),
    "shift": ("bias", "beta", "shift", "b"),
    "table": ("weight", "table", "embedding", "bias"),
    "vector": ("bias_k", "bias_v", "null_k", "null_v", "null_key", "null_value"),
}


def words_of(name: str) -> list[str]:
    """`attn.q_proj.weight` → attn, q, proj, weight, and q_proj as it is."""
    whole = [part.lower() for part in name.split(".")]
    split = [word for part in name.split(".") for word in re.split(r"_|(?<=[a-z])(?=[A-Z])", part)]
    split = [word.lower() for word in split if word]
    bare = [word.rstrip("0123456789") for word in split]  # q1 is a query
    return list(dict.fromkeys([*whole, *split, *(word for word in bare if word in _OF_QUERY_KEY_VALUE)]))


_OF_QUERY_KEY_VALUE = frozenset(("q", "k", "v", "query", "key", "value"))
_NUMBER = re.compile(r"(?:^|[._])(\d+)(?=\.)")


def names_by_number(names: Iterable[str]) -> list[list[str]]:
    """The names that have a number in them, by the first: `layers.1.norm.weight`, `block_1.norm.scale`."""
    found: dict[int, list[str]] = {}
    for name in names:
        if number := _NUMBER.search(name):
            found.setdefault(int(number[1]), []).append(name)
    return [found[number] for number in sorted(found)]


def score(own: str, spec: str) -> float:
    """Measures how much an own name sounds like a parameter of the specification: 0 for not at all."""
    words = words_of(own)
    part, _, kind = without_prefix(spec)[1].rpartition(".")
    found = _best(words, _WORDS.get(part, (part.rpartition(".")[2],))) * 2.0
    place = part.partition(".")[0]
    for other, names in _PLACES.items():
        heard = any(word in names for word in words)
        if heard and place in _PLACES:
            found += 1.0 if other == place else -1.0
    kinds = {each for each, names in _KINDS.items() if own.rpartition(".")[2].lower() in names}
    if kinds and kind not in kinds:
        found -= 3.0  # a beta is no weight, and a bias is no gain
    return found + 0.5 * _best(words, _KINDS[kind])


def _best(words: list[str], names: tuple[str, ...]) -> float:
    """1 for the first of the names, less for later ones."""
    return max((1 - names.index(word) / (2 * len(names)) for word in words if word in names), default=0.0)


def misnamed(sources: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Own parameter, as what it was read, and what its name says. `sources`: the specification's name → the own name,
    or those of several that it is made of, as of each head."""
    found = []
    for parts in _of_attention(sources).values():
        alike = Counter(map(_unnumbered, parts.values()))
        for name, owns in parts.items():
            if alike[_unnumbered(owns)] > 1:  # a number says no part: dense, dense_1
                continue
            for own in owns.split(", "):
                best = max(parts, key=lambda other: score(own, other))
                if best != name and score(own, best) >= score(own, name) + 1.0:
                    found.append((own, name, best))
                    break  # a head stands for all
    found += [*_exchanged_numbers(sources), *_exchanged_gate(sources)]
    told: dict[str, tuple[str, str, str]] = {}
    for each in found:  # the bias of what is told already is none other
        told.setdefault(each[0].rpartition(".")[0] or each[0], each)
    return list(told.values())


def _unnumbered(own: str) -> str:
    return re.sub(r"_?\d+", "", own)


def _of_attention(sources: Mapping[str, str]) -> dict[tuple[str, str], dict[str, str]]:
    """The prefix of a layer, and whether they are weights or biases → its parameters of attention."""
    groups: dict[tuple[str, str], dict[str, str]] = {}
    for name, own in sources.items():
        prefix, bare = without_prefix(name)
        if bare.startswith("attention."):
            groups.setdefault((prefix, bare.rpartition(".")[2]), {})[name] = own
    return groups


def _exchanged_gate(sources: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """A gate and what it is multiplied with, each of the other's name: what is called a gate is what is activated."""
    found = []
    for name, own in sources.items():
        prefix, bare = without_prefix(name)
        hidden = f"{prefix}feed_forward.hidden.{name.rpartition('.')[2]}"
        other = sources.get(hidden, own)
        if bare.startswith("feed_forward.gate.") and _is_gate(other, own):
            found += [(own, name, hidden), (other, hidden, name)]
    return found


def _is_gate(own: str, other: str) -> bool:
    """Whether the first says that it is the gate of the two, and the second that it is not."""
    one, two = ({word for part in own.split(".") for word in part.lower().split("_")} for own in (own, other))
    return "gate" in one - two or ("wi" in one & two and "0" in one and "1" in two)


def is_earlier(own: str, other: str) -> bool:
    """Whether two names differ in numbers alone, and the first has the lower ones: `linears.0` of `linears.2`."""
    return re.sub(r"\d+", "", own) == re.sub(r"\d+", "", other) and _numbers(own) < _numbers(other)


def _numbers(own: str) -> list[int]:
    return [*map(int, re.findall(r"\d+", own))]


def _exchanged_numbers(sources: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Norms, and scales of branches, whose names differ in a number alone, of which the later one is the first."""
    found = []
    for name, own in sources.items():
        second = name.replace("norm1.", "norm2.").replace("layer_scale1.", "layer_scale2.")
        other = sources.get(second, own)
        if second != name and is_earlier(other, own):
            found += [(own, name, second), (other, second, name)]
    return found


def idle_parts(
    idle: Iterable[str], tied: Iterable[tuple[str, str]], sources: Mapping[str, ModuleSource], heard: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Each part that no call reaches; the own parameter of one of its name, but for numbers, of which two places of the
    layer are made, or of one beside it, where its name is that of such a place; and the place that is the idle one's:
    that which sounds like it, or else the second. "" twice where there is none. `heard`: what their owner calls own
    parameters."""
    twice: dict[str, list[str]] = {}
    for places in tied:
        twice.setdefault(sources[places[0]].own, []).extend(places)
    for path in idle:
        parts = ((heard.get(own, own).rpartition(".")[0], own) for own in twice)
        own = next((own for part, own in parts if _could_be(path, part, twice[own])), "")
        yield path, own, max(reversed(twice.get(own, [""])), key=lambda place: place and score(path, place))


def _could_be(idle: str, part: str, places: Iterable[str]) -> bool:
    """Whether the part does, beside its own work, that of one that is idle."""
    if _unnumbered(part) == _unnumbered(idle):
        return True
    beside = part.rpartition(".")[0] == idle.rpartition(".")[0]
    return beside and any(score(idle, each) >= max(SOUNDS, score(part, each) + 1.0) for each in places)


SOUNDS = 1.5
"""The least score of a name that is taken for a parameter's by itself."""


def best_named(names: Iterable[str], spec: str, called: Callable[[str], str] = str) -> str | None:
    """The own name that sounds most like the parameter, as its owner calls it; None if there is none."""
    return max(names, key=lambda name: score(called(name), spec), default=None)

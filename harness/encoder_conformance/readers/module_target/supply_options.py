"""What an argument of a call may be, by words in its name, and by what it may turn out to be."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product, zip_longest

from encoder_conformance.readers.module_target.calling import is_random, may_be_mask
from encoder_conformance.readers.module_target.supplies import (
    BIAS,
    PAIR,
    SINES_FIRST,
    SINES_THEN,
    STACKED,
    TURNS,
    Supply,
)

_WHOLE = "encoding", "encodings", "size"
"""Words that are the whole name, too: encoding_outputs are another sequence."""
SPOKEN: Mapping[str, tuple[str, ...]] = {
    "cumulative": ("cu_seq", "cu_len", "cumulative", "cumsum", "offsets", "indptr"),
    "longest": ("max_seq", "max_len", "maxlen"),
    "batch": ("batch_size", "bsz", "n_batch"),
    "height": ("height", "h"),
    "width": ("width", "w"),
    "height and width": (
        *("size", "x_size", "hw", "resolution", "input_size", "img_size", "image_size", "spatial_size"),
        *("feat_size", "feature_size", "spatial_shape", "grid_size", "input_dimensions", "input_resolution"),
    ),
    "cosines": ("cos",),
    "sines": ("sin",),
    "sinusoids": ("sinusoid", "sin_cos", "sincos"),
    "turning": ("freq", "rope", "rotary", "angle", "theta", "cis"),
    "start": ("start_pos", "start_idx", "start_index", "cur_pos", "past_len", "cache_len"),
    "empty": ("cache", "past_key", "past_kv", "layer_past"),
    "pair": ("position_emb", "pos_emb", "cos_sin", "freq", "rope", "rotary", *_WHOLE),
    "segment": ("segment",),
    "count": ("pos", "coord", "indices", "index", "arange", "time"),
    "lengths": ("length", "lens", "seqlen", "_len", "num_tokens", "n_tokens", "sizes"),
    "condition": ("cond", "temb", "t_emb", "time_emb", "timestep", "style", "vec", "c", "z"),
    "x": ("key", "value", "query", "kv", "k", "v", "q", "keys", "values", "queries", "source"),
}
"""What an argument is given first, by words in its name; one letter is the whole name."""
_OF_SCORES = re.compile(r"bias|dist|(^|_)rel_(\w+_)?pos$")
"""What the name has of numbers that are added to scores: rel_pos and rel_2d_pos are of two positions, as LayoutLM's."""
_COUNT = tuple(Supply("count", axes) for axes in ("BS", "S", "1S"))
_LENGTHS = (Supply("lengths", "B"), Supply("size", "S"), Supply("size", "B"))
MASKS = tuple(
    Supply("full", axes, dtype, number)
    for axes in ("BS", "B11S", "B1SS", "SS", "BSS", "SSB", "11SS", "B1S", "S", "BS1")
    for dtype, number in (("bool", 1.0), ("bool", 0.0), ("float32", 0.0), ("int64", 1.0))
)
"""Those that a mask is given first, in every usual shape: all ones or zeros, of which one hides nothing."""
_OF_EACH_HEAD = tuple(
    Supply("full", "XSS", dtype, number) for dtype, number in (("bool", 0.0), ("float32", 0.0), ("bool", 1.0))
)
"""[batch · heads, sequence, sequence], as torch.nn.functional.multi_head_attention_forward takes one."""
_HEADS = (4, 8, 2, 12, 16, 1)
"""Numbers of heads, the likeliest first."""
_OF_ATTENTION = tuple(
    sorted(MASKS, key=lambda mask: ("BSS", "SS").index(mask.axes) if mask.axes in ("BSS", "SS") else 2)
)
"""The same, those of each query first: [batch, sequence, sequence] and [sequence, sequence]."""
_OF_ROWS = tuple(sorted(MASKS, key=lambda mask: mask.axes != "BS1"))
"""The same, those that rows are multiplied by first, as a `non_pad_mask` [batch, sequence, 1]."""
_KEPT_ROWS = "non_pad", "nonpad"
_ANGLE_AXES = ("Sd", "Se", "1Sd", "BSd", "11Sd", "B1Sd", "S11d", "1S1d", "1Se", "BSe", "11Se", "S11e", "1S1e")
_PAIR_AXES = ("BSd", "Sd", "1Sd", "11Sd", "B1Sd", "S11d", "1S1d", "BSe", "Se", "1Se", "11Se", "S11e", "1S1e")
_TURNS = {"turning": "", "cosines": "cosines", "sines": "sines", "pair": PAIR, "sinusoids": SINES_FIRST}
"""Kinds of angles → the function of them."""
_LIKELIEST = 2
"""Sizes of heads for which complex turns are tried where cosines and sines are usual."""
_HEAD_SIZES = (64, 32, 128, 80)
"""Features of a head that published encoders have, whatever the number of heads."""
_OF_A_CONDITION = "Bd", "B1d"
_PACKED_AXES = tuple(f"T{each}" for each in ("e", "d", "1d", "1e"))
_PACKED_PAIR_AXES = tuple(f"T{each}" for each in ("d", "1d", "e", "1e"))
"""Of cosines and sines, which stand for each feature; half of them are taken, too, where a part of a head is turned."""


def speaks(name: str, kind: str) -> bool:
    lower = name.lower()
    return any(word == lower if word in _WHOLE or len(word) == 1 else word in lower for word in SPOKEN[kind])


def options_of(
    name: str, widths: Iterable[int], sizes: list[int], heads: tuple[int, ...], *, keys: bool, packed: bool
) -> tuple[list[Supply], list[Supply]]:
    """What an argument may be by its name, and then what it may turn out to be. `packed`: beside rows of all items."""
    named: list[Supply] = []
    of_scores = _OF_SCORES.search(name.lower()) is not None
    if of_scores and not may_be_mask(name):  # by two positions, and no positions themselves
        named += [replace(mask, what=BIAS) for mask in _OF_ATTENTION if mask.dtype == "float32"]
    kinds = [kind for kind in SPOKEN if speaks(name, kind)]
    if {"cosines", "sines"} <= {*kinds}:
        kinds.sort(key=lambda kind: kind != "pair")
    if "sinusoids" in kinds:
        kinds.sort(key=lambda kind: kind != "sinusoids")
    for kind in kinds:
        made = _angles(kind, sizes, packed=packed) if kind in _TURNS else _of_kind(kind, widths, packed=packed)
        named += sorted(made, key=lambda each: "cis" in name.lower() and each.what not in (TURNS, STACKED))
    if {"turning", "pair"} <= {*kinds}:
        named = _by_turns(named, sizes)
    if keys and is_random(name):
        named.insert(0, Supply("seed"))
    if may_be_mask(name):
        of_heads = (replace(mask, heads=each) for each in dict.fromkeys((*heads, *_HEADS)) for mask in _OF_EACH_HEAD)
        of_rows = any(word in name.lower() for word in _KEPT_ROWS)
        masks = _OF_ROWS if of_rows else _OF_ATTENTION if "att" in name.lower() else MASKS
        named = [Supply("none"), *masks, *of_heads, *named]
    named = list(dict.fromkeys(named))
    if "cumulative" in kinds:  # positions in their place make an item of each
        return named, []
    others = [Supply("none"), *_COUNT, *_LENGTHS, *MASKS[:4], *_of_kind("condition", widths), *MASKS[4:]]
    if name.isdigit():  # the second of a tuple is a mask most often, and positions may be taken for one
        others = [Supply("none"), *MASKS, *others]
    return named, [each for each in dict.fromkeys(others) if each not in named]


def _of_kind(kind: str, widths: Iterable[int], *, packed: bool = False) -> list[Supply]:
    match kind:
        case "cumulative":
            return [Supply("cumulative", "B", dtype) for dtype in ("int32", "int64")]
        case "longest":
            return [Supply("size", "S")]
        case "batch":
            return [Supply("size", "B")]
        case "height" | "width":
            return [Supply("size", kind[0].upper())]
        case "height and width":
            return [Supply("size", "HW")]
        case "count":
            counted = (Supply("count", "T"), *_COUNT) if packed else _COUNT
            return [*counted, *(replace(each, dtype="float32") for each in counted)]
        case "lengths":
            return [*_LENGTHS]
        case "segment":
            return [Supply("segment", axes, dtype) for axes in ("BS", "S") for dtype in ("int32", "int64")]
        case "x" | "start":
            return [Supply(kind)]
        case "empty":
            return [Supply("none"), Supply(kind)]
    return [Supply("condition", axes, "float32", width) for axes in _OF_A_CONDITION for width in widths]


def _angles(kind: str, sizes: list[int], *, packed: bool) -> list[Supply]:
    """Angles of each position and pair of features, or cosines, or sines, or a pair of both. One alone would be
    broadcast to all features, and is none."""
    axes: tuple[str, ...] = _PAIR_AXES if kind == "pair" else _ANGLE_AXES
    if kind == "sinusoids":
        return _sinusoids(sizes)
    if packed:
        axes = _PACKED_AXES if kind == "turning" else _PACKED_PAIR_AXES
    whole = [Supply("turning", each, "float32", size, _TURNS[kind]) for size in sizes for each in axes]
    angles = [each for each in whole if each.number > 2 or not each.axes.endswith("e")]
    if kind not in ("turning", "pair"):
        return angles
    of_pairs = [each for each in angles if each.axes.endswith("e")]
    turns = [replace(each, dtype="complex64", what=TURNS) for each in of_pairs]
    if kind == "pair":
        return [*angles, *(each for each in turns if each.number in sizes[:_LIKELIEST])]
    stacked = [replace(each, axes=f"{each.axes}2", what=STACKED) for each in of_pairs]
    return [each for three in zip_longest(angles, turns, stacked) for each in three if each is not None]


def _by_turns(named: list[Supply], sizes: list[int]) -> list[Supply]:
    """The same, of the likeliest sizes first, one number for each and a pair of both by turns: `rope` may be either,
    and what comes late is not tried beside other arguments."""
    likely = [each for each in named if each.kind == "turning" and each.number in sizes[:_LIKELIEST]]
    pairs = [each for each in likely if each.what == PAIR]
    others = [each for each in likely if each.what != PAIR]
    first = [each for two in zip_longest(others, pairs) for each in two if each is not None]
    return [*first, *(each for each in named if each not in first)]


def _sinusoids(sizes: list[int]) -> list[Supply]:
    """Sines and cosines of each pair of features, in a pair or one behind the other, as RoFormer's."""
    forms = [(SINES_FIRST, axes) for axes in ("11Se", "1Se", "Se", "B1Se", "BSe")]
    forms += [(SINES_THEN, axes) for axes in ("11Sd", "1Sd", "Sd", "B1Sd", "BSd")]
    return [Supply("turning", axes, "float32", size, what) for size in sizes for what, axes in forms]


def cut_sizes(widths: Iterable[int], heads: tuple[int, ...]) -> list[int]:
    """Features of a head, first those by the likeliest numbers of heads, then those that a width may be cut into."""
    found = dict[int, None]()
    for numbers in (heads, _HEADS):
        for width, number in product(widths, numbers):
            if width % number == 0 and width // number % 2 == 0:
                found[width // number] = None
    usual = (size for width, size in product(widths, _HEAD_SIZES) if width % size == 0)
    return list(dict.fromkeys((*found, *usual)))

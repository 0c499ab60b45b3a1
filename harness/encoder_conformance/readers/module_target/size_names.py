"""What the name of a size says that it is: that of x, or that of the feed-forward network's hidden features."""

import re
from collections.abc import Iterable

HIDDEN = r"(num_)?hid(den)?s?(_?(dim|size|features|channels|units))?"
"""Either, by what stands beside it."""
_FEED_FORWARD = (
    r"d_?ff(n)?(_inner)?|d_?(inner|hid(den)?)|dim_?feed_?forward|linear_units|inner|"
    r"(ff|ffn|mlp|feed_?forward|pf|inner|dense|filter|intermediate)(_?(num|embed|hiddens?|dim|size|features|channels|units))+"
)
FEED_FORWARD = re.compile(f"{_FEED_FORWARD}|{HIDDEN}")
WIDTH = re.compile(
    r"d_?(model|input|emb(ed)?|word_vec)|(model_?|emb(ed(ding)?)?_?|in(put)?_?|out(put)?_?|feature_?|token_?)?dims?|(emb(ed)?|model)_?size|"
    r"n_?embe?d?|n_state|width|(in_|out_|num_|n_)?(features|channels)|size|units|" + HIDDEN
)
_OF_THAT_ALONE = re.compile(_FEED_FORWARD)
_OF_X = re.compile(f"(?!units$|(in_|out_|num_)?features$)({WIDTH.pattern})")
"""The names of x's width that are no map's own, as `units` and `features` are."""
_LEAST = 8


def feed_forward_last(named: Iterable[tuple[str, int]], likely: Iterable[int], usual: Iterable[int]) -> list[int]:
    """The widths of x to be tried, each once: what is likely, the usual ones, then what is a count, as of heads, or the
    size of the hidden features by all of its names: sizes that are equal cannot be told apart."""
    fields = [(name.lstrip("_"), size) for name, size in named]
    hidden = {size for name, size in fields if _OF_THAT_ALONE.fullmatch(name) or size < _LEAST}
    hidden -= {size for name, size in fields if _OF_X.fullmatch(name)}
    widths = dict.fromkeys([*likely, *usual])
    return sorted(widths, key=lambda width: width in hidden)

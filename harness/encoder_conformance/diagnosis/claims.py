"""The table of what a diagnosis may say beside a cause: kind of claim → its sentence, and how it is judged.

A claim is data, and its sentence is made where it is shown. What is said of every case is said only if no case that
could refute it does: it fails closed. The σ beside a sentence is the largest rms that it leaves of what was observed;
beside what one case shows, by how much that case does.
"""

from typing import Literal, NamedTuple

from encoder_conformance.judging.records import Claim, ClaimValue


class ClaimKind(NamedTuple):
    """The sentence of a claim, and what it is held to: `every` case that could refute it, `one` that shows it, the
    `bits` of one; or `nothing`, for what only explains other words."""

    sentence: str
    held: Literal["every", "one", "bits", "nothing"]


KINDS = {
    "filled": ClaimKind("{stage} holds {value} where the specification has NaN or infinity: {where}", "bits"),
    "lost": ClaimKind("{stage} holds {value} where the specification has numbers: {where}", "bits"),
    "factor": ClaimKind("{stage} is {factor} times what is specified", "every"),
    "offset": ClaimKind("{stage} is what is specified plus {offset}", "every"),
    "elsewhere": ClaimKind("{stage} holds the specified values in other places", "every"),
    "slices": ClaimKind(
        "Where {stage} is out of line, it is so at {axis} {condition} alone, and right at the others", "every"
    ),
    "curve": ClaimKind("{stage} follows one curve of {of}{points}; from {first} to {last} {plot}", "every"),
    "no-curve": ClaimKind("{stage} follows no smooth curve of {of} ({sigma} σ from between its neighbours)", "one"),
    "linear": ClaimKind("{stage} is a linear map of {of}{rank}: its weight is {weight}; its bias is {bias}", "every"),
    "not-linear": ClaimKind("{stage} is no linear map of {of} ({sigma} σ from the nearest)", "one"),
    "sum-to-one": ClaimKind("{stage} sum to 1 over the keys of every query", "every"),
    "sums": ClaimKind("{stage} sum to {low} up to {high} over the keys, and not to 1", "one"),
    "zeros": ClaimKind("{count} of {size} weights are 0 where the mask allows the key", "one"),
    "leaks": ClaimKind("{count} of {size} weights are not 0 where the mask hides the key: up to {most}", "bits"),
    "others-masks": ClaimKind(
        "Head h of item b has the mask of item (b · H + h) mod B, as masks that are repeated and not interleaved are",
        "bits",
    ),
    "rows": ClaimKind(
        "Each row of {stage} is (input - centre) / divisor * gain + shift: the centre is the mean plus {centre}, and "
        "the divisor {divisor} times the specified one",
        "every",
    ),
    "not-rows": ClaimKind(
        "{stage} is not (input - centre) / divisor * gain + shift in each row ({sigma} σ from the nearest)", "one"
    ),
    "by-feature": ClaimKind(
        "{stage} is {one} times {factor} plus {other} times {factor_of_other}, by feature", "every"
    ),
    "not-by-feature": ClaimKind(
        "{stage} is no sum of {one} and {other}, each times a factor of each feature ({sigma} σ from the nearest)",
        "one",
    ),
    "by-positions": ClaimKind("What is added to {stage} depends on the positions of query and key alone", "every"),
    "shape": ClaimKind("{stage} has the shape {shape}, and not {due}, in {where}", "bits"),
    "dtype": ClaimKind("{stage} is not in {dtype} in {where}", "bits"),
    "depends": ClaimKind("Asked again with one thing changed, the answer depends on {on} ({case})", "one"),
    "independent": ClaimKind("In {case} it does not depend on {on}", "every"),
    "in-line-alone": ClaimKind("In line where the output shows {shows} alone ({experiment})", "every"),
    "out-of-line-alone": ClaimKind("Out of line where the output shows {shows} alone ({experiment})", "one"),
    "right-up-to-positions": ClaimKind(
        "Right in every case of up to {right} positions, and wrong in every one of {wrong} or more: look for a table, "
        "a window or a mask of a fixed length",
        "every",
    ),
    "right-up-to-positions-of-items": ClaimKind(
        "Right in every case of up to {right} positions, and wrong in every one of {wrong} or more: look for a table, "
        "a window or a mask of a fixed length; or for what is done with less than {items} items, of which the longer "
        "cases alone are",
        "every",
    ),
    "right-up-to-items": ClaimKind(
        "Right in every case of up to {right} items, and wrong in every one of {wrong} or more: look for a buffer or a "
        "mask of a fixed batch",
        "every",
    ),
    "left-out": ClaimKind("Not accounted for: {left}", "one"),
    "gradients-out": ClaimKind("Gradients out of line, from the output back: {names}", "one"),
    "gradients-right": ClaimKind("Right in every case: {names}", "every"),
    "not-tried": ClaimKind("Not tried on {names}", "nothing"),
    "of-the-output": ClaimKind(
        "Another stage may be the one that is wrong, if it has the same effect: the output alone cannot tell",
        "nothing",
    ),
    "by-experiments": ClaimKind("Found by asking again with parts of the layer switched off", "nothing"),
    "detach": ClaimKind("detach(a) is a, and nothing goes back through it", "nothing"),
    "scale-gradient": ClaimKind(
        "scale_gradient(a, c) is a, and what goes back through it is multiplied by c", "nothing"
    ),
    "same-effect": ClaimKind(
        "Another place on the same way back has the same effect, where nothing branches off between the two",
        "nothing",
    ),
}


def claim(kind: str, sigma: float | None = None, /, cases: int = 0, **values: ClaimValue) -> Claim:
    """Return what is claimed. `sigma` is None where bits were compared, and `cases` counts those it is held to."""
    return Claim(kind=kind, sigma=sigma, cases=cases, values=values)


def sentence(each: Claim | str) -> str:
    """Return the claim as a sentence, with the σ that it was held by; of an earlier release's report, its own words."""
    if isinstance(each, str):
        return each
    template, sigma = KINDS[each.kind].sentence, "" if each.sigma is None else f"{each.sigma:.2g}"
    text = template.format(sigma=sigma, **{name: _shown(value) for name, value in each.values.items()})
    over = f" over {each.cases} case{'s' * (each.cases > 1)}" if each.cases else ""
    return f"{text} ({sigma} σ{over})." if sigma and "{sigma}" not in template else f"{text}."


def _shown(value: ClaimValue) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

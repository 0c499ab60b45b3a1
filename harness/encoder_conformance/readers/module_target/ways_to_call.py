"""The ways in which a module may be called: each form of x, with all that its arguments may be."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice, product

from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.calling import may_be_mask
from encoder_conformance.readers.module_target.forms_of_x import ROWS
from encoder_conformance.readers.module_target.heads import NOTHING_SAID, HeadsSaid
from encoder_conformance.readers.module_target.live import Signature, TakesItems
from encoder_conformance.readers.module_target.probing import not_given
from encoder_conformance.readers.module_target.supplies import Supply
from encoder_conformance.readers.module_target.supply_options import SPOKEN, cut_sizes, options_of, speaks

MOST = 600
"""Ways to call that are tried at the usual length."""
_MOST_OF_FORM = 40
"""Ways that are tried in each rarer form of x: every mask."""
_OF_POSITIONS = ("turning", "cosines", "sines", "pair", "count")
"""Kinds of what an argument says of each position, and the same of all items."""
_MOST_OF_TWO = 4
"""Ways that are tried with another sequence first."""


def ways_to_call(
    signature: Signature,
    widths: Iterable[int],
    missed: tuple[str, ...] = (),
    *,
    items: TakesItems = "",
    keys: bool = False,
    heads: HeadsSaid = NOTHING_SAID,
) -> Iterator[Arrangement]:
    """The likeliest first: each form of x with all that its arguments may be.

    `missed`: arguments that have a default, and are given nevertheless. `items`: how it may take one item. `keys`:
    random numbers are drawn of keys. `heads`: those that are the likeliest.
    """
    known = signature.arrangement
    needed = not_given(signature)
    needed += [name for name in missed if name not in known.beside]
    needed += [key for key in known.keys[1:] if key not in (*known.beside, *needed)]
    packs = any(speaks(name, "cumulative") for name in needed)
    sizes = list(dict.fromkeys((*heads.sizes, *cut_sizes(widths, heads.numbers))))
    options = [options_of(name, widths, sizes, heads.numbers, keys=keys, packed=packs) for name in needed]
    choices = list(islice(_by_rank([[*named, *others] for named, others in options]), MOST // 4))
    by_name = [all(each in named for each, (named, _) in zip(chosen, options, strict=True)) for chosen in choices]
    of_positions = all(any(speaks(name, kind) for kind in _OF_POSITIONS) for name in needed)
    one_by_one = items == "one by one" and of_positions  # what else is beside it may be of rows of several items
    maps = "BHWD", "BDHW", "BSPF"  # what takes a map may take parts for one, of another width
    others = ["BDS", *maps, *(["SBD"] if needed else []), *(["SD"] if one_by_one else [])]
    forms = [known.form] if known.form != "BSD" else [*ROWS, "BSD"] if packs else ["BSD", *others]
    whole = {forms[0], *(ROWS if packs else ())}
    if items == "mapped" and known.form == "BSD":
        forms, whole = ["BSD", "SD", *forms[1:]], {"BSD", "SD"}
    for said in (True, False):  # lengths of an x [sequence, batch, d_model] come before an x whose lengths are none
        for form in forms:
            for chosen in _of(choices if form in whole else choices[:_MOST_OF_FORM], by_name, said):
                yield replace(known, form=form).giving(dict(zip(needed, chosen, strict=True)))


def with_another_sequence(ways: Iterable[Arrangement], signature: Signature, width: int) -> Iterator[Arrangement]:
    """The first of these, with another sequence for what it needs, and for which its name says nothing: what makes its
    weights when it is called makes them for whatever it is given."""
    unnamed = (name for name in not_given(signature) if not may_be_mask(name))
    silent = [name for name in unnamed if not any(speaks(name, kind) for kind in SPOKEN)]
    memory = Supply("memory", "", "float32", width)
    for way in islice(ways, _MOST_OF_TWO if silent else 0):
        yield way.giving(dict.fromkeys(silent, memory))


def _of(choices: list[tuple[Supply, ...]], by_name: list[bool], said: bool) -> Iterator[tuple[Supply, ...]]:
    """Those in which each argument is what its name says; or the others."""
    return (chosen for chosen, named in zip(choices, by_name, strict=False) if named == said)


def _by_rank(options: list[list[Supply]]) -> Iterator[tuple[Supply, ...]]:
    """One of each, those first that are likely together."""
    most = {0: 1, 1: MOST, 2: 40, 3: 12}.get(len(options), 6)
    ranked = [list(enumerate(each[:most])) for each in options]
    for chosen in sorted(product(*ranked), key=lambda each: sum(rank for rank, _ in each)):
        yield tuple(supply for _, supply in chosen)

"""Tells by what a call raises which of its arguments it fails without, where they are left at None."""

import re
from collections.abc import Iterable, Sequence

from encoder_conformance.readers.module_target.calling import is_random
from encoder_conformance.readers.module_target.live import LiveModule, Signature
from encoder_conformance.readers.module_target.missing import missed_by
from encoder_conformance.readers.module_target.probing import NO_KEY, is_about, is_of_none
from encoder_conformance.readers.module_target.supply_options import speaks
from encoder_conformance.spec.axes import Array

_LACKING = re.compile(r"missing \d+ required (positional|keyword-only) arguments?: [^\n]*")
"""What Python raises for a call without them."""
_NO_RANDOM_KEY = "unexpected PRNG key type <class 'NoneType'>"
"""What JAX raises that splits a key, or draws of it, in evaluation too."""


def missed_in(problem: str, signature: Signature, needed: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments that a call fails without, as its `problem` says, beside those that it has: those that the line
    names in which it fails for a None, as angles. Of a module that hands on whatever it is given: those that a part of
    it needs."""
    known = {*signature.fixed, *needed}
    if signature.hands_on and (key := NO_KEY.match(problem)) and key[1] not in known:
        return (key[1],)
    if signature.hands_on and (lacking := _LACKING.search(problem)):
        return tuple(name for name in re.findall(r"'(\w+)'", lacking[0]) if name not in known)
    if not is_of_none(problem):
        return ()
    if _NO_RANDOM_KEY in problem:
        return tuple(name for name in signature.names if is_random(name) and name not in known)
    left = (name for name in (*signature.arrays, *signature.masks) if name not in known)
    named = tuple(name for name in left if is_about(name, problem))
    if not named and signature.hands_on:  # it hands on what it is given: a part of it reads angles
        read = re.findall(r"\w+", problem.rpartition(": ")[2])
        named = tuple(name for name in dict.fromkeys(read) if name not in known and speaks(name, "pair"))
    return named


def perhaps_masks(
    signature: Signature, needed: tuple[str, ...], problems: Sequence[tuple[Signature, str]]
) -> tuple[str, ...]:
    """All masks, where a call fails for a None of which nothing more is known; those that are left, where it does
    whatever those that it seemed to need are given: in a part of it one of the others has the name of these."""
    if not needed:
        fails = any(is_of_none(said) for _, said in problems)
        return tuple(name for name in signature.masks if name not in signature.fixed) if fails else ()
    given = [said for of, said in problems if not any(of.arrangement.beside[name].kind == "none" for name in needed)]
    if not given or not all(map(is_of_none, given)):
        return ()
    return tuple(name for name in signature.masks if name not in needed)


def read_where_it_fails(failed: Iterable[tuple[LiveModule, str]], needed: tuple[str, ...], x: Array) -> tuple[str, ...]:
    """What is missed beside what is `needed`, where the line that fails for a None names nothing: an argument of which
    another value is refused in that line, too."""
    for way, problem in failed:
        if is_of_none(problem):
            known = {*needed, *way.signature.fixed}
            left = [name for name in (*way.signature.arrays, *way.signature.masks) if name not in known]
            if missed := missed_by(way.bare(), way.signature.arrangement, x, left):
                return (missed[0],)
    return ()

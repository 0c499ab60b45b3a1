"""What `conform` says of each layer of planted_kinds.py, right and with each bug: a row a kind, a column a bug.

`python tests/frameworks/planted_table.py [KIND …]` prints it. A bug is named where a finding that is no note has its
words and, where code is wrong and no call, a line of the file.
"""

import re
import sys
from dataclasses import dataclass
from functools import cache

import planted_kinds
from planted_kinds import BUGS, KINDS

from encoder_conformance.commands.check.findings import findings_of
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.readers.module_target.describing import described
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.examining import examine
from encoder_conformance.spec.layer import Layer

WORDS = {
    "heads-not-transposed": "heads are cut without a transpose",
    "softmax-axis": "the softmax of the scores is over the queries",
    "residual-missing": "residual1 is missing",
    "query-key-exchanged": "does the work of attention.query.weight, and its name is that of attention.key.weight",
    "mask-inverted": "true = attend here, and true = ignore wherever it is known",
    "bias-dropped": "bias is read nowhere",
}
OF_A_CALL = ("mask-inverted",)
"""Bugs that another layer, called otherwise, does not have: told where it is stated what it should be."""
_LINE = re.compile(r"planted_kinds\.py:\d+")


@dataclass(frozen=True)
class Answer:
    """`passes`: it is read, proved and accused of nothing. `named`: the bug is."""

    passes: bool
    named: bool
    said: tuple[str, ...]


def _described(kind: str, bug: str, stated: Layer | None) -> ModuleDescription:
    return described(examine(planted_kinds.made(kind, bug), stated, dtypes=("float32",)))


@cache
def right(kind: str) -> ModuleDescription:
    return _described(kind, "", None)


def answer(kind: str, bug: str = "") -> Answer:
    stated = right(kind).layer if bug in OF_A_CALL else None
    try:
        found = right(kind) if not bug else _described(kind, bug, stated)
    except BadTarget as refused:
        return Answer(passes=False, named=False, said=(refused.problem, refused.hint))
    findings = list(findings_of(found, declared=False, reference=None, part=False))
    said = tuple(each.message for each in findings if each.severity != "note")
    errors = any(each.severity == "error" for each in findings)
    passes = found.layer is not None and found.proof is not None and found.proof.holds and not errors
    named = any(WORDS.get(bug, "…") in each and (bug in OF_A_CALL or _LINE.search(each) is not None) for each in said)
    return Answer(passes, named, said)


def main() -> None:
    named = green = failed = asked = 0
    print(f"{'':<22}right  {'  '.join(BUGS)}")
    kinds = sys.argv[1:] or list(KINDS)
    for kind in kinds:
        own = answer(kind)
        failed += not own.passes
        cells = []
        for bug in BUGS:
            found = answer(kind, bug)
            asked, named, green = asked + 1, named + found.named, green + found.passes
            cells.append(("named" if found.named else "GREEN" if found.passes else "caught").center(len(bug)))
            if not found.named:
                print(f"  {kind} {bug}: {found.said}", file=sys.stderr)
        if not own.passes:
            print(f"  {kind}: {own.said}", file=sys.stderr)
        print(f"{kind:<22}{'passes' if own.passes else 'FAILS':<7}{'  '.join(cells)}", flush=True)
    print(f"named {named} of {asked}, green {green}, right ones that fail {failed} of {len(kinds)}")


if __name__ == "__main__":
    main()

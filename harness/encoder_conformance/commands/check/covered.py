"""What a verdict on a module covers: the sizes, formats and masks in which it was asked, and what was asked of them."""

from collections.abc import Iterable, Sequence

from encoder_conformance.judging.records import Record
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.outcome import Outcome
from encoder_conformance.spec.situation import Check, Situation
from encoder_conformance.spec.strict import Frozen
from encoder_conformance.spec.words import listed, up_to_sizes

_UNASKED = Outcome.UNSUPPORTED, Outcome.NOT_RUN


class Asked(Frozen):
    """What was asked in one format. `lengths`, `items`: the sequences and batches, ascending; `longest_masked`: the
    longest sequence with a mask, 0 where none was given; `checks`: what was asked of the answers."""

    dtype: str
    lengths: tuple[int, ...]
    items: tuple[int, ...]
    longest_masked: int
    checks: tuple[Check, ...]


def asked_in(cases: Iterable[Case], records: Iterable[Record]) -> tuple[Asked, ...]:
    """What these records are answers to, by format, the widest first."""
    situations = {case.id: case.situation for case in cases}
    by_format: dict[str, list[Record]] = {}
    for record in records:
        if record.outcome not in _UNASKED:
            by_format.setdefault(record.dtype, []).append(record)
    return tuple(
        _asked(dtype, by_format[dtype], [situations[each.case] for each in by_format[dtype]])
        for dtype in FORMATS
        if dtype in by_format
    )


def _asked(dtype: str, records: Sequence[Record], situations: Sequence[Situation]) -> Asked:
    masked = [each for each in situations if each.mask.padding is not None or each.mask.attention is not None]
    return Asked(
        dtype=dtype,
        lengths=tuple(sorted({each.sequence for each in situations})),
        items=tuple(sorted({each.batch for each in situations})),
        longest_masked=max((each.sequence for each in masked), default=0),
        checks=tuple(dict.fromkeys(record.check for record in records)),
    )


def up_to(asked: Iterable[Asked]) -> str:
    """`up to 300 positions and 17 items in float64 and float32, and up to 10 positions and 2 items in bfloat16`; of
    what takes so many positions alone `of 32 positions, with up to 17 items in …`."""
    several = [*asked]
    alone = {length for each in several for length in each.lengths}
    sizes = {each.dtype: (max(each.lengths), max(each.items)) for each in several}
    return up_to_sizes(sizes, one_length=len(alone) == 1)


def sizes_text(sizes: Iterable[int]) -> str:
    """`1, 8–10, 33 and 300`: numbers that follow on each other are one span."""
    spans: list[list[int]] = []
    for size in sizes:
        if spans and size == spans[-1][-1] + 1:
            spans[-1].append(size)
        else:
            spans.append([size])
    return listed([str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}" for span in spans])

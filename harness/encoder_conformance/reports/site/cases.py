"""The facts of each case that its page shows: layer, situation, sizes, clauses, and its mask as a picture."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from encoder_conformance.reports.site.coding import Rows
from encoder_conformance.reports.site.columns import Column
from encoder_conformance.spec.axes import Bools
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.dtypes import FORMATS
from encoder_conformance.spec.level import LEVELS
from encoder_conformance.spec.load import clauses, every_case
from encoder_conformance.spec.words import more_choices

OTHER = "other"
"""The group of cases that the specification does not have, such as those of --layer."""
_LARGEST_MASK = 128
"""Queries and keys up to which a mask is drawn."""


def ordered_keys(columns: Iterable[Column]) -> list[tuple[str, str]]:
    """Every (case, dtype) of which a column has a record: by clause, then as the specification has the cases."""
    formats = list(FORMATS)
    numbers = {case: number for number, case in enumerate(every_case())}
    keys = {key for column in columns for key in column.cells}

    def place(key: tuple[str, str]) -> tuple[int, str, int, str, int]:
        case, dtype = key
        group = group_of(case)
        order = list(clauses()).index(group) if group in clauses() else len(clauses())
        return order, group, numbers.get(case, len(numbers)), case, formats.index(dtype) if dtype in formats else 9

    return sorted(keys, key=place)


def group_of(case: str) -> str:
    """The clause under which a case stands: the first that its situation cites."""
    known = every_case().get(case)
    return known.situation.clauses[0] if known else OTHER


def listed(cases: Iterable[str]) -> dict[str, Any]:
    """A row for each of these cases: the number of its level, its group and clauses. Those that the specification does
    not have are of the last level, and cite none."""
    rows = Rows("group", "clauses")
    for name in cases:
        case = every_case().get(name)
        level, cited = (LEVELS.index(case.level), case.clauses) if case else (len(LEVELS) - 1, ())
        rows.add({"name": name, "level": level, "group": group_of(name), "clauses": cited})
    return rows.written()


def facts(cases: Iterable[str]) -> dict[str, Any]:
    """A row of facts for each of these cases; an empty one for those that the specification does not have."""
    rows = Rows("layer", "layer_title", "choices", "situation", "situation_title", "sizes", "clauses", "mask")
    for name in cases:
        row = {}
        if case := every_case().get(name):
            row = {
                "layer": case.layer.layer,
                "layer_title": case.layer.title,
                "choices": _choices(case),
                "situation": case.situation.situation,
                "situation_title": case.situation.title,
                "sizes": _sizes(case),
                "clauses": case.clauses,
                "mask": _mask(case),
            }
        rows.add(row)
    return {"rows": rows.written(), "clauses": clauses()}


def _choices(case: Case) -> str:
    layer = case.layer
    attention = (
        f"{layer.attention.num_heads} heads of {layer.head_dim}, scores over √{layer.attention.scale}, "
        f"fully masked rows {layer.attention.fully_masked_row}"
    )
    if layer.part == "attention":
        return f"Attention alone: d_model {layer.d_model}, {attention}."
    more = "".join(f"{choice}, " for choice in more_choices(layer))
    stack = f"{layer.stack.layers} layers, " if layer.stack.layers > 1 else ""
    return (
        f"{layer.norm.placed}, {layer.norm.kind} with ε = {layer.norm.epsilon:.3g}, "
        f"{layer.feed_forward.activation}; {more}{stack}d_model {layer.d_model}, d_ff {layer.feed_forward.d_ff}, "
        f"{attention}."
    )


def _sizes(case: Case) -> str:
    situation = case.situation
    keys = f", {situation.keys} keys" if situation.keys != situation.sequence else ""
    return f"{situation.batch} × {situation.sequence} × {case.layer.d_model}{keys}"


def _mask(case: Case) -> tuple[Any, ...]:
    """(queries, keys, [(caption, SVG path)]): a panel for each different mask; () without a mask."""
    mask = case.mask()
    if mask is None or not mask.size:
        return ()
    B, S, T = case.situation.batch, case.situation.sequence, case.situation.keys
    if max(S, T) > _LARGEST_MASK:
        return ()
    of_items: Bools = np.broadcast_to(mask, (mask.shape[0], mask.shape[1], S, T))
    panels: dict[bytes, tuple[list[str], str]] = {}
    for item, of_heads in enumerate(of_items):
        for head, panel in enumerate(of_heads):
            item_text = "" if mask.shape[0] == 1 and B > 1 else f"item {item}"
            head_text = f"head {head}" if mask.shape[1] > 1 else ""
            caption = ", ".join(filter(None, (item_text, head_text))) or "every item"
            panels.setdefault(panel.tobytes(), ([], _path(panel)))[0].append(caption)
    return S, T, tuple((_together(captions), path) for captions, path in panels.values())


def _together(captions: list[str]) -> str:
    return captions[0] if len(captions) == 1 else f"{captions[0]} and {len(captions) - 1} like it"


def _path(panel: Bools) -> str:
    """An SVG path of the elements that are true, one unit each; equal rows below each other are one rectangle."""
    path: list[str] = []
    start = 0
    while start < len(panel):
        stop = start + 1
        while stop < len(panel) and np.array_equal(panel[stop], panel[start]):
            stop += 1
        edges = np.flatnonzero(np.diff(np.concatenate(([False], panel[start], [False])).astype(np.int8)))
        for left, right in edges.reshape(-1, 2):
            path.append(f"M{left} {start}h{right - left}v{stop - start}h{left - right}z")
        start = stop
    return "".join(path)

"""Which map a module takes x as, row by row or whole, and which masks it takes as such a map."""

from dataclasses import replace

from encoder_conformance.readers.module_target.forms_of_x import MAPS, height_of
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.probing import drawn
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH
from encoder_conformance.spec.axes import Array

_OF_A_MAP = 6
"""Positions of a map that has several rows: of 5 it has one alone."""


def row_by_row(module: LiveModule, d_model: int) -> LiveModule:
    """The same, given x as one row or one column of a map, where it takes each of them by itself, as the pixels of a
    patch, or a place at all times: what is asked of one says what each gives."""
    known = module.signature.arrangement
    if known.form != "BHWD":
        return module
    x = drawn((BATCH, _OF_A_MAP, d_model))
    other = x.copy()
    other[:, 0] = -x[:, 0]
    try:
        before, after = (module.run({"x": each})["output"] for each in (x, other))
    except ExecutionError:  # as of a mask that is as wide as one row
        of_a_row = module.arranged(replace(known, form="BRSD"))
        return of_a_row if of_a_row is not None and of_a_row.takes(x) else module
    changed = (before != after).any((0, 2)).reshape(height_of(_OF_A_MAP), -1)
    in_row, in_column = changed[0, 1:].any(), changed[1:, 0].any()
    if changed[1:, 1:].any() or in_row == in_column:
        return module
    return module.arranged(replace(known, form="BRSD" if in_row else "BSRD")) or module


def with_masks_as_maps(module: LiveModule, x: Array) -> LiveModule:
    """The same, given those masks as maps that it refuses as rows [batch, sequence] beside an x that is one."""
    sequence = x.shape[1] if height_of(x.shape[1]) > 1 else _OF_A_MAP
    rows = drawn((BATCH, sequence, x.shape[-1]))
    for name in module.signature.masks if module.signature.arrangement.form in MAPS else ():
        known = module.signature.arrangement
        other = module.arranged(replace(known, mapped=(*known.mapped, name)))
        as_rows, as_map = (each is not None and each.takes_mask(name, rows, rows.shape[:2]) for each in (module, other))
        if other is not None and as_map and not as_rows:
            module = other
    return module

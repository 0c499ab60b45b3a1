"""Compares the ways in which a module can be called: as it was given, without its compiled code, with gradients."""

from collections.abc import Iterator

import numpy as np

from encoder_conformance import Masks
from encoder_conformance.protocol.module_description import OtherAnswer
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.feeding import module_feeds
from encoder_conformance.readers.module_target.live import Feeds, LiveModule
from encoder_conformance.readers.onnx_file.graph.execution import ExecutionError
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.dtypes import FORMATS, DtypeName

_SAME: dict[DtypeName, float] = {"float32": 1e-4, "float64": 1e-9}
"""The relative difference of two right outputs whose sums are in another order."""


def refuse_unrunnable(module: LiveModule, feeds: Feeds) -> None:
    """Raises BadTarget where what the module was given in does not run here: it is never judged without. Raises
    ExecutionError where it was given in nothing, and takes this x once, and not again."""
    try:
        for each in filter(None, (module, module.compiled())):
            each.run(feeds)
    except ExecutionError as error:
        if not module.wrappers:
            raise
        wrappers = ", ".join(module.wrappers)
        hint = "name the module without them, and it is judged by itself"
        raise BadTarget(f"it was given in {wrappers}, and so it does not run here: {error}", hint) from None


def other_answers(
    module: LiveModule, semantics: InputSemantics, num_heads: int, *, always_causal: bool, dtype: DtypeName = "float32"
) -> tuple[OtherAnswer, ...]:
    """The ways of calling it in which it answers otherwise than as it was given, each once, with the first question.

    `dtype`: the format of the module."""
    found: dict[str, OtherAnswer] = {}
    for masks, feeds, valid in _questions(semantics, num_heads, always_causal, dtype):
        right = _answer(module, feeds, semantics, valid)
        for way, other in module.ways().items():
            answer = _answer(other, feeds, semantics, valid)
            if right is None or answer is None or way in found:
                continue
            apart = float(np.nan_to_num(np.abs(answer - right)).max() / max(np.nan_to_num(np.abs(right)).max(), 1e-30))
            if apart > _SAME[dtype] and apart > _rounding_inside(module, feeds):
                found[way] = OtherAnswer(way=way, masks=masks, apart=apart)
    return tuple(found.values())


def _rounding_inside(module: LiveModule, feeds: Feeds) -> float:
    """The relative rounding of the coarsest format that it casts to by itself; 0 where it casts to none. A
    compiler may leave out a cast to such a format and back."""
    return max((FORMATS[format].roundoff for format in module.cast_at(feeds) if format in FORMATS), default=0.0)


def _answer(module: LiveModule, feeds: Feeds, semantics: InputSemantics, valid: Array) -> Array | None:
    """The rows of the output that are specified, [n, D]; None where this cannot be asked."""
    try:
        found: Array = semantics.batch_first(module.run(feeds)["output"]).astype(np.float64)[valid]
    except ExecutionError:
        return None
    return found


def _questions(
    semantics: InputSemantics, num_heads: int, always_causal: bool, dtype: DtypeName
) -> Iterator[tuple[tuple[str, ...], Feeds, Array]]:
    """The masks that are given, the arguments, and which rows are specified, [B, S]: with padding and without."""
    B, S = semantics.B, semantics.S
    x = np.random.default_rng(5).normal(size=(B, S, semantics.d_model)).astype(dtype)
    padded = np.ones((B, S), np.bool_)
    padded[-1, S - 2 :] = False
    for valid in (np.ones_like(padded), padded):
        masks = Masks(None if valid.all() else valid[:, None, None, :], None, sequence=S)
        try:
            feeds = module_feeds(semantics, x, masks, num_heads, always_causal=always_causal)
        except NotImplementedError:
            continue
        yield tuple(name for name in feeds if name != "x"), feeds, valid

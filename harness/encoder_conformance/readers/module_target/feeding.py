"""The arguments of a module for one run: x in its layout, and the masks in the form of its own."""

import ml_dtypes
import numpy as np

from encoder_conformance import Masks, Tensors
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_inputs import mask_feeds
from encoder_conformance.spec.axes import BSD


def module_feeds(semantics: InputSemantics, x: BSD, masks: Masks, num_heads: int, *, always_causal: bool) -> Tensors:
    """The feeds of x [B, S, D]. No mask is given where nothing is masked, as a user calls it.

    A position that an additive mask hides gets the lowest number of the format, as transformers writes it: minus
    infinity would make NaN of an item that is padding alone.
    """
    B, S = x.shape[:2]
    feeds = {"x": semantics.laid_out(x)}
    if always_causal:
        masks = Masks(masks.padding, None, encoding=masks.encoding, sequence=S)
    needs_none = masks.joined(num_heads) is None and masks.added(num_heads) is None
    if needs_none and (always_causal or not (semantics.causal and semantics.masks)):
        return feeds
    shut = {mask.name: mask.polarity.shut for mask in semantics.masks if mask.polarity}
    for name, mask in mask_feeds(semantics, masks, B, S, num_heads).items():
        feeds[name] = mask
        if mask.dtype.kind == "f":
            turned = mask.astype(x.dtype if mask.dtype != np.float16 else mask.dtype)  # which is taken as that alone
            hidden = (shut[name] < 0) & (turned <= shut[name] / 2)
            feeds[name] = np.where(hidden, ml_dtypes.finfo(turned.dtype).min, turned)
    return feeds

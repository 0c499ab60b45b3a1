"""Feeds the masks of a run: in the axes, the polarity and the numbers of the file's inputs."""

from dataclasses import replace

import numpy as np

from encoder_conformance import Array, Masks, Tensors
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_semantics import MaskSemantics


class UnsupportedMask(NotImplementedError):
    """The file has no input for this mask."""


def mask_feeds(semantics: InputSemantics, masks: Masks, B: int, S: int, num_heads: int) -> Tensors:
    """Every mask input of the file for this run; raises UnsupportedMask."""
    full = B, num_heads, S, S
    padded = [mask for mask in semantics.masks if mask.polarity and "Q" not in mask.letters]
    attending = [mask for mask in semantics.masks if mask.polarity and "Q" in mask.letters]
    valid, allowed, bias = masks.valid(), masks.joined(num_heads), masks.added(num_heads)
    biases = [mask for mask in attending if mask.polarity and mask.polarity.meaning == "additive"]
    holding = (mask for mask in biases if bias is not None and not _lacking(_broadcast(bias, full), mask))
    biased = next(holding, next(iter(biases), None))
    hiders = [*(mask for mask in attending if mask is not biased), *([biased] if biased else [])]
    feeds = {mask.name: _open(mask, full) for mask in semantics.masks}
    apart = replace(masks, padding=None).joined(num_heads)
    if valid is not None:
        for mask in padded:
            feeds[mask.name] = _placed(_broadcast(valid[:, None, None, :], full), mask)
    if valid is not None and not padded and not hiders:
        raise UnsupportedMask("a padding mask is given, and the file has no input for any mask")
    if hiders:
        whole = apart if padded else allowed  # what another mask says is not said twice: each has to do its own
        if whole is not None:
            wide = _broadcast(whole, full)
            hiding = next((mask for mask in hiders if not _lacking(wide, mask)), hiders[0])
            feeds[hiding.name] = _placed(wide, hiding)
    elif apart is not None:
        raise UnsupportedMask("an attention mask is given, and the file has no input for one")
    if bias is not None:
        if biased is None:
            raise UnsupportedMask("a bias of the scores is given, and the file has no input for one")
        added = _arranged(_broadcast(bias, full), biased)
        feeds[biased.name] = (feeds[biased.name] + added).astype(np.dtype(biased.dtype))
    return feeds


def _open(mask: MaskSemantics, full: tuple[int, ...]) -> Array:
    """A mask that hides nothing."""
    if mask.polarity is not None:
        return _placed(np.ones(full, np.bool_), mask)
    B, _, S, _ = full
    sizes = {"B": B, "S": S, "1": 1}
    letters = zip(mask.axes, mask.shape, strict=True)
    return mask.filled(mask.fill, tuple(sizes.get(letter, size) for letter, size in letters))


def _broadcast(mask: Array, full: tuple[int, ...]) -> Array:
    """[B, H, S, S]; only axes of 1 are widened: the file itself refuses any other wrong size."""
    return np.broadcast_to(mask, [n if size == 1 else size for size, n in zip(mask.shape, full, strict=True)])


def _lacking(values: Array, mask: MaskSemantics) -> str:
    """What [B, H, S, S] differs by, and a mask input cannot; "" where it can hold all of it."""
    for axis, (letter, what) in enumerate(zip("BHQK", ("item", "head", "query", "key"), strict=True)):
        if letter not in "".join(mask.letters) and values.size and (values != values.take([0], axis)).any():
            return what
    return ""


def _arranged(values: Array, mask: MaskSemantics) -> Array:
    """[B, H, S, S] in the axes of the input; raises UnsupportedMask where they cannot hold it."""
    if what := _lacking(values, mask):
        raise UnsupportedMask(f"the mask differs from one {what} to the next, and the file's {mask.name!r} cannot")
    own = "".join(mask.letters)
    order = [*own, *(letter for letter in "BHQK" if letter not in own)]
    values = values[tuple(slice(None) if letter in own else slice(0, 1) for letter in "BHQK")]
    values = values.transpose(["BHQK".index(letter) for letter in order])
    sizes = dict(zip(order, values.shape, strict=True))
    return values.reshape([int(np.prod([sizes[letter] for letter in axis])) for axis in mask.letters])


def _placed(allowed: Array, mask: MaskSemantics) -> Array:
    """The input that lets through what `allowed` [B, H, S, S] does."""
    assert mask.polarity is not None
    if mask.past_first and not allowed[..., 0].all():
        raise UnsupportedMask(f"the first position is hidden, and {mask.name!r} has no place for it")
    values = np.where(_arranged(allowed, mask), mask.polarity.open, mask.polarity.shut)
    return np.ascontiguousarray(values.astype(np.dtype(mask.dtype)))

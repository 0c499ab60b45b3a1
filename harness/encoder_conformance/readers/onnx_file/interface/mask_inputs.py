"""Feeds the masks of a run: in the axes, the polarity and the numbers of the file's inputs."""

from dataclasses import replace

import numpy as np

from encoder_conformance import Array, Masks, Tensors
from encoder_conformance.readers.onnx_file.interface.input_semantics import InputSemantics
from encoder_conformance.readers.onnx_file.interface.mask_semantics import MaskSemantics


class UnsupportedMask(NotImplementedError):
    """The file has no input for this mask."""


def axes_of(mask: MaskSemantics) -> tuple[str, ...]:
    """Each axis of the mask: "B", "H", "Q", "K", "BH" for both in one, "" for a size of 1."""
    found = []
    for axis, letter in enumerate(mask.axes):
        if letter == "S":
            found.append("K" if axis - len(mask.axes) == mask.key_axis else "Q")
        else:
            found.append({"X": "BH", "1": ""}.get(letter, letter))
    return tuple(found)


def mask_feeds(semantics: InputSemantics, masks: Masks, B: int, S: int, num_heads: int) -> Tensors:
    """Every mask input of the file for this run; raises UnsupportedMask."""
    axes = {mask.name: axes_of(mask) for mask in semantics.masks if mask.polarity}
    padded = [mask for mask in semantics.masks if mask.polarity and "Q" not in axes[mask.name]]
    attending = [mask for mask in semantics.masks if mask.polarity and "Q" in axes[mask.name]]
    biased = next((mask for mask in attending if mask.polarity and mask.polarity.meaning == "additive"), None)
    hiding = next((mask for mask in attending if mask is not biased), biased)
    full = B, num_heads, S, S
    feeds = {mask.name: _open(mask, full, axes.get(mask.name)) for mask in semantics.masks}
    valid, allowed, bias = masks.valid(), masks.joined(num_heads), masks.added(num_heads)
    apart = replace(masks, padding=None).joined(num_heads)
    if valid is not None:
        for mask in padded:
            feeds[mask.name] = _placed(_broadcast(valid[:, None, None, :], full), mask, axes[mask.name])
    if valid is not None and not padded and hiding is None:
        raise UnsupportedMask("a padding mask is given, and the file has no input for any mask")
    if hiding is not None:
        fits = allowed is None or not _lacking(_broadcast(allowed, full), axes[hiding.name])
        whole = allowed if fits or not padded else apart
        if whole is not None:
            feeds[hiding.name] = _placed(_broadcast(whole, full), hiding, axes[hiding.name])
    elif apart is not None:
        raise UnsupportedMask("an attention mask is given, and the file has no input for one")
    if bias is not None:
        if biased is None:
            raise UnsupportedMask("a bias of the scores is given, and the file has no input for one")
        feeds[biased.name] = _added(feeds[biased.name], _broadcast(bias, full), biased, axes[biased.name])
    return feeds


def _open(mask: MaskSemantics, full: tuple[int, ...], axes: tuple[str, ...] | None) -> Array:
    """A mask that hides nothing."""
    if axes is None:
        B, _, S, _ = full
        sizes = {"B": B, "S": S, "1": 1}
        letters = zip(mask.axes, mask.shape, strict=True)
        return mask.filled(mask.fill, tuple(sizes.get(letter, size) for letter, size in letters))
    assert mask.polarity is not None
    return _placed(np.ones(full, np.bool_), mask, axes)


def _broadcast(mask: Array, full: tuple[int, ...]) -> Array:
    """[B, H, S, S]; only axes of 1 are widened: the file itself refuses any other wrong size."""
    return np.broadcast_to(mask, [n if size == 1 else size for size, n in zip(mask.shape, full, strict=True)])


def _lacking(values: Array, axes: tuple[str, ...]) -> str:
    """What [B, H, S, S] differs by, and a mask input with these axes cannot; "" where it can hold all of it."""
    for axis, (letter, what) in enumerate(zip("BHQK", ("item", "head", "query", "key"), strict=True)):
        if letter not in "".join(axes) and values.size and (values != values.take([0], axis)).any():
            return what
    return ""


def _arranged(values: Array, mask: MaskSemantics, axes: tuple[str, ...]) -> Array:
    """[B, H, S, S] in the axes of the input; raises UnsupportedMask where they cannot hold it."""
    if what := _lacking(values, axes):
        raise UnsupportedMask(f"the mask differs from one {what} to the next, and the file's {mask.name!r} cannot")
    own = "".join(axes)
    order = [*own, *(letter for letter in "BHQK" if letter not in own)]
    values = values[tuple(slice(None) if letter in own else slice(0, 1) for letter in "BHQK")]
    values = values.transpose(["BHQK".index(letter) for letter in order])
    sizes = dict(zip(order, values.shape, strict=True))
    return values.reshape([int(np.prod([sizes[letter] for letter in axis])) for axis in axes])


def _placed(allowed: Array, mask: MaskSemantics, axes: tuple[str, ...]) -> Array:
    """The input that lets through what `allowed` [B, H, S, S] does, in these axes."""
    assert mask.polarity is not None
    values = np.where(_arranged(allowed, mask, axes), mask.polarity.open, mask.polarity.shut)
    return np.ascontiguousarray(values.astype(np.dtype(mask.dtype)))


def _added(fed: Array, bias: Array, mask: MaskSemantics, axes: tuple[str, ...]) -> Array:
    """A mask input with a bias [B, H, S, S] of the scores on top."""
    return (fed + _arranged(bias, mask, axes)).astype(np.dtype(mask.dtype))

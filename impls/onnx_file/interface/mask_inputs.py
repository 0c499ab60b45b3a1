"""The masks of a run in the forms that the file takes: its own axes, polarity and numbers."""

from dataclasses import replace

import numpy as np

from encoder_conformance import Masks, Tensors
from encoder_conformance.impls.onnx_file.interface.input_semantics import MaskRole, Roles
from encoder_conformance.impls.onnx_file.interface.ports import numpy_dtype
from encoder_conformance.impls.onnx_file.tracing.expressions import Array


class Unsupported(NotImplementedError):
    """The file has no input that could take this."""


def letters_of(role: MaskRole) -> tuple[str, ...]:
    """Each axis of the mask: "B", "H", "Q", "K", "BH" for both in one, "" for a size of 1."""
    found = []
    for axis, letter in enumerate(role.axes):
        if letter == "S":
            found.append("K" if axis - len(role.axes) == role.key_axis else "Q")
        else:
            found.append({"X": "BH", "1": ""}.get(letter, letter))
    return tuple(found)


def fed(roles: Roles, masks: Masks, B: int, S: int, num_heads: int) -> Tensors:
    """Every mask input of the file for this run; raises Unsupported."""
    told = [role for role in roles.masks if role.meaning]
    ports = {role.name: letters_of(role) for role in told}
    padded = [role for role in told if "Q" not in ports[role.name]]
    attending = [role for role in told if "Q" in ports[role.name]]
    biased = next((role for role in attending if role.meaning and role.meaning.name == "additive"), None)
    hiding = next((role for role in attending if role is not biased), biased)
    full = B, num_heads, S, S
    feeds = {role.name: _open(role, full, ports.get(role.name)) for role in roles.masks}
    valid, allowed, bias = masks.valid(), masks.joined(num_heads), masks.added(num_heads)
    apart = replace(masks, padding=None).joined(num_heads)
    for role in padded:
        if valid is not None:
            feeds[role.name] = _placed(_wide(valid[:, None, None, :], full), role, ports[role.name])
    if valid is not None and not padded and hiding is None:
        raise Unsupported("a padding mask is given, and the file has no input for any mask")
    if hiding is not None:
        whole = allowed if _fits(allowed, ports[hiding.name], full) or not padded else apart
        if whole is not None:
            feeds[hiding.name] = _placed(_wide(whole, full), hiding, ports[hiding.name])
    elif apart is not None:
        raise Unsupported("an attention mask is given, and the file has no input for one")
    if bias is not None:
        if biased is None:
            raise Unsupported("a bias of the scores is given, and the file has no input for one")
        feeds[biased.name] = _added(feeds[biased.name], _wide(bias, full), biased, ports[biased.name])
    return feeds


def _open(role: MaskRole, full: tuple[int, ...], letters: tuple[str, ...] | None) -> Array:
    """Hiding nothing. An input whose meaning is not known is given zeros, in the sizes of the run where it has them."""
    if letters is None:
        B, _, S, _ = full
        known = {"B": B, "S": S, "1": 1}
        return role.filled(
            0, tuple(known.get(letter, size) for letter, size in zip(role.axes, role.shape, strict=True))
        )
    assert role.meaning is not None
    return _placed(np.ones(full, np.bool_), role, letters)


def _wide(mask: Array, full: tuple[int, ...]) -> Array:
    """[B, H, S, S]; only an axis of 1 is widened: that another size is wrong is for the file to say."""
    return np.broadcast_to(mask, [n if size == 1 else size for size, n in zip(mask.shape, full, strict=True)])


def _fits(mask: Array | None, letters: tuple[str, ...], full: tuple[int, ...]) -> bool:
    """Whether a mask input with these axes can say all of it."""
    if mask is None:
        return True
    held = "".join(letters)
    wide = _wide(mask, full)
    return all(letter in held or _even(wide, axis) for axis, letter in enumerate("BHQK"))


def _even(mask: Array, axis: int) -> bool:
    return bool((mask == mask.take([0], axis)).all()) if mask.size else True


def _arranged(values: Array, role: MaskRole, letters: tuple[str, ...]) -> Array:
    """[B, H, S, S] in the axes of the input; raises Unsupported where they cannot hold it."""
    held = "".join(letters)
    for axis, (letter, what) in enumerate(zip("BHQK", ("item", "head", "query", "key"), strict=True)):
        if letter not in held:
            if not _even(values, axis):
                raise Unsupported(f"the mask differs from one {what} to the next, and the file's {role.name!r} cannot")
            values = values[(slice(None),) * axis + (slice(0, 1),)]
    order = [*held, *(letter for letter in "BHQK" if letter not in held)]
    values = values.transpose(["BHQK".index(letter) for letter in order])
    sizes = dict(zip(order, values.shape, strict=True))
    return values.reshape([int(np.prod([sizes[letter] for letter in axis])) for axis in letters])


def _placed(allowed: Array, role: MaskRole, letters: tuple[str, ...]) -> Array:
    assert role.meaning is not None
    values = np.where(_arranged(allowed, role, letters), role.meaning.open, role.meaning.shut)
    return np.ascontiguousarray(values.astype(numpy_dtype(role.dtype)))


def _added(mask: Array, bias: Array, role: MaskRole, letters: tuple[str, ...]) -> Array:
    return (mask + _arranged(bias, role, letters)).astype(numpy_dtype(role.dtype))

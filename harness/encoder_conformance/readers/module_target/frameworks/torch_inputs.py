"""Inputs of a whole PyTorch model: token ids, an image, sound or embedded positions, as its call asks for them."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

_WIDTHS = 3
"""The most widths that embedded positions are tried with."""
_IMAGE_SIZES = (64, 224, 32)
"""Tried where no attribute says one. The first is small: the first layers of a pyramid have thousands of positions of a
large one."""
_BOXES = "bbox"
"""The places of tokens on a page: the same one for all, where a model does not do without."""
_SECONDS = 0.25
_RATE = 16000
Inputs = Mapping[str, Tensor]


def inputs_of(module: nn.Module, batch: int, sequence: int) -> Iterator[Inputs]:
    """By name of argument, the likeliest first. `sequence` is the length of what has one that is free."""
    names = _arguments(module)
    by_name = {name: value for name in names if (value := _named(module, name, batch, sequence)) is not None}
    texts = {name: value for name, value in by_name.items() if name == "input_ids"}
    for several in (texts, {name: value for name, value in by_name.items() if name not in texts}, by_name):
        if several:
            yield several
    if texts and _BOXES in names:
        # Where such a model is exported, some do not make the mask that they do not get (UDOP).
        whole = {"attention_mask": torch.ones(batch, sequence, dtype=torch.int64)}
        for kind in (torch.int64, torch.float32):  # rows of a table, or shares of a page
            yield {**texts, _BOXES: torch.zeros(batch, sequence, 4, dtype=kind), **whole}
    if (sound := by_name.get("input_features")) is not None:
        yield {"input_features": sound.transpose(1, 2)}
    if names and not by_name:
        first, *_ = names
        for width in _widths(module):
            yield {first: _drawn(batch, sequence, width)}
        yield {first: _ids(module, batch, sequence)}
        for width in _widths_mapped(module):
            yield {first: _drawn(batch, sequence, width)}
        for size in _image_sizes(module):
            yield {first: _drawn(batch, _setting(module, "num_channels", "in_chans", "in_channels") or 3, *size)}


def _arguments(module: nn.Module) -> list[str]:
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def _named(module: nn.Module, name: str, batch: int, sequence: int) -> Tensor | None:
    """The input that transformers calls by this name; None for a name that is none of an input."""
    size = next(_image_sizes(module))
    channels = _setting(module, "num_channels") or 3
    match name:
        case "input_ids":
            return _ids(module, batch, sequence)
        case "pixel_values":
            return _drawn(batch, channels, *size)
        case "pixel_values_videos":
            return _drawn(batch, _setting(module, "frames_per_clip", "num_frames") or 2, channels, *size)
        case "input_values" if (bins := _setting(module, "num_mel_bins")) is not None:
            return _drawn(batch, _setting(module, "max_length") or 1024, bins)
        case "input_values":
            return _drawn(batch, int(_RATE * _SECONDS))
        case "input_features" if (bins := _setting(module, "num_mel_bins")) is not None:
            return _drawn(batch, bins, 2 * (_setting(module, "max_source_positions") or 1500))
    return None


def _ids(module: nn.Module, batch: int, sequence: int) -> Tensor:
    """One token everywhere, that no configuration calls special."""
    tables = [each.num_embeddings for each in module.modules() if isinstance(each, nn.Embedding)]
    special = {value for name, value in _settings(module) if name.endswith("token_id")}
    count = max(tables, default=1)
    number = next((each for each in range(min(4, count - 1), count) if each not in special), 0)
    return torch.full((batch, sequence), number, dtype=torch.int64)


def _drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _widths(module: nn.Module) -> list[int]:
    """The sizes of vectors, as those of norms, the commonest first."""
    sizes: dict[int, int] = {}
    for value in module.parameters():
        if value.ndim == 1:
            sizes[len(value)] = sizes.get(len(value), 0) + 1
    return sorted(sizes, key=lambda size: -sizes[size])[:_WIDTHS]


def _widths_mapped(module: nn.Module) -> list[int]:
    """The sizes of what its maps take, in its order, without those of vectors: the first may be that of a series."""
    sizes = dict.fromkeys(each.in_features for each in module.modules() if isinstance(each, nn.Linear))
    of_vectors = _widths(module)
    return [size for size in sizes if size not in of_vectors][:_WIDTHS]


def _image_sizes(module: nn.Module) -> Iterator[tuple[int, int]]:
    said = _setting(module, "image_size", "img_size", "crop_size", "input_size")
    for size in [*([said] if said else []), *_IMAGE_SIZES]:
        yield tuple(size)[-2:] if isinstance(size, (tuple, list)) else (size, size)


def _setting(module: nn.Module, *names: str) -> Any:
    """The first value of such an attribute, of a configuration or of a part."""
    found = dict(reversed([(name, value) for name, value in _settings(module) if name in names and value]))
    return next((found[name] for name in names if name in found), None)


def _settings(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The numbers that a module's configurations and its parts have, the outermost first."""
    for part in module.modules():
        config = getattr(part, "config", None)
        for holder in (part, config, *(vars(config).values() if hasattr(config, "__dict__") else ())):
            for name, value in vars(holder).items() if hasattr(holder, "__dict__") else ():
                if isinstance(value, (int, tuple, list)) and not isinstance(value, bool):
                    yield name, value

"""What each input of a whole file is for, as values, positions, lengths or a mask; and the role of each of its axes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from encoder_conformance.blackbox.masks import is_name_of_mask, supposed_meaning
from encoder_conformance.protocol.description import WholeFile, WholeInput
from encoder_conformance.spec.dtypes import FORMATS

_POSITIONS, _LENGTHS = ("position",), ("length", "len")
_BATCH_WORDS, _SEQUENCE_WORDS = ("batch",), ("seq", "len", "time", "token")


@dataclass(frozen=True)
class InputRoles:
    """The roles of a file's inputs. `meaning`: that of true in each mask, as far as it is known."""

    file: WholeFile
    meaning: Mapping[str, str]

    @property
    def guessed(self) -> tuple[str, ...]:
        """The inputs of integers that are taken for masks, since nothing says what they are."""
        integers = (each for each in self.file.inputs if each.name in self.masks and each.dtype != "bool")
        return tuple(each.name for each in integers if each.name not in self.meaning and not is_name_of_mask(each.name))

    @cached_property
    def masks(self) -> tuple[str, ...]:
        """The inputs that hide positions, by their meaning, else by their type and name."""
        return tuple(each.name for each in self.file.inputs if self._is_mask(each))

    @property
    def say_padding(self) -> bool:
        """Whether one of them hides positions, or counts those that are not."""
        return bool(self.masks) or any(self.is_length(each) for each in self.file.inputs)

    @property
    def values(self) -> tuple[str, ...]:
        """The inputs of floating-point numbers that are no masks."""
        return tuple(each.name for each in self.file.inputs if each.dtype in FORMATS and each.name not in self.masks)

    def _is_mask(self, port: WholeInput) -> bool:
        if port.name in self.meaning or port.dtype == "bool":
            return True
        plain = port.dtype not in FORMATS and port.rows is None and len(port.shape or ()) >= 2
        return is_name_of_mask(port.name) or (plain and not self.is_position(port))

    def meaning_of(self, mask: WholeInput) -> str:
        """That of true in it, as it is known, else as its name and type have it."""
        return self.meaning.get(mask.name) or supposed_meaning(mask)

    def is_by_query(self, port: WholeInput) -> bool:
        """Whether it is a mask [B, S, S], [B, 1, S, S], … of each query and key."""
        shape = port.shape or ()
        return port.name in self.masks and len(shape) > 2 and shape[-1] == shape[-2] not in (1, None)

    def is_position(self, port: WholeInput) -> bool:
        return port.dtype not in FORMATS and any(word in port.name.lower() for word in _POSITIONS)

    def is_length(self, port: WholeInput) -> bool:
        words = any(word in port.name.lower() for word in _LENGTHS)
        return port.dtype not in FORMATS and len(port.shape or ()) == 1 and (words or port.rows is None)

    @cached_property
    def lengths_are_free(self) -> bool:
        return any(role == "sequence" and not isinstance(size, int) for role, size in self.all_axes)

    @cached_property
    def is_image(self) -> bool:
        """Whether an input has several free lengths, as an image's height and width."""
        axes = ([role for role, size in self.axes(port) if not isinstance(size, int)] for port in self.file.inputs)
        return any(roles.count("sequence") > 1 for roles in axes)

    @property
    def all_axes(self) -> Iterator[tuple[str, int | str | None]]:
        """(Role, size) of each axis of each input."""
        return (each for port in self.file.inputs for each in self.axes(port))

    @cached_property
    def is_square(self) -> bool:
        """Whether it declares that there are as many items as positions, as where both were given one name."""
        shapes = (each.shape or () for each in self.file.inputs if not self.is_by_query(each))
        named = ([size for size in shape if isinstance(size, str)] for shape in shapes)
        return any(len({*symbols}) < len(symbols) for symbols in named)

    def axes(self, port: WholeInput) -> list[tuple[str, int | str | None]]:
        """(Role, size) of each axis: "batch", "sequence", or "" for a fixed size of its own."""
        shape = port.shape or ()
        roles = [self._role(place, size, port) for place, size in enumerate(shape)]
        for place, size in enumerate(shape):
            if isinstance(size, str) and size in shape[:place]:
                roles[place] = "sequence"
        return list(zip(roles, shape, strict=True))

    def _role(self, place: int, size: int | str | None, port: WholeInput) -> str:
        if isinstance(size, str):
            return self._symbols.get(size, "sequence")
        if size is None:
            return "batch" if place == 0 else "sequence"
        rank, is_mask = len(port.shape or ()), self._is_mask(port)
        if is_mask and (size == 1 or rank > 2):  # one for all; or heads and features, which are fixed
            return "sequence" if place == rank - 1 and size > 1 else ""
        if place == 0 and (size == 1 or rank > 1):
            return "batch"
        free = any(isinstance(each, str) and self._symbols.get(each) == "sequence" for each in port.shape or ())
        return "sequence" if place == 1 and rank <= 3 and not free else ""  # else features, as in [B, D, S]

    @cached_property
    def _symbols(self) -> dict[str, str]:
        """Symbol of a dimension → its role: what its name says, else the first axis at which it stands. An input may
        have symbols of its own alone, as each of tf2onnx's has: where it has two, the first is the batch again."""
        found: dict[str, str] = {}
        for port in self.file.inputs:
            for place, size in enumerate(port.shape or ()):
                if isinstance(size, str) and size not in found:
                    word = size.lower()
                    by_name = "batch" if any(each in word for each in _BATCH_WORDS) else ""
                    by_name = by_name or ("sequence" if any(each in word for each in _SEQUENCE_WORDS) else "")
                    own = [each for each in port.shape or () if isinstance(each, str)]
                    alone = len({*own}) > 1 and not any(each in found for each in own)
                    taken = "batch" in found.values() and not alone
                    found[size] = by_name or ("batch" if place == 0 and not taken else "sequence")
        return found

"""Tells that a module takes some sizes of the batch alone, as one whose items are the frames of several videos."""

from collections.abc import Iterable
from itertools import islice, product

from encoder_conformance.readers.module_target.arranging import Arrangement
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.live import LiveModule
from encoder_conformance.readers.module_target.probing import drawn
from encoder_conformance.readers.onnx_file.interface.probe_runs import BATCH, SEQUENCE
from encoder_conformance.spec.axes import Array

_TRIED = (4, 8, 16, 6, 12, 32)
_FIRST, _IF_SAID = 8, 40
"""Ways to call that are tried, and those where the module says for which batch it was made."""
_OTHERS = (4, 2, 1)
_HINT = "layers are judged at several batches; a layer has each item by itself"
_MOST = 64
"""The largest batch of which it is asked whether it takes it."""


def refuse_some_batches(module: LiveModule, widths: Iterable[int], ways: Iterable[Arrangement]) -> None:
    """Raises BadTarget for a module that takes no batch of 3 and, called in one of these ways, every multiple of
    another number. One that takes a single other number has it for channels, or for whatever else, unless it says
    that it was made for a batch of so many."""
    said = [*_batches_said(module)]
    tried, likeliest = dict.fromkeys((*said, *_TRIED)), islice(ways, _IF_SAID if said else _FIRST)
    for way, width, batch in product(list(likeliest), list(widths), tried):
        other = module.arranged(way)
        if other is None or not other.takes(drawn((batch, SEQUENCE, width))):
            continue
        taken = [each for each in range(1, _MOST + 1) if other.takes(drawn((each, SEQUENCE, width)))]
        if taken == [batch] and batch in said:
            made = f"{batch}, for which it was made"
        elif len(taken) > 1 and taken == list(range(taken[0], _MOST + 1, taken[0])):
            made = f"a multiple of {taken[0]}"
        else:
            continue
        shape, refused = [taken[0], SEQUENCE, width], [BATCH, SEQUENCE, width]
        problem = f"its batch has to be {made}: it takes x {shape}, and no {refused}"
        raise BadTarget(problem, _HINT, "takes-no-x", taken=taken)


def refuse_one_batch(module: LiveModule, x: Array) -> None:
    """Raises BadTarget for a module that takes x [3, sequence, d_model] and none of another first axis."""
    others = [drawn((batch, *x.shape[1:])) for batch in _OTHERS]
    if len(x) != BATCH or any(map(module.takes, others)):
        return
    taken = [each for each in range(1, _MOST + 1) if module.takes(drawn((each, *x.shape[1:])))]
    made = "a multiple of 3" if taken[1:] else "3"
    problem = f"its batch has to be {made}: it takes x {list(x.shape)}, and no {list(others[0].shape)}"
    raise BadTarget(problem, _HINT, "takes-no-x", taken=taken)


def _batches_said(module: LiveModule) -> Iterable[int]:
    """The sizes of a batch that it holds by that name, as `self.batch_size`."""
    for each in module.objects():
        named = (value for name, value in getattr(each, "__dict__", {}).items() if "batch" in name.lower())
        yield from (value for value in named if type(value) is int and 0 < value != BATCH)

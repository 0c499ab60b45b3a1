"""PyTorch's exporter keeps, of the lines that made a node, those of `forward` alone; here it keeps all."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch.fx.proxy import TracerBase

_FILTER = "_filter_traceback_frames"


@contextmanager
def every_frame() -> Generator[None]:
    """Does nothing for a PyTorch that chooses lines in another way: the line of `forward` is said then."""
    chosen: Any = vars(TracerBase).get(_FILTER)
    if chosen is None:
        yield
        return

    def from_the_first_forward(self: Any, frames: Any) -> Any:
        before = getattr(self, "_record_forward_stack_traces_only", None)
        self._record_forward_stack_traces_only = False
        try:
            return chosen(self, frames)
        finally:
            self._record_forward_stack_traces_only = before

    setattr(TracerBase, _FILTER, from_the_first_forward)
    try:
        yield
    finally:
        setattr(TracerBase, _FILTER, chosen)

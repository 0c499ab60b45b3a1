"""The gradients of a PyTorch module, as a user takes them."""

from collections.abc import Sequence

import torch
from torch import Tensor


def gradients(wanted: Sequence[Tensor], output: Tensor, seed: Tensor, *, keep: bool = False) -> list[Tensor]:
    """The gradients by leaves, by `.backward()`: a reentrant checkpoint refuses `torch.autograd.grad`.

    A leaf that is never applied has no gradient in PyTorch, which is one of 0. `keep`: the graph is asked again.
    Raises RuntimeError where the output has none.
    """
    if not output.requires_grad:
        raise RuntimeError("its output has no gradient: it is computed under no_grad or inference_mode, or detached")
    for each in wanted:
        each.grad = None
    output.backward(seed, retain_graph=keep)
    found = [torch.zeros_like(each) if each.grad is None else each.grad for each in wanted]
    for each in wanted:
        each.grad = None
    return found

"""What sees each operator that PyTorch calls."""

from torch.utils._python_dispatch import TorchDispatchMode


class SeesOperators(TorchDispatchMode):
    """A mode without PyTorch's compiler, which would be imported, for a second, to be kept out of it.

    Nothing that is compiled calls it: compiled parts are taken as they were before, or run graph node by graph node.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

"""What a module's worker has read: a verdict on the module holds as long as that stays as it is."""

from encoder_conformance.spec.strict import Frozen


class FilesReadAnswer(Frozen):
    """`files` that were opened or imported and `folders` that were listed, as absolute paths.

    `beyond`: why the module may do otherwise the next time, though all of them stay as they are: it asked the network
    or another program, or wrote a file.
    """

    files: tuple[str, ...]
    folders: tuple[str, ...]
    beyond: tuple[str, ...]

"""Which files are asked less: by their bytes, and by the numbers of an item whose sizes they fix."""

import pytest

from encoder_conformance.commands.validate.against_whole import LARGE, is_large
from encoder_conformance.protocol.description import FileDescription, FileFacts, WholeFile, WholeInput


def described(size: int, *shapes: tuple[int | str, ...], beside: int = 0) -> FileDescription:
    inputs = tuple(WholeInput(name=f"x{n}", dtype="float32", shape=shape) for n, shape in enumerate(shapes))
    facts = FileFacts(
        bytes=size, external=(), beside=beside, ir_version=8, opsets={"ai.onnx": 17}, producer="", metadata={}
    )
    return FileDescription(findings=(), file=facts, whole=WholeFile(inputs=inputs, outputs=(), held="float32"))


@pytest.mark.parametrize(
    ("size", "shapes", "times", "large"),
    [
        (LARGE + 1, (("batch", "sequence"),), 1, True),
        (LARGE, (("batch", "sequence"),), 1, False),
        (LARGE // 4 + 1, (("batch", "sequence"),), 4, True),
        (8 << 20, (("batch", 80, 800),), 1, True),  # eight seconds of sound, for a small model
        (8 << 20, (("batch", "sequence", 384),), 1, False),
        (100_000, (("batch", 3, 224, 224),), 4, False),
        (8 << 20, (), 1, False),
    ],
)
def test_many_weights_or_many_positions_make_a_large_file(
    size: int, shapes: tuple[tuple[int | str, ...], ...], times: int, large: bool
) -> None:
    assert is_large(described(size, *shapes), times) is large


def test_the_data_that_lie_beside_a_file_make_it_large() -> None:
    assert is_large(described(100_000, ("batch", "sequence"), beside=LARGE))

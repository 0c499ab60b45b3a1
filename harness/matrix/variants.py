"""The variants that have a row in docs/findings.md."""

from collections.abc import Iterator
from itertools import product

from encoder_conformance.impl.choices import named
from encoder_conformance.impl.manifest import Implementation, known_folders, read_manifest


def variants() -> Iterator[str]:
    """Every implementation, in every way that it may be told to run, as `conform run --impl` takes it.

    Of a road to ONNX the first way alone: docs/onnx.md has the others. What has to be told has none of its own.
    """
    for folder in known_folders().values():
        implementation = read_manifest(folder)
        if not implementation.must_be_told:
            yield from _of(implementation)


def _of(implementation: Implementation) -> Iterator[str]:
    choices = {choice.name: choice.values for choice in implementation.choices}
    if not choices or "opset" in choices:
        yield implementation.name
        return
    for values in product(*choices.values()):
        yield named(implementation.name, dict(zip(choices, values, strict=True)))

"""The variants that have a row in docs/onnx.md."""

from collections.abc import Iterator
from itertools import product

from encoder_conformance.implementation.choices import named
from encoder_conformance.implementation.manifest import known_folders, read_implementation_manifest
from encoder_conformance.protocol.onnx_runtimes import ONNX_RUNTIMES

LEVELS_OF = {
    runtime.name: tuple(runtime.levels)[::-1] if len(runtime.levels) > 1 else ("all",) for runtime in ONNX_RUNTIMES
}
"""Runtime → the levels that tell it apart: it is ONNX Runtime's to have any."""


def configurations() -> Iterator[str]:
    """Every exporter at every opset, in every runtime and at every level, as `conform run --impl` takes it."""
    for name, folder in known_folders().items():
        choices = {choice.name: choice.values for choice in read_implementation_manifest(folder).choices}
        if "opset" not in choices or "level" not in choices:
            continue
        running = ("runtime", "level")
        others = [[(key, value) for value in values] for key, values in choices.items() if key not in running]
        for opset in product(*others):
            for runtime, levels in LEVELS_OF.items():
                for level in levels:
                    yield named(name, {**dict(opset), "runtime": runtime, "level": level})

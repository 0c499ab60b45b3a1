"""`python -m benchmarks.performance.bare FILE NAME`: what `recording.py` wrote down, asked of the adapter itself.

No worker, no wire, no golden, no judging: an implementation's adapter in this process, given the very tensors that the
harness sent it, one call after the other. It reads them from a file, where the harness draws them.
"""

import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

from encoder_conformance import Adapter, Masks, RunRequest, Tensors


def adapter_of(name: str) -> Adapter:
    """A fresh adapter of the implementation in `impls/NAME`."""
    module = importlib.import_module(f"encoder_conformance.impls.{name}.adapter")
    [found] = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Adapter) and kind.__module__ == module.__name__
    ]
    return found()


def call(adapter: Adapter, message: dict[str, Any], tensors: Tensors) -> object:
    """What the worker does with a request, and nothing beside it."""
    match message["op"]:
        case "start":
            adapter.choices = message["choices"]
            return adapter.start(message["device"], message["threads"])
        case "build":
            return adapter.build(message["layer"], tensors, message["dtype"])
        case "initialise":
            return adapter.initialise(message["seed"])
        case "run":
            x = tensors["ids"] if "ids" in tensors else tensors["x"]
            masks, run = Masks.of(tensors, message["given"]), RunRequest.of(tensors, message)
            return adapter.run_check(message["check"], x, masks, run, tensors.get("cotangent"))
        case "stop":
            return None
        case other:
            raise ValueError(f"no measured run asks for {other}")


def main() -> None:
    asked = pickle.loads(Path(sys.argv[1]).read_bytes())[sys.argv[2]]
    adapter, refused = adapter_of(sys.argv[2]), 0
    for message, tensors in asked:
        try:
            call(adapter, message, tensors)
        except Exception as error:  # what is wrong on purpose is refused, here as in the worker
            if adapter.refusal(message["op"], error) is None:
                raise
            refused += 1
    print(f"{len(asked)} requests, {refused} of them refused")


if __name__ == "__main__":
    main()

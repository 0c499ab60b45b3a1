"""Where a layer of Keras draws the random numbers that its output depends on, and which of its parts never do."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from encoder_conformance.readers.module_target.frameworks.keras_names import parts_of_user
from encoder_conformance.readers.module_target.frameworks.keras_stack import line_of_caller
from encoder_conformance.readers.module_target.parts import Tree, calls, walk
from encoder_conformance.readers.module_target.returned import leaves
from encoder_conformance.spec.axes import Array


def drawn_at(tree: Tree, layer: Any, run: Callable[[], object]) -> str:
    """`model.py:12`, of the first call of a part with a generator of its own that changes what it is given; "" where
    there is none."""
    draws = {path for path, part in walk(tree, layer) if getattr(part, "seed_generator", None)}
    lines, given = list[str](), dict[str, Array]()

    def keep(path: str, side: str, value: Any) -> None:
        if path in draws:
            numbers = np.asarray(keras.ops.convert_to_numpy(next(iter(leaves(value)))))
            if side == "output" and not np.array_equal(numbers, given[path]):
                lines.append(line_of_caller())
            given[path] = numbers

    calls(tree, layer, keep, run)
    return next(filter(None, lines), "")


def drops_uncalled(tree: Tree, layer: Any, run: Callable[[], object]) -> dict[str, float]:
    """The user's attribute → its rate, of each part that drops, and that no call reaches in training."""
    called, places = set[int](), {path: id(part) for path, part in walk(tree, layer)}
    calls(tree, layer, lambda path, *_: called.add(places[path]), run)
    drops = ((path, part) for path, part in parts_of_user(layer) if hasattr(part, "seed_generator"))
    rates = {path: getattr(part, "rate", 0) for path, part in drops if id(part) not in called}
    return {path: rate for path, rate in rates.items() if rate}

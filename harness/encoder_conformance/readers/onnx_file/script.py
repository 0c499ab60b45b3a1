"""Runs a script of the user that gives inputs of the file: as ONNX Runtime's calibration takes them, or plain dicts."""

import runpy
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from encoder_conformance import Tensors

NAME = "data"


def given_by_script(message: dict[str, Any]) -> tuple[dict[str, Any], Tensors]:
    """The answer to a request `data`. Raises ValueError for what gives no dicts of arrays."""
    named, _, name = message["target"].partition(".py:")
    path = Path(message["folder"], named if name else message["target"])
    path = path.with_suffix(".py")
    defined = runpy.run_path(str(path))
    if (name or NAME) not in defined:
        raise ValueError(f"{path.name} defines no {name or NAME!r}: an iterable of dicts of arrays by the file's names")
    most = message["most"]
    items = [*islice(_items(defined[name or NAME]), most + 1)]
    kept = dict(enumerate(items[:most]))
    arrays = {f"{number}/{key}": np.asarray(value) for number, item in kept.items() for key, value in item.items()}
    return {"description": {"items": len(kept), "more": len(items) > most}}, arrays


def _items(given: Any) -> Iterator[dict[str, Any]]:
    """The dicts that an iterable, a function, or a CalibrationDataReader gives."""
    found = given() if callable(given) else given
    source = (
        iter(found.get_next, None)
        if hasattr(found, "get_next")
        else iter([found] if isinstance(found, dict) else found)
    )
    for item in source:
        if not isinstance(item, dict) or not item or not all(isinstance(key, str) for key in item):
            raise ValueError(
                f"gives {type(item).__name__}, and a dict of arrays by the names of the file's inputs is due"
            )
        yield item

"""Hands an object of the user's process to a worker: pickled into a file that only the user can read.

What a worker can import goes by name. What it cannot, such as a class that a notebook defines, goes by value.
"""

import importlib.util
import json
import os
import pickle
import sys
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import IO

import cloudpickle

from encoder_conformance.platform.errors import InputError

LIVE = "live:"
"""Begins the target of an object that was handed over; the path of its file follows."""


def hand_over(module: object, folder: Path) -> Path:
    """The file of the object, in a folder that is private to the user. Raises InputError if it cannot be pickled."""
    path = folder / "module.pickle"
    paths = [str(Path(entry or os.curdir).absolute()) for entry in sys.path]
    with path.open("wb") as file:
        file.write(json.dumps({"path": paths}).encode() + b"\n")
        pickler = _Pickler(file)
        try:
            pickler.dump(module)
        except Exception as error:
            hint = 'name it instead: check("package.module:name") or check("file.py:name")'
            problem = f"it cannot be pickled for the worker: {type(error).__name__}: {error}"
            raise InputError(problem, where=type(module).__name__, hint=hint) from None
        finally:
            for each in pickler.by_value:
                cloudpickle.unregister_pickle_by_value(each)
    return path


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Registers the module of each class and function, before it is pickled, that another process cannot import."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.by_value = set[ModuleType]()
        self._is_importable = cache(_is_importable)

    def persistent_id(self, thing: object) -> None:
        """Called with every object that is pickled; None leaves that to cloudpickle."""
        module = sys.modules.get(thing.__module__) if isinstance(thing, (type, FunctionType)) else None
        if isinstance(module, ModuleType) and not self._is_importable(module):
            cloudpickle.register_pickle_by_value(module)
            self.by_value.add(module)


def _is_importable(module: ModuleType) -> bool:
    """Whether another process that has this one's search path finds the same file under the name."""
    if module.__name__ in sys.builtin_module_names or module.__name__ == "__main__":  # cloudpickle does the latter
        return True
    own = getattr(module, "__file__", None)
    if own is None:
        return True
    top = module.__name__.partition(".")[0]
    try:
        spec = importlib.util._find_spec(top, None) if top else None  # type: ignore[attr-defined]
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is None:
        return False
    places = [spec.origin, *(spec.submodule_search_locations or ())]
    return any(place and str(Path(own).resolve()).startswith(str(Path(place).resolve())) for place in places)


def read_handed_over(path: Path) -> object:
    """The object, in the worker; sets the search path that it came with."""
    with path.open("rb") as file:
        header = json.loads(file.readline())
        sys.path += [entry for entry in header["path"] if entry not in sys.path]
        return pickle.load(file)  # written by the user's own process a moment ago

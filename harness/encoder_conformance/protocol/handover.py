"""Hands an object of the user's process to a worker: pickled into a file that only the user can read.

What a worker can import goes by name. What it cannot, such as a class that a notebook defines, goes by value.
"""

import importlib.util
import json
import os
import pickle
import sys
from pathlib import Path
from types import ModuleType

import cloudpickle

from encoder_conformance.platform.errors import InputError

LIVE = "live:"
"""Begins the target of an object that was handed over; the path of its file follows."""


def hand_over(module: object, folder: Path) -> Path:
    """The file of the object, in a folder that is private to the user. Raises InputError if it cannot be pickled."""
    unimportable = [each for each in _modules_of(module) if not _is_importable(each)]
    for each in unimportable:
        cloudpickle.register_pickle_by_value(each)
    try:
        data = cloudpickle.dumps(module)
    except Exception as error:
        hint = 'name it instead: check("package.module:name") or check("file.py:name")'
        problem = f"it cannot be pickled for the worker: {type(error).__name__}: {error}"
        raise InputError(problem, where=type(module).__name__, hint=hint) from None
    finally:
        for each in unimportable:
            cloudpickle.unregister_pickle_by_value(each)
    path = folder / "module.pickle"
    paths = [str(Path(entry or os.curdir).absolute()) for entry in sys.path]
    with path.open("wb") as file:
        file.write(json.dumps({"path": paths}).encode() + b"\n")
        file.write(data)
    return path


def _modules_of(module: object) -> list[ModuleType]:
    """The Python modules of its class and of the classes of its parts, one level of attributes down and further."""
    names: dict[str, None] = {}
    seen: set[int] = set()
    waiting: list[object] = [module]
    while waiting and len(seen) < _MOST:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, (str, bytes, int, float, ModuleType)):
            continue
        seen.add(id(each))
        kind = each if isinstance(each, type) or hasattr(each, "__code__") else type(each)
        names.setdefault(getattr(kind, "__module__", "") or "")
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, (list, tuple, set)):
            waiting += each
        elif not isinstance(each, type):
            waiting += vars(each).values() if hasattr(each, "__dict__") else ()
    return [found for name in names if isinstance(found := sys.modules.get(name), ModuleType)]


_MOST = 10_000
"""Objects that are looked at."""


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

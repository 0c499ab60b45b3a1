"""Imports the file or module that a target names, in its package where it has one."""

import ast
import importlib
import importlib.util
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Set
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from encoder_conformance.readers.module_target.errors import (
    MEND,
    BadTarget,
    is_at_import,
    last_frames,
    names_nothing,
    places_of,
    to_add,
)
from encoder_conformance.readers.module_target.installing import install
from encoder_conformance.readers.module_target.time_limits import TookTooLong, too_long

_T = TypeVar("_T")
"""How near, of 1, the name of a file is to one that is imported and is not there, where it is likely meant."""
_NO_NAME = re.compile(r"cannot import name (?!.*circular)")
_UNDER_MAIN = "put that under `if __name__ == '__main__':`"


def imported(source: str, folder: Path) -> ModuleType:
    """The module of a dotted name or of a file, which are those of `folder`. Raises BadTarget."""
    if not source.endswith(".py"):
        if not without_input(lambda: _is_there(source)):
            hint = f"it is looked for in {folder} and among what is installed; if it is a package: {install(source)}"
            raise BadTarget(f"there is no module {source!r}", hint)
        return without_input(lambda: importlib.import_module(source))
    path = (folder / source).resolve()
    if not path.is_file():
        raise BadTarget(f"there is no file {source!r}", f"it is looked for in {folder}")
    package = _package_of(path)
    around = [package.parent] if package else []
    by_its_package = package is not None and (_levels_above(path) > 0 or package.name in _tops_of(path))
    # A package may have a file of its own name, which stands for the package where its folder comes first.
    folders = [*around, path.parent] if by_its_package else [path.parent, *around]
    folders = around if _hides_its_folder(path) else folders
    _look_in(dict.fromkeys([*folders, *_roots_of(path)]), _hidden_by(path) if path.parent != folder else set())
    if package and by_its_package:
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        return without_input(lambda: importlib.import_module(name.removesuffix(".__init__")))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[path.stem] = module
    without_input(lambda: loader.exec_module(module))
    return module


def _look_in(folders: Iterable[Path], hidden: Set[str]) -> None:
    """Have Python look there first, for all but names of its own that they hide: there behind where it finds those."""
    folders = list(folders)
    hiding = [
        each for each in folders if any((each / name).is_dir() or (each / f"{name}.py").is_file() for name in hidden)
    ]
    sys.path[:0] = [str(each) for each in folders if each not in hiding]
    installed = (at for at, entry in enumerate(sys.path) if entry.endswith("-packages"))
    at = next(installed, len(sys.path))
    sys.path[at:at] = map(str, hiding)


def _hidden_by(path: Path) -> Set[str]:
    """The names of Python's own modules that lie beside a file, and that it does not import: what is installed means
    Python's by them, as `ssl`."""
    beside = {each.stem for each in path.parent.iterdir() if each.is_dir() or each.suffix == ".py"}
    return (beside & sys.stdlib_module_names) - {*_tops_of(path)}


def _package_of(path: Path) -> Path | None:
    """The folder of the outermost package that a file is in; None for a file that is in none.

    A package has an __init__.py; and so high as the relative imports of the file reach (`from ..a` two folders), a
    folder is one without it.
    """
    levels = min(_levels_above(path), len(path.parents) - 1)
    package = path.parents[levels - 1] if levels else None
    if package is None and _hides_its_folder(path):
        package = path.parent
    around = package.parent if package else path.parent
    while (around / "__init__.py").is_file():
        package, around = around, around.parent
    return package


def _hides_its_folder(path: Path) -> bool:
    """Whether a file beside it has the name of its folder, as model/model.py, and it imports another by both names."""
    folder = path.parent
    names = (name.split(".") for name in _whole_names_of(path))
    inner = [parts[1] for parts in names if parts[0] == folder.name and len(parts) > 1]
    return (folder / f"{folder.name}.py").is_file() and any((folder / f"{each}.py").is_file() for each in inner)


def _roots_of(path: Path) -> Iterator[Path]:
    """The folders around a file that hold a package or a file which it imports by its whole name: a repository's."""
    for top in _tops_of(path):
        if PathFinder.find_spec(top) is None:
            yield from [each for each in path.parents if (each / top).is_dir() or (each / f"{top}.py").is_file()][:1]


def _tops_of(path: Path) -> list[str]:
    """The first parts of the whole names that a file imports, each once."""
    return list(dict.fromkeys(name.partition(".")[0] for name in _whole_names_of(path)))


def _whole_names_of(path: Path) -> list[str]:
    nodes = list(ast.walk(_tree_of(path)))
    names = [each.name for node in nodes if isinstance(node, ast.Import) for each in node.names]
    found = (node for node in nodes if isinstance(node, ast.ImportFrom) and not node.level)
    return names + [node.module for node in found if node.module]


def _levels_above(path: Path) -> int:
    """How many packages its relative imports reach (`from .a` 1, `from ..a` 2); 0 without any."""
    return max((node.level for node in ast.walk(_tree_of(path)) if isinstance(node, ast.ImportFrom)), default=0)


def classes_of(path: Path) -> list[str]:
    """The classes that a file defines, which is not run."""
    return [node.name for node in ast.iter_child_nodes(_tree_of(path)) if isinstance(node, ast.ClassDef)]


def _tree_of(path: Path) -> ast.AST:
    """The syntax of a file, empty for one that is no Python: running it says what is wrong."""
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _is_there(source: str) -> bool:
    """Whether there is a module of this name. Raises what a package around it raises as it is imported."""
    try:
        return importlib.util.find_spec(source) is not None
    except ValueError:
        return False
    except ModuleNotFoundError as error:
        if error.name and (source == error.name or source.startswith(f"{error.name}.")):
            return False
        raise


def without_input(work: Callable[[], _T]) -> _T:
    """Run somebody's code with an empty standard input: its own is the protocol's."""
    stdin, sys.stdin = sys.stdin, io.StringIO()
    try:
        return work()
    except EOFError as error:
        problem = f"it asks for input, and nobody is there: {last_frames(error)}"
        raise BadTarget(problem, _UNDER_MAIN) from None
    except BadTarget:
        raise
    except ModuleNotFoundError as error:
        raise BadTarget(last_frames(error), to_add(error)) from None
    except TookTooLong as error:
        raise too_long("its file, or what makes it, does not end", error, _UNDER_MAIN) from None
    except (Exception, SystemExit) as error:
        raise BadTarget(last_frames(error), _advice_on(error)) from None
    finally:
        sys.stdin = stdin


def _advice_on(error: BaseException) -> str:
    """What to do where a line of the user's ends the process as it is imported, or names what a library has not."""
    if isinstance(error, SystemExit):
        return _UNDER_MAIN if is_at_import(error) else ""
    of_no_name = isinstance(error, ImportError) and not _NO_NAME.match(str(error))
    own = [each for each in places_of(error) if Path(each.function[0]).is_file()]
    return MEND if isinstance(error, Exception) and own and names_nothing(error) and not of_no_name else ""

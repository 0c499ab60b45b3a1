"""Finds modules without importing anything. Run as a script by another interpreter, it prints those that it lacks, or
where it imports from.

python lookup.py MODULE…
python lookup.py --installed        prints every distribution with its version, a line each
python lookup.py --places MODULE…
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator


def is_there(module: str) -> bool:
    """Whether `import a.b.c` would find a file or folder. Unlike importlib.util.find_spec, this imports no package on
    the way, and so executes nothing of it; what a package makes only when it is imported is not found."""
    top, *below = module.split(".")
    if not all(name.isidentifier() for name in (top, *below)):
        return False
    try:
        spec = importlib.util.find_spec(top)
    except ImportError:  # by a finder that somebody else has installed
        return False
    except ValueError:  # a module that was imported without a spec
        return not below and top in sys.modules
    for name in below:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = importlib.machinery.PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations)
    return spec is not None


def installed() -> list[str]:
    """Every distribution with its version, sorted."""
    read = (each.metadata for each in importlib.metadata.distributions())  # `name` and `version` each parse it anew
    return sorted(f"{each['Name']} {each['Version']}" for each in read)


def places(modules: Iterable[str]) -> Iterator[str]:
    """The folders and files that this interpreter imports from: its search path, and where `modules` are, whose
    packages may be installed as a link to a checkout (an editable install)."""
    yield from filter(os.path.exists, sys.path)
    for module in modules:
        top = module.partition(".")[0]
        if is_there(top) and (spec := importlib.util.find_spec(top)):
            yield from spec.submodule_search_locations or filter(os.path.isfile, [spec.origin or ""])


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    if sys.argv[1:] == ["--installed"]:
        print(*installed(), sep="\n")
    elif sys.argv[1:2] == ["--places"]:
        print(*places(sys.argv[2:]), sep="\n")
    else:
        print(*[module for module in sys.argv[1:] if not is_there(module)])

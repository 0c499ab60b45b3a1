"""Finds modules without importing anything. Run as a script by another interpreter, it prints those that it lacks, or
where it lies.

python lookup.py MODULE…
python lookup.py --installed        prints every distribution with its version, a line each
python lookup.py --places           prints the interpreter itself, and below it what it needs and imports from
"""

import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Iterator


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


PARTS = ("bin", "include", "lib", "lib32", "lib64", "libexec", "pyvenv.cfg")
"""What a program needs of the folder that it is installed in, which may be a project's folder, or a home."""


def parts_of(prefix: str) -> Iterator[str]:
    """What an installation of programs has below its folder."""
    yield from filter(os.path.exists, (os.path.join(prefix, part) for part in PARTS))  # noqa: PTH118


def places() -> Iterator[str]:
    """The folders and files that this interpreter needs: the parts of its environment and of the installation below
    that, its search path, and the packages that are installed as a link to a checkout (an editable install). No word of
    an adapter's has a part in it."""
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix)):
        yield from parts_of(prefix)
    yield from filter(os.path.exists, map(os.path.abspath, sys.path))
    for name in _linked():
        if is_there(name) and (spec := importlib.util.find_spec(name)):
            yield from spec.submodule_search_locations or filter(os.path.isfile, [spec.origin or ""])


def _linked() -> Iterator[str]:
    """The packages of distributions that are links to checkouts (PEP 610)."""
    for each in importlib.metadata.distributions():
        try:
            origin = json.loads(each.read_text("direct_url.json") or "{}")
        except ValueError:
            continue
        if origin.get("dir_info", {}).get("editable"):
            yield from (each.read_text("top_level.txt") or each.metadata["Name"].replace("-", "_")).split()


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file
    if sys.argv[1:] == ["--installed"]:
        print(*installed(), sep="\n")
    elif sys.argv[1:] == ["--places"]:
        print(sys.executable, *places(), sep="\n")
    else:
        print(*[module for module in sys.argv[1:] if not is_there(module)])

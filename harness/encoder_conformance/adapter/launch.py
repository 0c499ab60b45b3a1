"""`python launch.py adapter.py` runs an adapter with this `encoder_conformance` importable.

An adapter runs in any environment that has its framework, numpy and safetensors. `encoder-conformance` need not be
installed there, and no other package becomes importable, because `sys.path` gets no folder of packages. What is printed
while the adapter is imported goes to standard error, since the wire has descriptors of its own.
"""

import gc
import importlib.util
import runpy
import sys
from pathlib import Path


def _make_importable(name: str, folder: Path) -> None:
    init = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    # A framework's import makes objects that stay: looking for cycles among them takes a tenth of it, until `serve`.
    gc.disable()
    script = Path(sys.argv[1]).resolve()
    sys.argv[:] = [str(script)]
    sys.path[0] = str(script.parent)  # was the folder of this file
    _make_importable("encoder_conformance", Path(__file__).resolve().parents[1])
    importlib.import_module("encoder_conformance.protocol.descriptors").claim_standard_streams()
    runpy.run_path(str(script), run_name="__main__")

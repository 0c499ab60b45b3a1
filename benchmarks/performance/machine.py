"""What was measured on."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version

from benchmarks.performance.measuring import CORES

PACKAGES = (
    "numpy",
    "torch",
    "tensorflow-cpu",
    "keras",
    "jax",
    "jaxlib",
    "flax",
    "onnx",
    "onnxscript",
    "onnxruntime",
    "openvino",
)


def machine() -> dict[str, str]:
    """Cores and memory, the system and Python. Each section has its processor: no machine is here every day."""
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": str(CORES),
        "memory": f"{gibibytes:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found

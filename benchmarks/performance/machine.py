"""What was measured on, and whether anything else was at work there."""

import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

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
    """The processor, its cores and memory, the system and Python."""
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": _processor(),
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


def busy(seconds: float = 2.0) -> float:
    """Cores that others keep busy, averaged over a moment in which this process sleeps."""
    before, begun = _worked(), time.perf_counter()
    time.sleep(seconds)
    return (_worked() - before) / os.sysconf("SC_CLK_TCK") / (time.perf_counter() - begun)


def _worked() -> int:
    """Ticks that all the cores together have spent on anything but waiting."""
    user, nice, system, _, _, interrupt, soft_interrupt, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return user + nice + system + interrupt + soft_interrupt + steal


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()

"""What is freed goes back to the system, though something small that is still held lies behind it."""

import subprocess
import sys

import pytest

GIVEN_BACK = """
import sys
import numpy as np
from encoder_conformance.platform.memory import give_large_arrays_back

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

if sys.argv[1] == "bounded":
    give_large_arrays_back()
np.ones(1 << 20)  # 8 MiB: freed, and glibc's threshold is there from now on
before = resident()
held = [np.ones(1 << 16) for _ in range(200)]  # 100 MiB
del held[:-1]
print((resident() - before) >> 20)
"""


def left(how: str) -> int:
    """MiB that are still resident of 100 that were freed."""
    ended = subprocess.run([sys.executable, "-c", GIVEN_BACK, how], capture_output=True, text=True, check=True)
    return int(ended.stdout)


@pytest.mark.linux
def test_freed_arrays_are_given_back() -> None:
    assert left("bounded") <= 2

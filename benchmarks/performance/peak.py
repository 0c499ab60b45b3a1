"""`python -m benchmarks.performance.peak FILE run …`: a `conform` command, which writes its own largest memory in bytes
and its own seconds of processor to FILE, as JSON.

What `wait4` says of a command includes the workers that it waited for. This is of the parent's process alone.
"""

import json
import resource
import sys
from pathlib import Path

from encoder_conformance.commands import main as conform


def largest() -> int:
    """Bytes that were resident at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError("/proc/self/status says nothing of VmHWM: this needs Linux")


if __name__ == "__main__":
    file = Path(sys.argv.pop(1))
    try:
        conform.main()
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        file.write_text(json.dumps({"bytes": largest(), "processor": used.ru_utime + used.ru_stime}))

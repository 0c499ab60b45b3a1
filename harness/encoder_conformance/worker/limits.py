"""Limits of a worker: the memory that it may hold, and what it may reach."""

import os
from dataclasses import dataclass, field
from pathlib import Path

_SHARE = 0.75


def default_memory() -> int:
    """Three quarters of the memory that this process may use: the machine's, or its container's."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(limit)
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            total = min(total, int(text))
    return int(_SHARE * total)


@dataclass(frozen=True)
class WorkerLimits:
    """`memory`: the resident bytes of a worker and its descendants. `isolate`: whether it runs in a sandbox."""

    memory: int = field(default_factory=default_memory)
    isolate: bool = False

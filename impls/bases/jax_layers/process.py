"""How a worker process is set up for JAX: what it runs on, where it keeps what it compiles, and how much of it."""

import gc
import os
from pathlib import Path
from typing import Any

import jax

from encoder_conformance.impls.bases.jax_layers.kept_programs import options_of_kept_programs


def set_up(device: str, threads: int) -> None:
    """To be called before the first array is made."""
    os.environ["PJRT_NPROC"] = str(threads)  # the size of XLA's pool, read when the first array is made
    jax.config.update("jax_platforms", device)
    jax.config.update("jax_enable_x64", True)
    keep_what_is_compiled()
    # Tracing makes millions of objects and few cycles: the collector looks at them less often, and at JAX's own never.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def keep_what_is_compiled() -> None:
    """A folder of the user's own choice (JAX_COMPILATION_CACHE_DIR) is left to be that."""
    options: Any = jax.config  # which declares no option
    if not options.jax_compilation_cache_dir:
        for name, value in options_of_kept_programs().items():
            jax.config.update(name, value)


MAPS = Path("/proc/self/maps")
MAPS_KEPT = 40_000
"""Each program is about 75 memory maps. Linux gives a process 65,530 (vm.max_map_count), after which LLVM finds no
memory for another; what is left has room for three hundred programs, five times those of any one layer."""


def make_room() -> None:
    """Forget every program where there are too many to hold beside those of one layer more. To be called before each
    layer; which may be one of before, whose programs are there still."""
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MAPS_KEPT:
        jax.clear_caches()

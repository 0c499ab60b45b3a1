"""Where JAX keeps what it compiles: compiling is nearly all of a run's time, and later runs find the programs there.

JAX keeps them under a key of the program itself, of jaxlib and of the processor.
"""

from encoder_conformance import cache_folder


def options_of_kept_programs() -> dict[str, str | int]:
    """JAX's options, which are its environment variables too, in capitals; none where no folder can be written to."""
    folder = cache_folder("jax")
    if folder is None:
        return {}
    return {
        "jax_compilation_cache_dir": str(folder),
        "jax_persistent_cache_min_compile_time_secs": 0,  # all of these programs are small
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }

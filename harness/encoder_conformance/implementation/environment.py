"""The environment variables of a worker: those that it needs, and none of the user's secrets."""

import os
import re
from collections.abc import Mapping

from encoder_conformance.platform.processors import blas_threads

_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "TMPDIR",
        "XDG_CACHE_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "SYSTEMROOT",
        "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH",
    }
)  # fmt: skip
_PREFIXES = (
    "LC_", "CONFORM_", "PYTHON", "NODE_", "MALLOC_",
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "VECLIB_", "BLIS_", "NUMEXPR_",
    "TORCH_", "PYTORCH_", "ATEN_", "ONEDNN_", "DNNL_",
    "TF_", "KERAS_", "JAX_", "XLA_", "PJRT_", "ONNX", "ORT_", "OPENVINO_", "OV_", "MLX_",
    "CUDA_", "NVIDIA_", "CUBLAS_", "CUDNN_", "NCCL_", "HIP_", "ROCR_",
)  # fmt: skip
"""Variables of the system, of languages, of threads and memory, of frameworks, of devices."""
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|PRIVATE|(^|_)KEY(_|$|S$)", re.IGNORECASE)


def passed_on(variables: Mapping[str, str], named: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables that a worker gets: what programs and frameworks read, and what a manifest has `named`.

    A name that speaks of a secret, such as NODE_AUTH_TOKEN, is passed on only if it is named.
    """
    return {
        name: value
        for name, value in variables.items()
        if name in named or ((name in _NAMES or name.startswith(_PREFIXES)) and not _SECRET.search(name))
    }


def worker_environment(threads: int, named: tuple[str, ...], more: Mapping[str, str]) -> dict[str, str]:
    """A worker's whole environment. `more` replaces what it has already."""
    return {**passed_on(os.environ, named), "PYTHONUNBUFFERED": "1", **blas_threads(threads), **more}

"""The forms of a module that `conform check --also` asks beside it: compiled, exported, in a narrow format."""

from dataclasses import dataclass

from encoder_conformance.spec.dtypes import DtypeName

_TORCH, _KERAS = ("PyTorch",), ("Keras",)
_JAX = ("Flax NNX", "Flax Linen", "Equinox", "JAX")


@dataclass(frozen=True)
class ModuleVariant:
    """`word`: as it is asked for. `said`: what it is. `frameworks`: whose modules have it.

    `asked_as`: the format whose cases it is asked, by whose rounding it is judged; `dtype`: that of its x and answer.
    `backend`: of Keras, with which it is made again. `compiles`: for each kind of arguments anew, which takes seconds.
    """

    word: str
    said: str
    frameworks: tuple[str, ...]
    asked_as: DtypeName = "float32"
    dtype: DtypeName = "float32"
    backend: str = ""
    compiles: bool = False


VARIANTS = {
    each.word: each
    for each in (
        ModuleVariant("compile", "torch.compile", _TORCH, compiles=True),
        ModuleVariant("compile-max-autotune", "torch.compile, mode max-autotune", _TORCH, compiles=True),
        ModuleVariant("autocast-bf16", "torch.autocast in bfloat16", _TORCH, asked_as="bfloat16"),
        ModuleVariant("export", "torch.export, or jax.export", (*_TORCH, *_JAX)),
        ModuleVariant("half", "all of it in float16", (*_TORCH, *_JAX), asked_as="float16", dtype="float16"),
        ModuleVariant("jit", "jax.jit, as XLA optimises it", _JAX),
        ModuleVariant("tensorflow", "Keras on TensorFlow", _KERAS, backend="tensorflow"),
        ModuleVariant("jax", "Keras on JAX", _KERAS, backend="jax"),
        ModuleVariant("torch", "Keras on PyTorch", _KERAS, backend="torch"),
    )
}
"""Word → what it asks for."""

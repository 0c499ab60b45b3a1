"""The frameworks for which `conform new` has templates."""

from dataclasses import dataclass
from pathlib import Path

from encoder_conformance.platform.paths import IMPLS, PACKAGE

TEMPLATES = PACKAGE / "commands" / "new" / "templates"


_DEFAULTS = """\
choices:
  # own: the constructor as it is called without arguments, which makes one of the layers in `defaults`
  - {name: defaults, values: [given, own]}
defaults: [pre-gelu-512]
"""


@dataclass(frozen=True)
class Framework:
    """A framework. `like` is the folder in impls/ whose requirements.txt is copied; "" if the template has its own.
    `choices`: lines of the manifest; a file of ONNX has no constructor with defaults."""

    title: str
    homepage: str
    requires: tuple[str, ...]
    install: str
    like: str
    dtypes: tuple[str, ...] = ("float64", "float32")
    checks: tuple[str, ...] = ("output", "stages", "gradients", "refusal")
    choices: str = _DEFAULTS
    stages: tuple[str, ...] = (
        "norm1", "attention_output", "residual1", "norm2", "ffn_output", "residual2", "output",
    )  # fmt: skip

    @property
    def requirements(self) -> Path | None:
        return IMPLS / self.like / "requirements.txt" if self.like else None


FRAMEWORKS: dict[str, Framework] = {
    "pytorch": Framework("PyTorch", "https://pytorch.org", ("torch",), "torch", "pytorch"),
    "keras": Framework("Keras", "https://keras.io", ("tensorflow", "keras"), "tensorflow-cpu", "keras_tf"),
    "jax": Framework("JAX", "https://docs.jax.dev", ("jax",), "jax", "jax_pure"),
    "onnx": Framework(
        "ONNX Runtime",
        "https://onnxruntime.ai",
        ("onnx", "onnxruntime"),
        "onnx onnxruntime",
        "onnx_direct",
        dtypes=("float32",),
        checks=("output", "refusal"),
        stages=("output",),
        choices="",
    ),
    "numpy": Framework("NumPy", "https://numpy.org", ("numpy",), "numpy", "", checks=("output", "stages", "refusal")),
}
"""Value of --framework → framework. NumPy's template is the plain one, for frameworks that are not listed."""

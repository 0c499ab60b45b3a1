"""Encoders, and what is none, that packages ship as ONNX files: where each lies, and what `conform validate` says."""

from dataclasses import dataclass

RIGHT, NOT_JUDGED = 0, 2


@dataclass(frozen=True)
class Shipped:
    """`path` is the file's in the wheel of `package`. `said`: what the verdict has to say, in its own words."""

    package: str
    path: str
    status: int
    said: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.package}: {self.path.rpartition('/')[2]}"


CONSISTENT = "Internally consistent"
NO_ENCODER = "it is no Transformer encoder: there is no attention in it; it is made of "
SVTR = (CONSISTENT, "pre-norm layer_norm ε 1e-05, silu", "D = 120, H = 8, F = 240, N = 2", "the final norm is layer_norm with epsilon 1e-06")  # fmt: skip
FILES: tuple[Shipped, ...] = ()

"""What does a verdict on a module take, the first time and again?"""

import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.performance.measuring import Took, command, in_turns, ratios
from benchmarks.performance.page import Figure, Measured, median_of

QUESTION = (
    "What does `conform check` of a layer of d_model 64 take, with an empty cache folder; again, unchanged; and judged "
    "anew (`--rerun`), as when its file was edited? The script imports PyTorch and exports the layer once; its seconds "
    "say how fast the machine is."
)
REPEATS = 3
_ALONE = """
import torch
layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
torch.onnx.export(layer, (torch.zeros(3, 5, 64),), dynamo=True, verbose=False)
"""
_MODULES = """
def torch_layer():
    import torch
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)

def keras_block():
    import keras
    keras.utils.set_random_seed(0)
    x = keras.Input((None, 64))
    y = keras.layers.LayerNormalization(epsilon=1e-5)(x + keras.layers.MultiHeadAttention(4, 16)(x, x))
    z = keras.layers.Dense(64)(keras.layers.Dense(128, activation="relu")(y))
    return keras.Model(x, keras.layers.LayerNormalization(epsilon=1e-5)(y + z))

def flax_block():
    from flax import nnx

    class Block(nnx.Module):
        def __init__(self, rngs):
            chosen = {"epsilon": 1e-5, "use_fast_variance": False, "rngs": rngs}
            self.norm1, self.norm2 = nnx.LayerNorm(64, **chosen), nnx.LayerNorm(64, **chosen)
            self.attention = nnx.MultiHeadAttention(4, 64, decode=False, rngs=rngs)
            self.up, self.down = nnx.Linear(64, 128, rngs=rngs), nnx.Linear(128, 64, rngs=rngs)

        def __call__(self, x):
            x = self.norm1(x + self.attention(x))
            return self.norm2(x + self.down(nnx.relu(self.up(x))))

    return Block(nnx.Rngs(0))
"""
_NAMES = {"torch_layer": ("PyTorch", 6), "keras_block": ("Keras on TensorFlow", 12), "flax_block": ("Flax NNX", 20)}
"""Function → its name, and the seconds of the first check at most."""
_AGAIN = 3
_FIRST, _UNCHANGED, _ANEW = "first", "unchanged", "anew"


def measure(scratch: Path) -> Measured:
    scratch.mkdir(parents=True)
    (scratch / "modules.py").write_text(_MODULES)
    asked = {
        f"{name} {when}": partial(checked, scratch, name, when)
        for name in _NAMES
        for when in (_FIRST, _UNCHANGED, _ANEW)
    }
    turns = in_turns({"alone": partial(alone, scratch), **asked}, REPEATS)
    taken = {name: [each.processor for each in found] for name, found in turns.taken.items()}
    figures = [figure for name in _NAMES for figure in _of(name, taken)]
    script = median_of("alone", "PyTorch's import and one export", "seconds", taken["alone"])
    return Measured({"modules": ", ".join(what for what, _ in _NAMES.values())}, (*figures, script), turns.others)


def _of(name: str, taken: dict[str, list[float]]) -> Iterator[Figure]:
    what, at_most = _NAMES[name]
    first, unchanged, anew = (taken[f"{name} {when}"] for when in (_FIRST, _UNCHANGED, _ANEW))
    yield median_of(name, f"{what}: processor", "seconds", first, at_most=at_most)
    yield median_of(f"{name}-again", f"{what}: processor, unchanged", "seconds", unchanged, at_most=_AGAIN)
    yield median_of(f"{name}-anew", f"{what}: processor, anew", "seconds", anew)
    yield median_of(f"{name}-ratio", f"{what}: anew / the first time", "ratio", ratios(anew, first))
    for suffix, which, asked in (("script", "first check", first), ("script-anew", "anew", anew)):
        yield median_of(f"{name}-{suffix}", f"{what}: {which} / the script", "ratio", ratios(asked, taken["alone"]))


def alone(scratch: Path) -> Took:
    return command([sys.executable, "-c", _ALONE], scratch / "log")


def checked(scratch: Path, name: str, when: str) -> Took:
    """The first check has an empty cache folder, and the others what those before them have kept."""
    cache = scratch / name
    if when == _FIRST:
        shutil.rmtree(cache, ignore_errors=True)
    words = "check", f"{scratch / 'modules.py'}:{name}", "--out", str(scratch / "out")
    called = [
        sys.executable,
        "-m",
        "encoder_conformance.commands.main",
        *words,
        *(["--rerun"] if when == _ANEW else []),
    ]
    return command(called, scratch / "log", XDG_CACHE_HOME=str(cache))

"""Reading the encoder's parameters out of a file that `keras.saving.save_weights(encoder, path)` wrote."""

import tempfile
from pathlib import Path
from typing import Any

from encoder_conformance.impls.keras_tf.adapter import KerasTensorFlow  # first: it chooses Keras' backend

import h5py  # isort: skip
import keras

from encoder_conformance import Tensors

ENDING = ".weights.h5"
WRITES = "keras.saving.save_weights(encoder, path) writes one"
Shapes = dict[str, tuple[int, ...]]


def read(path: Path, layer: dict[str, Any], like: Tensors, dtype: str) -> Tensors:
    """Under the specification's names, in `dtype`.

    Raises ValueError for what is no file of weights, or of another layer's: Keras itself says that of the first object
    that does not fit, and nothing of what a file holds beside the layer's.
    """
    if not path.name.endswith(ENDING):
        raise ValueError(f"its name does not end in {ENDING}, as Keras has it of a file of weights: {WRITES}")
    held = _shapes(path)
    live = KerasTensorFlow()
    live.build(layer, like, dtype)
    _check(held, _as_saved(live.encoder))
    keras.saving.load_weights(live.encoder, path)
    return live.parameters()


def _shapes(path: Path) -> Shapes:
    """Path in the file → shape of every tensor that lies in the file itself; a link to another file is none."""
    found: Shapes = {}

    def note(name: str, of: h5py.Group | h5py.Dataset) -> None:
        if isinstance(of, h5py.Dataset):
            found[name] = of.shape

    try:
        with h5py.File(path, "r") as file:
            file.visititems(note)
    except OSError:
        raise ValueError(f"it is no HDF5 file, or is cut short: {WRITES}") from None
    return found


def _as_saved(encoder: keras.layers.Layer) -> Shapes:
    """The same of a file that Keras writes of the live encoder: which path it gives a weight is Keras' to say."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"live{ENDING}"
        keras.saving.save_weights(encoder, path)
        return _shapes(path)


def _check(held: Shapes, due: Shapes) -> None:
    """Raises ValueError."""
    if missing := sorted(due.keys() - held.keys()):
        inside = next((name.removesuffix(missing[0]) for name in held if name.endswith(f"/{missing[0]}")), "")
        if inside:
            raise ValueError(f"it holds a model around the encoder, which is at {inside!r}: save the encoder's alone")
        raise ValueError(f"it has no {missing[0]}, and {len(missing) - 1} more are missing: it is another layer's")
    if extra := sorted(held.keys() - due.keys()):
        raise ValueError(f"it holds {extra[0]} and {len(extra) - 1} more beside the layer's: it is another layer's")
    for name, shape in due.items():
        if held[name] != shape:
            raise ValueError(f"{name} is {list(held[name])}, and the layer's is {list(shape)}")

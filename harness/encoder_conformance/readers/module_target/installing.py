"""The one command that adds a package which is missing, and changes no other."""

_EXTRAS = {"torch": "torch", "keras": "keras", "tensorflow": "keras", "tf2onnx": "keras"} | dict.fromkeys(
    ("jax", "flax", "equinox", "jax2onnx"), "jax"
)
"""Module → the extra of this project that has it, with what is needed to read such modules."""
_OTHERWISE = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "PyYAML",
    "flash_attn": "flash-attn",
    "keras_hub": "keras-hub",
    "keras_nlp": "keras-nlp",
}
"""Module → the package that it is of, where that has another name."""


def install(module: str) -> str:
    """`pip install einops`: the command for a module, which may be one of a package (`timm.layers`)."""
    top = module.partition(".")[0]
    extra = _EXTRAS.get(top)
    return f"pip install 'encoder-conformance[{extra}]'" if extra else f"pip install {_OTHERWISE.get(top, top)}"

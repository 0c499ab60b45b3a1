"""`specs/published.yaml` against the configurations of transformers.

These are encoders that the layer language cannot say; `test_others_layers.py` holds the others by their numbers.
"""

import importlib
from typing import Any

from encoder_conformance.spec.published import PublishedEncoder, published

CONFIGURATIONS = {
    "deberta_v2": "DebertaV2Config",
    "embedding_gemma2": "EmbeddingGemma2TextConfig",
    "wavlm": "WavLMConfig",
    "dinov3_vit": "DINOv3ViTConfig",
    "layoutlmv3": "LayoutLMv3Config",
    "vjepa2": "VJEPA2Config",
    "swin": "SwinConfig",
    "swinv2": "Swinv2Config",
}
EPSILONS = ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_eps")
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "dense_act_fn")
OTHER_NAMES = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


def defaults(encoder: PublishedEncoder) -> dict[str, Any]:
    """Epsilon and activation by the defaults of the encoder's configuration; None for what is not in it."""
    models = importlib.import_module(f"transformers.models.{encoder.encoder}.configuration_{encoder.encoder}")
    said = vars(getattr(models, CONFIGURATIONS[encoder.encoder])())
    activation = next((said[name] for name in ACTIVATIONS if name in said), None)
    epsilon = next((said[name] for name in EPSILONS if name in said), None)
    return {"epsilon": epsilon, "activation": OTHER_NAMES.get(activation, activation)}


def test_the_first_layer_has_the_defaults_of_the_configuration() -> None:
    """Epsilon and activation."""
    others = [each for each in published() if each.inside and each.encoder != "beit"]
    assert {each.encoder for each in others} == set(CONFIGURATIONS)
    first = {each.encoder: each.choices[0] for each in others}
    assert {each.encoder: defaults(each) for each in others} == {
        name: {"epsilon": float(f"{own.norm.epsilon:.6g}"), "activation": own.feed_forward.activation}
        for name, own in first.items()
    }

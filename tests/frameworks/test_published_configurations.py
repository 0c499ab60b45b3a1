"""`specs/published.yaml` against the configurations of transformers.

These are encoders that the layer language cannot say; `test_others_layers.py` holds the others by their numbers.
"""

import importlib
from typing import Any

from others_layers import LAYERS

from encoder_conformance.spec.published import PublishedEncoder, published

CONFIGURATIONS = {
    "mpnet": "MPNetConfig",
    "deberta_v2": "DebertaV2Config",
    "t5": "T5Config",
    "umt5": "UMT5Config",
    "t5gemma": "T5GemmaModuleConfig",
    "t5gemma2": "T5Gemma2TextConfig",
    "gemma3": "Gemma3TextConfig",
    "embedding_gemma2": "EmbeddingGemma2TextConfig",
    "modernbert": "ModernBertConfig",
    "nomic_bert": "NomicBertConfig",
    "jina_embeddings_v3": "JinaEmbeddingsV3Config",
    "eurobert": "EuroBertConfig",
    "roformer": "RoFormerConfig",
    "esm": "EsmConfig",
    "esmc": "EsmcConfig",
    "wavlm": "WavLMConfig",
    "beit": "BeitConfig",
    "dinov2": "Dinov2Config",
    "dinov3_vit": "DINOv3ViTConfig",
    "layoutlmv3": "LayoutLMv3Config",
    "vjepa2": "VJEPA2Config",
    "swin": "SwinConfig",
}
EPSILONS = ("layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_eps")
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "dense_act_fn")
OTHER_NAMES = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
IN_CODE = {("esmc", "epsilon"), ("esm", "activation")}
"""What no configuration says: their code has the number, or the function."""


def defaults(encoder: PublishedEncoder) -> dict[str, Any]:
    """Epsilon and activation by the defaults of the encoder's configuration; None for what is not in it."""
    models = importlib.import_module(f"transformers.models.{encoder.encoder}.configuration_{encoder.encoder}")
    said = vars(getattr(models, CONFIGURATIONS[encoder.encoder])())
    activation = next((said[name] for name in ACTIVATIONS if name in said), None)
    epsilon = next((said[name] for name in EPSILONS if name in said), None)
    return {"epsilon": epsilon, "activation": OTHER_NAMES.get(activation, activation)}


def test_the_first_values_are_the_defaults_of_configurations() -> None:
    """Epsilon and activation; of several values the first is the code's own."""
    others = [each for each in published() if each.kind == "model" and each.encoder not in LAYERS]
    assert {each.encoder for each in others} == set(CONFIGURATIONS)
    own = {(each.encoder, key): value for each in others for key, value in defaults(each).items()}
    assert {what for what, value in own.items() if value is None} == IN_CODE
    first = {}
    for each in others:
        first[each.encoder, "epsilon"] = float(f"{each.norm.epsilon[0]:.6g}")
        first[each.encoder, "activation"] = each.feed_forward.activation[0]
    assert own == {what: None if what in IN_CODE else value for what, value in first.items()}

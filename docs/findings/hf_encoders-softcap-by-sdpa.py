"""T5Gemma caps its scores, which scaled_dot_product_attention cannot do: the layer refuses to be asked for it."""

import torch
from transformers.models.t5gemma.configuration_t5gemma import T5GemmaModuleConfig
from transformers.models.t5gemma.modeling_t5gemma import T5GemmaEncoderLayer

sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 16}
x, turned = torch.zeros(1, 3, 8), (torch.ones(1, 3, 4), torch.zeros(1, 3, 4))
for attention in ("eager", "sdpa"):
    config = T5GemmaModuleConfig(**sizes, dropout_rate=0.0, attn_implementation=attention)
    try:
        T5GemmaEncoderLayer(config, 0)(x, position_embeddings=turned)
        print(f"{attention}: an output, with scores capped at {config.attn_logit_softcapping}")
    except ValueError as error:
        print(f"{attention}: {error}")

"""The parameters of a `Block` of Keras' layers, by the paths of its weights."""

from encoder_conformance import ParameterMap, Take

_IN, _BIAS, _OUT = ("d_model", "num_heads", "head_dim"), ("num_heads", "head_dim"), ("num_heads", "head_dim", "d_model")
_TAKES = {
    "attention/attention_output/kernel": Take("attention.output.weight", shape=_OUT),
    "attention/attention_output/bias": Take("attention.output.bias"),
}
for _own, _name, _shape in (("kernel", "weight", _IN), ("bias", "bias", _BIAS)):
    for _part in ("query", "key", "value"):
        _TAKES[f"attention/{_part}/{_own}"] = Take(f"attention.{_part}.{_name}", shape=_shape)
    for _part in ("hidden", "output"):
        _TAKES[f"{_part}/{_own}"] = Take(f"feed_forward.{_part}.{_name}")
for _norm in ("norm1", "norm2"):
    _TAKES |= {f"{_norm}/gamma": Take(f"{_norm}.gain"), f"{_norm}/beta": Take(f"{_norm}.shift")}
PARAMETERS = ParameterMap(_TAKES)

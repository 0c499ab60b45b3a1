"""The parameters of a `Block` of Keras' layers, by the paths of its weights."""

from encoder_conformance import ParameterMap, Take

_IN, _BIAS, _OUT = ("d_model", "num_heads", "head_dim"), ("num_heads", "head_dim"), ("num_heads", "head_dim", "d_model")
_TAKES = {
    "attention/attention_output/kernel": Take("attention.output.weight", shape=_OUT),
    "attention/attention_output/bias": Take("attention.output.bias"),
}
for _name in ("query", "key", "value"):
    _TAKES[f"attention/{_name}/kernel"] = Take(f"attention.{_name}.weight", shape=_IN)
    _TAKES[f"attention/{_name}/bias"] = Take(f"attention.{_name}.bias", shape=_BIAS)
for _name in ("norm1", "norm2"):
    _TAKES |= {f"{_name}/gamma": Take(f"{_name}.gain"), f"{_name}/beta": Take(f"{_name}.shift")}
for _name in ("hidden", "output"):
    _TAKES[f"{_name}/kernel"] = Take(f"feed_forward.{_name}.weight")
    _TAKES[f"{_name}/bias"] = Take(f"feed_forward.{_name}.bias")
PARAMETERS = ParameterMap(_TAKES)

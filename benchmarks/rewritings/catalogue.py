"""The rewritings by name: the steps that each does otherwise, the layers that have them, and what clause says no."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.attention import SDPBackend

from benchmarks.rewritings import activations, norms, products, softmaxes, sums, whole
from benchmarks.rewritings.layer import Steps
from encoder_conformance.spec.layer import Layer


@dataclass(frozen=True)
class Rewriting:
    """`group`: the step that is done otherwise. `says`: what is computed. `less_exact`: the clause by which it is not
    exact enough, and why; "" for all that are never to be accused."""

    name: str
    group: str
    says: str
    steps: Callable[[], Steps]
    applies: Callable[[Layer], bool]
    less_exact: str = ""


def anywhere(layer: Layer) -> bool:
    return True


def has_layer_norm(layer: Layer) -> bool:
    return layer.norm.kind == "layer_norm" and layer.part == "encoder_layer"


def has_rms_norm(layer: Layer) -> bool:
    return layer.norm.kind == "rms_norm" and layer.part == "encoder_layer"


def has_activation(name: str) -> Callable[[Layer], bool]:
    return lambda layer: layer.part == "encoder_layer" and layer.feed_forward.activation == name


def has_network(layer: Layer) -> bool:
    return layer.part == "encoder_layer"


CATALOGUE: dict[str, Rewriting] = {}


def _add(
    group: str, name: str, says: str, applies: Callable[[Layer], bool] = anywhere, less_exact: str = "", **steps: object
) -> None:
    assert name not in CATALOGUE, name
    CATALOGUE[name] = Rewriting(name, group, says, partial(Steps, **steps), applies, less_exact)  # type: ignore[arg-type]


def _activation(name: str, says: str, of: str, form: Callable[[torch.Tensor], torch.Tensor]) -> None:
    _add("activation", name, says, has_activation(of), activations={**Steps().activations, of: form})


_add("whole", "as-specified", "the equations as specs/README.md has them")
_add("whole", "library", "F.linear, F.layer_norm, F.rms_norm, F.gelu, F.silu, torch.softmax", linear=products.library,
     layer_norm=norms.library, rms_norm=norms.library_rms, activations=activations.LIBRARY)  # fmt: skip
_add("whole", "checkpointed", "activations made again in the backward pass", one_layer=whole.checkpointed)
CATALOGUE["by-hand"] = Rewriting(
    "by-hand", "whole", "the backward pass of linear maps, softmax, LayerNorm and GELU by hand", whole.by_hand, anywhere
)
CATALOGUE["compiled"] = Rewriting(
    "compiled", "whole", "softmax, norm and activation by torch.compile (Inductor), of the layer pre-gelu",
    whole.compiled_steps, lambda layer: layer.layer == "pre-gelu",
)  # fmt: skip

_add("softmax", "softmax-jacobian", "gradients by the matrix diag(w) − w wᵀ", softmax=whole.SoftmaxByJacobian.apply)

_SUMS = {
    "in-order": ("from the first term to the last", sums.sequential),
    "backwards": ("from the last term to the first", sums.backwards),
    "pairwise": ("by halves", sums.pairwise),
    "kahan": ("compensated (Kahan)", sums.kahan),
    "in-blocks": ("in blocks of eight", sums.in_blocks),
    "in-lanes": ("in four lanes", sums.in_lanes),
}
for _name, (_how, _sum) in _SUMS.items():
    _add("softmax", f"softmax-{_name}", f"exp(s − max) / Σ, summed {_how}, the gradient through max",
         softmax=softmaxes.divided(_sum))  # fmt: skip
    _add("products", f"products-{_name}", f"every product of matrices summed {_how}", linear=sums.linear_by(_sum),
         scores=sums.scores_by(_sum), weigh=sums.matmul_by(_sum))  # fmt: skip
    _add("norm", f"norm-{_name}", f"mean and variance summed {_how}", has_layer_norm, layer_norm=norms.summed_by(_sum))

_add("softmax", "softmax-divided", "exp(s − max) / Σ, the gradient through max", softmax=softmaxes.divided())
_add("softmax", "softmax-max-by-index", "the same, the gradient through one of the largest scores",
     softmax=softmaxes.divided(amax=False))  # fmt: skip
_add("softmax", "softmax-detached", "exp(s − max) / Σ, the largest score detached",
     softmax=softmaxes.divided(detached=True))  # fmt: skip
_add("softmax", "softmax-exp2", "2^((s − max) · log₂ e) / Σ, the gradient through max",
     softmax=softmaxes.divided(base_2=True))  # fmt: skip
_add("softmax", "softmax-exp2-detached", "the same, detached", softmax=softmaxes.divided(base_2=True, detached=True))
_add("softmax", "softmax-reciprocal", "exp(s − max) · (1 / Σ)", softmax=softmaxes.by_reciprocal)
_add("softmax", "softmax-log", "exp(log_softmax(s))", softmax=softmaxes.by_log_softmax)
_add("softmax", "softmax-twice-shifted", "exp(t − logsumexp(t)), t = s − max", softmax=softmaxes.twice_shifted)
_add("softmax", "softmax-bound", "exp(s − ⌈max⌉) / Σ", softmax=softmaxes.less_a_bound)
_add("softmax", "softmax-wider", "in a wider format, rounded once", softmax=softmaxes.in_wider)
_add("attention", "deferred-division", "(exp(s − max) · v) / Σ, the gradient through max", attend=softmaxes.deferred())
_add("attention", "deferred-division-kahan", "the same, Σ compensated", attend=softmaxes.deferred(sums.kahan))
_add("attention", "deferred-division-detached", "the same, detached", attend=softmaxes.deferred(detached=True))
_add("attention", "online-softmax", "one key after another, with a running maximum", attend=softmaxes.online(1))
_add("attention", "block-softmax", "four keys after another", attend=softmaxes.online(4))
_add("attention", "sdpa", "F.scaled_dot_product_attention", attend=softmaxes.dot_product_attention(None))
_add("attention", "sdpa-math", "its backend MATH", attend=softmaxes.dot_product_attention(SDPBackend.MATH))
_add("attention", "sdpa-flash", "its backend FLASH_ATTENTION",
     attend=softmaxes.dot_product_attention(SDPBackend.FLASH_ATTENTION))  # fmt: skip
_add("attention", "one-at-a-time", "each item and head by itself", attend=softmaxes.one_at_a_time)

_add("scores", "scores-einsum", "einsum", scores=products.scores_by_einsum)
_add("scores", "scores-baddbmm", "baddbmm with alpha = 1/√d", scores=products.scores_by_baddbmm)
_add("scores", "scores-transposed", "(k qᵀ)ᵀ", scores=products.scores_transposed)
_add("scores", "scores-multiplied", "q kᵀ · (1/√d)", scores=products.scores_multiplied)
_add("scores", "scale-in-query", "(q / √d) kᵀ", scores=products.scale_in_query)
_add("scores", "scale-in-key", "q (k · 1/√d)ᵀ", scores=products.scale_in_key)
_add("scores", "scale-in-both", "each by the fourth root of d", scores=products.scale_in_both)

_add("linear", "einsum", "einsum", linear=products.by_einsum)
_add("linear", "addmm", "addmm onto the bias", linear=products.by_addmm)
_add("linear", "convolution", "a convolution of width 1", linear=products.by_convolution)
_add("linear", "column-of-ones", "the bias as a row of the weight", linear=products.with_column_of_ones)
_add("linear", "transposed-products", "(weightᵀ xᵀ)ᵀ", linear=products.transposed)
_add("linear", "bias-first", "each product added onto the bias", linear=products.bias_first)
_add("linear", "split-k", "the input's features in two parts", linear=products.in_two_parts)
_add("linear", "features-reversed", "the input's features in reverse order", linear=products.features_reversed)
_add("linear", "linear-wider", "in a wider format, rounded once", linear=products.in_wider)
_add("linear", "fused-qkv", "query, key and value in one product", projections=products.fused())
_add("linear", "fused-qkv-by-head", "the same, head by head", projections=products.fused(by_head=True))
_add("linear", "parallel-heads", "the output map head by head, then summed",
     attention_output=products.heads_in_parallel)  # fmt: skip
_add("linear", "unmerged-heads", "the output map by einsum over heads and features",
     attention_output=products.output_by_einsum)  # fmt: skip
_add("linear", "parallel-network", "the hidden features in two parts, then summed", has_network,
     feed_forward=products.network_in_parallel)  # fmt: skip
_add("linear", "network-by-position", "the feed-forward network position by position", has_network,
     feed_forward=products.network_position_by_position)  # fmt: skip

_add("residual", "residual-swapped", "change + x", has_network, residual=products.residual_swapped)
_add("residual", "residual-bias-last", "(x + product) + bias", has_network, residual=products.residual_bias_last)
_add("residual", "residual-bias-first", "(x + bias) + product", has_network, residual=products.residual_bias_first)

_NORMS = {
    "norm-library": ("F.layer_norm", norms.library),
    "norm-var-mean": ("torch.var_mean", norms.by(norms.var_mean)),
    "norm-welford": ("Welford's one pass", norms.by(norms.welford)),
    "norm-merged-halves": ("two halves merged (Chan)", norms.by(norms.merged_halves)),
    "norm-corrected": ("two passes, the second corrected", norms.by(norms.corrected_two_pass)),
    "norm-shifted": ("E[y²] − E[y]², y less the mean of the first half", norms.by(norms.shifted(norms.of_first_half))),
    "norm-rsqrt": ("(x − mean) · rsqrt(variance + ε)", norms.by_rsqrt),
    "norm-power": ("(variance + ε)^(−1/2)", norms.by_power),
    "norm-affine": ("x · scale + (shift − mean · scale)", norms.as_affine_map),
    "norm-scaled-first": ("x · scale − mean · scale", norms.scaled_before_centring),
    "norm-hypot": ("√(variance + ε) as a hypotenuse", norms.by_hypot),
    "norm-root-d": ("√D (x − mean) / √(Σ + D ε)", norms.of_scaled_squares),
    "norm-wider": ("in a wider format, rounded once", norms.in_wider),
}
for _name, (_how, _norm) in _NORMS.items():
    _add("norm", _name, _how, has_layer_norm, layer_norm=_norm)
_RMS = {
    "rms-library": ("F.rms_norm", norms.library_rms),
    "rms-rsqrt": ("x · rsqrt(mean square + ε)", norms.rms_by_rsqrt),
    "rms-gain-first": ("x · (gain · scale)", norms.rms_gain_first),
    "rms-hypot": ("the root as a hypotenuse", norms.rms_by_norm),
    "rms-in-order": ("summed from the first term to the last", norms.rms_in_order),
}
for _name, (_how, _norm) in _RMS.items():
    _add("norm", _name, _how, has_rms_norm, rms_norm=_norm)

_activation("relu-absolute", "(x + abs x) / 2", "relu", activations.relu_by_absolute)
_activation("relu-product", "x · (x > 0)", "relu", activations.relu_by_product)
_activation("relu-less-negative", "x − min(x, 0)", "relu", activations.relu_less_negative)
_activation("relu-where", "where(x > 0, x, 0)", "relu", activations.relu_by_where)
_activation("gelu-erfc", "x/2 · erfc(−x/√2)", "gelu", activations.gelu_by_erfc)
_activation("gelu-cdf", "x · the normal distribution", "gelu", activations.gelu_by_cdf)
_activation("gelu-log-cdf", "x · exp(log of the normal distribution)", "gelu", activations.gelu_by_log_cdf)
_activation("gelu-apart", "x/2 + x/2 · erf(x/√2)", "gelu", activations.gelu_apart)
_activation("tanh-gelu-sigmoid", "x · sigmoid(2u)", "gelu_tanh", activations.tanh_gelu_by_sigmoid)
_activation("tanh-gelu-nested", "u = x (c + c · 0.044715 x²)", "gelu_tanh", activations.tanh_gelu_nested)
_activation("tanh-gelu-exp", "tanh u = 1 − 2 / (1 + exp 2u)", "gelu_tanh", activations.tanh_gelu_by_exp)
_activation("silu-tanh", "x/2 (1 + tanh(x/2))", "silu", activations.silu_by_tanh)
_activation("silu-sigmoid", "x · sigmoid(x)", "silu", activations.silu_by_sigmoid)

_add("softmax", "softmax-logsumexp", "exp(s − logsumexp(s))", softmax=softmaxes.by_logsumexp, less_exact="E-5")
_add("softmax", "softmax-no-max", "exp(s) / Σ exp(s)", softmax=softmaxes.without_largest, less_exact="E-5")
_add("attention", "split-keys", "two halves of the keys, merged by the logarithms of their sums",
     attend=softmaxes.merged_by_logarithms)  # fmt: skip
_add("norm", "norm-fast-variance", "E[x²] − E[x]²", has_layer_norm, less_exact="E-1", layer_norm=norms.by(norms.fast))
_add("norm", "norm-shifted-by-first", "E[y²] − E[y]², y less the first feature", has_layer_norm, less_exact="E-1",
     layer_norm=norms.by(norms.shifted(norms.first_element)))  # fmt: skip
_add("norm", "norm-matrix", "centred by a product with I − 1/D", has_layer_norm, less_exact="E-1",
     layer_norm=norms.by_matrix)  # fmt: skip
_add("residual", "residual-onto", "each product added onto x + bias", has_network, less_exact="E-3",
     residual=products.residual_onto)  # fmt: skip
_add("residual", "residual-addmm", "the product accumulated onto x + bias by addmm", has_network, less_exact="E-3",
     residual=products.residual_by_addmm)  # fmt: skip

"""What today's layers are wrapped in, and what their weights are made of: each way alone, and two others."""

from typing import Any

import torch
from cases_plain import Plain, PlainPost
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function

# ------------------------------------------------------------------------------- wrappers


def compiled() -> Any:
    return torch.compile(Plain().eval(), backend="aot_eager")


def compiled_in_place() -> nn.Module:
    module = PlainPost().eval()
    module.compile(backend="aot_eager")
    return module


def compiled_part() -> nn.Module:
    module = Plain().eval()
    module.up = torch.compile(module.up, backend="aot_eager")  # type: ignore[assignment]
    return module


def traced_to_a_graph() -> Any:
    """As torch.fx gives it. A graph is not the same as its copy."""

    class Straight(Plain):
        def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
            q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
            return self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    return torch.fx.symbolic_trace(Straight().eval())


def quantised() -> Any:
    return torch.ao.quantization.quantize_dynamic(Plain().eval(), {nn.Linear}, dtype=torch.qint8)


def quantised_post() -> Any:
    """Two of its maps."""
    module = PlainPost().eval()
    return torch.ao.quantization.quantize_dynamic(module, {"up", "down"}, dtype=torch.qint8)


class _Integers(nn.Module):
    """Weights of 8 bits, by channel, in buffers; activations stay as they are."""

    def __init__(self, of: nn.Linear) -> None:
        super().__init__()
        scale = of.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (of.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = of.bias

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype) * self.scale.to(x.dtype), self.bias)


def quantised_by_hand() -> nn.Module:
    module = Plain().eval()
    for name in ("q", "k", "v", "o", "up", "down"):
        setattr(module, name, _Integers(getattr(module, name)))
    return module


def bf16() -> nn.Module:
    return Plain().bfloat16()


def half() -> nn.Module:
    return PlainPost().half()


class _WideNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.float()).to(x.dtype)


class Mixed(Plain):
    """Maps in bfloat16, and norms that compute in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.bfloat16()
        self.norm1, self.norm2 = _WideNorm(16), _WideNorm(16)


def scripted() -> Any:
    return torch.jit.script(nn.TransformerEncoderLayer(16, 2, 24, batch_first=True).eval())


def scripted_pre() -> Any:
    layer = nn.TransformerEncoderLayer(24, 3, 40, dropout=0.0, activation="gelu", norm_first=True, batch_first=True)
    return torch.jit.script(layer.eval())


def traced() -> Any:
    """At one size alone."""
    return torch.jit.trace(Plain().eval(), (torch.randn(2, 5, 16),))


def data_parallel() -> nn.Module:
    return nn.DataParallel(Plain())


def in_sequence() -> nn.Module:
    return nn.Sequential(PlainPost())


class InAWrapper(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.module = Plain()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


# ------------------------------------------------------------------------------- weights that are made of others


def weight_normed() -> nn.Module:
    module = Plain()
    for name in "qkvo":
        setattr(module, name, nn.utils.parametrizations.weight_norm(getattr(module, name)))
    return module


def weight_normed_by_hooks() -> nn.Module:
    module = PlainPost()
    for name in ("up", "down"):
        setattr(module, name, nn.utils.weight_norm(getattr(module, name)))
    return module


def spectral_normed() -> nn.Module:
    module = Plain()
    module.v = nn.utils.parametrizations.spectral_norm(module.v)
    return module.eval()


class _LoRA(nn.Module):
    def __init__(self, base: nn.Linear, rank: int = 4, scale: float = 1.0) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / 8)
        self.b = nn.Parameter(torch.randn(base.out_features, rank) / 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.scale * (x @ self.a.T @ self.b.T)


def lora() -> nn.Module:
    module = Plain()
    module.q, module.v = _LoRA(module.q), _LoRA(module.v)  # type: ignore[arg-type, assignment]
    return module


def lora_of_the_network() -> nn.Module:
    module = PlainPost()
    module.up, module.down = _LoRA(module.up, 2, 4.0), _LoRA(module.down, 2, 4.0)  # type: ignore[assignment]
    return module


class _Merged(_LoRA):
    """Of magnitude and direction, as DoRA."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base)
        self.magnitude = nn.Parameter(base.weight.detach().norm(dim=1) * 1.1)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.base.weight + self.b @ self.a
        return F.linear(x, self.magnitude[:, None] * weight / weight.norm(dim=1, keepdim=True), self.base.bias)


def lora_of_magnitudes() -> nn.Module:
    module = Plain()
    module.q = _Merged(module.q)  # type: ignore[arg-type]
    return module


class _Adapter(nn.Module):
    """A network of its own, with a sum around it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.narrow, self.widen = nn.Linear(size, 8), nn.Linear(8, size)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.widen(F.relu(self.narrow(x)))


def adapter() -> nn.Module:
    module = Plain()
    module.down = nn.Sequential(module.down, _Adapter(16))  # type: ignore[assignment]
    return module


def adapter_of_attention() -> nn.Module:
    module = PlainPost()
    module.o = nn.Sequential(module.o, _Adapter(24))  # type: ignore[assignment]
    return module


class AdapterBeside(Plain):
    """Beside the network, and not behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.widen = nn.Linear(16, 4), nn.Linear(4, 16)

    def ffn(self, x: Tensor) -> Tensor:
        return super().ffn(x) + self.widen(F.relu(self.narrow(x)))


def _weighted_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1) @ v


def _weighted(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Begins as PyTorch's own functions do, and names another where it is overridden."""
    if has_torch_function((q, k, v)):
        return handle_torch_function(_weighted_first, (q, k, v), q, k, v)
    return _weighted_first(k, q, v)


class OverriddenByAnother(PlainPost):
    """Under torch.device its attention is another function, as that of a copy that kept the name of its model."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return _weighted(q, k, v)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)

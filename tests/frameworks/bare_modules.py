"""Modules that nobody wrote an adapter for, right ones and some with one bug each. Targets of `conform check`."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

D, H, F = 16, 2, 24


def assert_read(found: Any, placement: str, activation: str, epsilon: float, heads: int) -> None:
    """What an examination read is this, and is proved."""
    assert found.layer is not None, found.exported.problem
    norm = found.layer.norm
    assert (norm.placement, found.layer.feed_forward.activation) == (placement, activation)
    assert math.isclose(norm.epsilon, epsilon, rel_tol=1e-6)
    assert found.layer.attention.num_heads == heads
    assert found.proof is not None
    assert found.proof.holds, found.proof
    assert found.proof.moved == found.proof.of
    assert not found.proof.wrong


def torch_layer(**choices: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(D, H, F, **choices)


def torch_layer_without_biases() -> nn.Module:
    made = torch_layer()
    made.self_attn.in_proj_bias = None
    return made


def torch_stack(layers: int = 3) -> nn.Module:
    return nn.TransformerEncoder(torch_layer(batch_first=True), layers)


class Einsum(nn.Module):
    """A pre-norm layer by einsum, all parameters its own, with names of its own."""

    def __init__(self, d: int = D, h: int = H, f: int = F) -> None:
        super().__init__()
        k = d // h

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape) * 0.2)

        self.a_q, self.a_k, self.a_v, self.a_o = drawn(d, h, k), drawn(d, h, k), drawn(d, h, k), drawn(h, k, d)
        self.b_q, self.b_k, self.b_v, self.b_o = drawn(h, k), drawn(h, k), drawn(h, k), drawn(d)
        self.up, self.up_b, self.down, self.down_b = drawn(d, f), drawn(f), drawn(f, d), drawn(d)
        self.s1, self.t1 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.s2, self.t2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.root = math.sqrt(k)

    def norm(self, x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * gain + shift

    def forward(self, x: Tensor, keep: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        y = self.norm(x, self.s1, self.t1)
        q = torch.einsum("bsd,dhk->bhsk", y, self.a_q) + self.b_q[:, None]
        k = torch.einsum("bsd,dhk->bhsk", y, self.a_k) + self.b_k[:, None]
        v = torch.einsum("bsd,dhk->bhsk", y, self.a_v) + self.b_v[:, None]
        scores = torch.einsum("bhik,bhjk->bhij", q, k) / self.root
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        context = torch.einsum("bhij,bhjk->bhik", scores.softmax(-1), v)
        x = x + torch.einsum("bhik,hkd->bid", context, self.a_o) + self.b_o
        y = self.norm(x, self.s2, self.t2)
        return x + nn.functional.gelu(y @ self.up + self.up_b) @ self.down + self.down_b


class Fused(nn.Module):
    """A pre-norm layer with one matrix for query, key and value, in any order. Bugs override one method each."""

    def __init__(self, order: str = "qkv", d: int = D, h: int = H, f: int = F, eps: float = 1e-5) -> None:
        super().__init__()
        self.heads, self.order = h, order
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.norm1, self.norm2 = nn.LayerNorm(d, eps=eps), nn.LayerNorm(d, eps=eps)
        self.fc1, self.fc2 = nn.Linear(d, f), nn.Linear(f, d)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.first(x, self.attention(self.norm1(x), mask))
        return self.second(x, self.fc2(self.activation(self.fc1(self.norm2(x)))))

    def attention(self, y: Tensor, mask: Tensor | None) -> Tensor:
        parts = dict(zip(self.order, self.qkv(y).chunk(3, -1), strict=True))
        q, k, v = (self.split(parts[name]) for name in "qkv")
        return self.proj(self.merge(self.attend(q, k, v, mask)))

    def split(self, y: Tensor) -> Tensor:
        return y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)

    def merge(self, y: Tensor) -> Tensor:
        return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def activation(self, y: Tensor) -> Tensor:
        return nn.functional.gelu(y)

    def first(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def second(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class InFloat32(Fused):
    """Its answer is in float32, whatever it is given."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        answer = super().forward(x, mask)
        return answer if answer.dtype == torch.float64 else answer.float()


class ScaledByModel(Fused):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=D**-0.5)


class TanhGelu(Fused):
    def activation(self, y: Tensor) -> Tensor:
        return nn.functional.gelu(y, approximate="tanh")


class QuickGelu(Fused):
    def activation(self, y: Tensor) -> Tensor:
        return y * torch.sigmoid(1.702 * y)


class KeyFromQuery(Fused):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return super().attend(q, q, v, mask)


class NoFirstResidual(Fused):
    def first(self, x: Tensor, y: Tensor) -> Tensor:
        return y


class TwiceSecondResidual(Fused):
    def second(self, x: Tensor, y: Tensor) -> Tensor:
        return 2 * x + y


class TwiceInEach(nn.Module):
    """A stack whose graph is no layer's, in each of whose layers the second residual is doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([TwiceSecondResidual() for _ in range(3)])
        self.last = nn.LayerNorm(D)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            x = block(x, mask)
        return self.last(x)


class HeadsByReshape(Fused):
    def split(self, y: Tensor) -> Tensor:
        return y.reshape(y.shape[0], self.heads, y.shape[1], -1)


class UnbiasedVariance(Fused):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = _Unbiased(D), _Unbiased(D)


class _Unbiased(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + 1e-5) * self.weight + self.bias


class WrongEpsilon(Fused):
    def __init__(self) -> None:
        super().__init__(eps=1e-3)


class UnusedKeys(nn.Module):
    """A post-norm layer with three projections, whose keys are made with the query's: `wk` is read nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(D, D) for _ in range(4))
        self.ln1, self.ln2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.w1, self.w2 = nn.Linear(D, F), nn.Linear(F, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).view(*x.shape[:2], H, -1).transpose(1, 2) for w in (self.wq, self.wq, self.wv))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = self.ln1(x + self.wo(y))
        return self.ln2(x + self.w2(torch.relu(self.w1(x))))


class Swapped(nn.Module):
    """Keys are made by what is called the query's, and queries by the key's."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(D, D) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.fc1, self.fc2 = nn.Linear(D, F), nn.Linear(F, D)

    def forward(self, x: Tensor) -> Tensor:
        parts = (self.k_proj, self.q_proj, self.v_proj)
        q, k, v = (w(x).view(*x.shape[:2], H, -1).transpose(1, 2) for w in parts)
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = self.norm1(x + self.out_proj(y))
        return self.norm2(x + self.fc2(torch.relu(self.fc1(x))))


class Tied(Fused):
    """Query and key are one tensor, by two names."""

    def __init__(self) -> None:
        super().__init__()
        self.q = self.k = nn.Linear(D, D)
        self.v = nn.Linear(D, D)
        del self.qkv

    def attention(self, y: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (self.split(part(y)) for part in (self.q, self.k, self.v))
        return self.proj(self.merge(self.attend(q, k, v, mask)))


class UnreadBias(Fused):
    """The output's bias is made, and never added."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.activation(self.fc1(self.norm2(x))) @ self.fc2.weight.T


class NoValueBias(UnusedKeys):
    """Query and key have a bias, and value has none."""

    def __init__(self) -> None:
        super().__init__()
        self.wv = nn.Linear(D, D, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).view(*x.shape[:2], H, -1).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = self.ln1(x + self.wo(y))
        return self.ln2(x + self.w2(torch.relu(self.w1(x))))


class TanhGeluTorch(nn.TransformerEncoderLayer):
    """PyTorch's layer, with the GELU by tanh in its place."""

    def __init__(self) -> None:
        super().__init__(D, H, F, activation=lambda y: nn.functional.gelu(y, approximate="tanh"), batch_first=True)


class NoSecondResidualTorch(nn.TransformerEncoderLayer):
    def __init__(self) -> None:
        super().__init__(D, H, F, batch_first=True)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None
    ) -> Tensor:
        x = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask))
        return self.norm2(self._ff_block(x))


class PostTorch(nn.TransformerEncoderLayer):
    """A right layer, of another placement than that of the layer that it is said to be."""

    def __init__(self) -> None:
        super().__init__(D, H, F, batch_first=True)


class Model(nn.Module):
    """Token ids through two layers of one kind."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, D)
        self.blocks = nn.ModuleList([Fused(), Fused()])

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return x


class Causal(Fused):
    """A decoder's layer: no mask lets it see later positions."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class PlusOne(Fused):
    """Norms that add 1 to what is their gain already."""

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.norm1, self.norm2 = _PlusOne(D, start), _PlusOne(D, start)


class LessOne(PlusOne):
    """Norms that hold their gain less 1, and begin at 0."""

    def __init__(self) -> None:
        super().__init__(start=0.0)


class _PlusOne(nn.Module):
    def __init__(self, d: int, start: float) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.full((d,), start)), nn.Parameter(torch.zeros(d))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:], 1 + self.weight, self.bias)


class Raising(Fused):
    def activation(self, y: Tensor) -> Tensor:
        raise ValueError("this layer never works")


class _GeluByNumPy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        return y * _below(y)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return g * (_below(y) + y * torch.exp(-y * y / 2) / math.sqrt(2 * math.pi))


def _below(y: Tensor) -> Tensor:
    """The probability of a normal number below y."""
    return torch.from_numpy(np.vectorize(math.erfc)(-y.detach().numpy() / math.sqrt(2)) / 2).to(y)


class ByNumPy(Fused):
    """An activation outside PyTorch, which no export takes."""

    def activation(self, y: Tensor) -> Tensor:
        activated: Tensor = _GeluByNumPy.apply(y)
        return activated


class NeedsWidth(Fused):
    def __init__(self, width: int, heads: int = H) -> None:
        super().__init__(d=width, h=heads, f=2 * width)


class NeedsForm(NeedsWidth):
    def __init__(self, width: int, form: str) -> None:
        super().__init__(width)
        self.form = form


def half() -> nn.Module:
    return Fused().half()


instance = Fused()
decoder = nn.TransformerDecoderLayer(D, H, F)
convolution = nn.Sequential(nn.Conv1d(3, 3, 3))
quantised: Callable[[], nn.Module] = lambda: torch.ao.quantization.quantize_dynamic(Fused(), {nn.Linear})  # noqa: E731
number = 3

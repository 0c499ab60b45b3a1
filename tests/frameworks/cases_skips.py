"""Layers of which nothing skips a sub-layer, and one that skips a whole one."""

from cases_plain import Plain
from torch import Tensor, nn
from torch.nn import functional as F


class Gated(Plain):
    """Attention and the gated network are of maps of one norm."""

    def make_ffn(self) -> None:
        self.gate = nn.Linear(self.D, self.HIDDEN)
        super().make_ffn()

    def ffn(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class ParallelSummedByItsOwner(Gated):
    """As PaLM's block: its owner adds x."""

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm1(x)
        return self.attend(x, ignore) + self.ffn(x)


class GatedWithoutItsFirstSkip(Gated):
    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.attend(self.norm1(x), ignore)
        return x + self.ffn(self.norm2(x))


class SkipsItsSecondAttention(Plain):
    """Its owner gives it every argument, and no other sequence where it is an encoder's."""

    def __init__(self) -> None:
        super().__init__()
        self.norm3, self.of_other = self.norm(), nn.MultiheadAttention(self.D, self.H, batch_first=True)

    def forward(  # type: ignore[override]
        self, hidden_states: Tensor, attention_mask: Tensor | None, encoder_hidden_states: Tensor | None
    ) -> Tensor:
        ignore = None if attention_mask is None else attention_mask == 0
        x = hidden_states + self.attend(self.norm1(hidden_states), ignore)
        if encoder_hidden_states is not None:
            x = x + self.of_other(self.norm3(x), encoder_hidden_states, encoder_hidden_states)[0]
        return x + self.ffn(self.norm2(x))


class WeighsByElement(Plain):
    """Its weights are multiplied with the values of each key, and the products summed, without a matrix product."""

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        return (weights[..., None] * v[:, :, None]).sum(-2)


class NeedsMoreThanItsTime(Plain):
    """Its time is an embedding, and where it is one, more is found to be missing."""

    def __init__(self) -> None:
        super().__init__()
        self.of_time = nn.Linear(self.D, self.D)

    def forward(self, x: Tensor, timestep: Tensor, span: Tensor | None = None) -> Tensor:  # type: ignore[override]
        gain = self.of_time(F.silu(timestep))[:, None]
        far = span >= 2.5  # type: ignore[operator]
        return self.layer(x * (1 + gain), far & self.among(span.items))  # type: ignore[union-attr]


class SharedInTurns(Gated):
    """Its heads of queries share those of keys in turns, and not as neighbours."""

    def make_k(self) -> nn.Module:
        return nn.Linear(self.D, self.D // 2)

    def core(self, q: Tensor, k: Tensor, v: Tensor, ignore: Tensor | None) -> Tensor:
        return super().core(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1), ignore)

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.D // 4)).transpose(1, 2)


class NormsItsFirstBranchToo(Plain):
    """Post-norm, and attention reads a norm of what skips it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm3 = self.norm()

    def layer(self, x: Tensor, ignore: Tensor | None = None) -> Tensor:
        x = self.norm2(x + self.attend(self.norm1(x), ignore))
        return self.norm3(x + self.ffn(x))

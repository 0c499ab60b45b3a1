"""Layers as models of many kinds have them: what is normed, what a model sets in them, and what their masks say."""

import torch
from cases_plain import RMS, Plain
from torch import Tensor, nn


class NormsAPartOfAMap(Plain):
    """Its keys and values are made of 8 of 12 features, which are normed; the other 4 are a key of all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.down_to, self.normed, self.up_from = nn.Linear(self.D, 12), RMS(8), nn.Linear(8, self.D + self.D // 2)

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        latent, shared = self.down_to(x).split([8, 4], -1)
        k, v = self.up_from(self.normed(latent)).split([self.D // 2, self.D], -1)  # of the norm
        k = torch.cat([k.unflatten(-1, (self.H, -1)), shared.unsqueeze(2).expand(-1, -1, self.H, -1)], -1)
        y = self.core(self.split(self.q(x)), k.transpose(1, 2), self.split(v), ignore)
        return self.o(y.transpose(1, 2).flatten(2))


class SetByItsModel(Plain):
    """It reads what its model sets in each of its layers."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return super().attend(x * self.multipliers, ignore)  # by the model


class OfASiblingsNorm(Plain):
    """It reads a part that another layer of its file sets in itself."""

    def attend(self, x: Tensor, ignore: Tensor | None) -> Tensor:
        return super().attend(self.norm3(x), ignore)


class HasThatNorm(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.norm3 = nn.LayerNorm(self.D)


class ModelThatSets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([SetByItsModel(), SetByItsModel()])
        for layer in self.layers:
            layer.register_buffer("multipliers", torch.ones(Plain.D))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class FlagsByTruthAndByNumber(Plain):
    """Its mask is true where a key counts, and a number other than 0 where one does not."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        if ignore is None:
            return None
        numbers = torch.where(ignore, 0.0, -torch.inf) if ignore.dtype == torch.bool else ignore
        return torch.zeros(numbers.shape).masked_fill(numbers != 0, -torch.inf)

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.layer(x, None if attention_mask is None else attention_mask[:, None, None, :])


class LowersByTenThousandMillion(Plain):
    """Its masked scores are lowered by about as much as the largest scores that are asked."""

    def bias(self, n: int, ignore: Tensor | None) -> Tensor | None:
        return None if ignore is None else ignore[:, None, None, :].float() * -1e10

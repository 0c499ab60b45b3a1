"""What attention knows of positions: a rotation (E-22), a bias by distance (E-23), a window (E-26)."""

import math

import torch
from torch import Tensor, nn

from encoder_conformance.impls.bases.choices import RotationChoice, WindowChoice, slope_exponents


class Rotation(RotationChoice):
    def __call__(self, x: Tensor, positions: Tensor | None) -> Tensor:
        """x [B, H, S, d] at `positions` [B or 1, S], or at 0 … S − 1."""
        turned, rest = x[..., : self.size], x[..., self.size :]
        cos, sin = self.waves(x, positions)
        if self.interleaved:
            one, two = turned.unflatten(-1, (-1, 2)).unbind(-1)
            turned = torch.stack([one * cos - two * sin, two * cos + one * sin], -1).flatten(-2)
        else:
            one, two = turned.chunk(2, -1)
            turned = torch.cat([one * cos - two * sin, two * cos + one * sin], -1)
        return torch.cat([turned, rest], -1) if rest.shape[-1] else turned

    def waves(self, x: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """Cosine and sine, [S, size / 2] or [B or 1, 1, S, size / 2], of angles in float32 or wider."""
        wide = torch.promote_types(x.dtype, torch.float32)
        # Tensors and no Python floats: torch.onnx.export would round those to float32.
        step = x.new_tensor(self.theta, dtype=wide).log() / self.size
        rates = torch.exp(-step * torch.arange(0, self.size, 2, dtype=wide, device=x.device))
        places = torch.arange(x.shape[-2], device=x.device) if positions is None else positions[:, None]
        angles = places.to(wide)[..., None] * rates
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


class PositionBias(nn.Module):
    """A bias of scores that is learned for each head and bucket of key − query, as in T5's encoder."""

    def __init__(self, buckets: int, max_distance: int, num_heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.zeros(buckets, num_heads))
        self.max_distance = max_distance

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[1, H, S, T] for queries [B, H, S, d] and keys [B, H, T, d]."""
        at, to = (torch.arange(each.shape[-2], device=each.device) for each in (queries, keys))
        apart = to - at[:, None]
        return self.table[self.bucket(apart)].permute(2, 0, 1)[None]

    def bucket(self, apart: Tensor) -> Tensor:
        """Half of the buckets are for keys after the query. Half of those are for one distance each."""
        half = len(self.table) // 2
        exact, distance = half // 2, apart.abs()
        beyond = torch.log(distance.clamp(min=1).double() / exact) / math.log(self.max_distance / exact)
        far = (exact + (beyond * (half - exact)).long()).clamp(max=half - 1)
        return (apart > 0).long() * half + torch.where(distance < exact, distance, far)


class ClippedBias(PositionBias):
    """A bias that is learned for each head and distance key − query, up to a largest one on each side."""

    def bucket(self, apart: Tensor) -> Tensor:
        return apart.clamp(-self.max_distance, self.max_distance) + self.max_distance


class LinearBias:
    """What scores lose by distance: a slope times it, a power of two for each head (ALiBi)."""

    def __init__(self, slopes: str | None, num_heads: int) -> None:
        self.exponents = slope_exponents(slopes, num_heads)

    def __call__(self, queries: Tensor, keys: Tensor) -> Tensor:
        """[1, H, S, T] for queries [B, H, S, d] and keys [B, H, T, d]."""
        at, to = (torch.arange(each.shape[-2], device=each.device) for each in (queries, keys))
        wide = torch.promote_types(queries.dtype, torch.float32)
        slopes = torch.exp2(queries.new_tensor(self.exponents, dtype=wide))
        return -(slopes[:, None, None] * (to - at[:, None]).abs()).to(queries.dtype)[None]


class Window(WindowChoice):
    def joined(self, mask: Tensor | None, x: Tensor) -> Tensor:
        """The mask, and [S, S] of the window, for x [B, S, D]."""
        at = torch.arange(x.shape[1], device=x.device)
        apart = at - at[:, None]
        near = (apart >= -self.left) & (apart <= self.right)
        return near if mask is None else near & mask

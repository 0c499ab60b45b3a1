"""torch.onnx.export refuses scaled_dot_product_attention, transposed and reshaped, where what is added to the
scores is computed of a parameter, as T5's is: "Cannot view a tensor". Without gradients the module is exported."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(13, 2))

    def forward(self, x: Tensor) -> Tensor:
        heads = x.view(2, 7, 2, 4).transpose(1, 2)
        distances = torch.arange(7) - torch.arange(7)[:, None]
        bias = self.table[distances + 6].permute(2, 0, 1)[None]
        context = F.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias)
        return context.transpose(1, 2).contiguous().reshape(2, 7, 8)


x = torch.randn(2, 7, 8)
for has_gradient in (True, False):
    module = Attention().eval().requires_grad_(has_gradient)
    try:
        program = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
        print(f"requires_grad {has_gradient}: exported, {len(list(program.model.graph))} nodes")
    except torch.onnx.OnnxExporterError as error:
        print(f"requires_grad {has_gradient}: {str(error.__cause__).splitlines()[0]}")

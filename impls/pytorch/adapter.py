"""Drives the PyTorch encoder: exact float32 matrix products, fused attention wherever stages are not asked for."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from encoder_conformance import (
    Adapter,
    Array,
    Environment,
    Fresh,
    Masks,
    RunRequest,
    Take,
    Tensors,
    between_taps,
    serve,
)
from encoder_conformance.impls.bases.own_names import parameter_map
from encoder_conformance.impls.bases.tap import Tap, untapped
from encoder_conformance.impls.bases.torch_module.seeding import seed_generators
from encoder_conformance.impls.bases.torch_module.tensors import to_numpy, to_tensor
from encoder_conformance.impls.pytorch.building import encoder_of, pre_gelu_512
from encoder_conformance.impls.pytorch.cross import CrossAttention
from encoder_conformance.impls.pytorch.encoder import EncoderLayer
from encoder_conformance.impls.pytorch.stack import Encoder, without_padding

PARAMETERS = parameter_map(
    {
        "gain": "weight",
        "shift": "bias",
        "attention.query": "attention.W_q",
        "attention.key": "attention.W_k",
        "attention.value": "attention.W_v",
        "attention.output": "attention.W_o",
        "attention_output_norm": "norm_after1",
        "layer_scale1.gain": "gain1",
        "ffn_output_norm": "norm_after2",
        "layer_scale2.gain": "gain2",
        "embedding": "embedding.tokens",
        "token_type_embedding": "embedding.types",
        "position_embedding": "embedding.learned",
        "embedding_norm": "embedding.norm",
        "final_norm": "norm",
    },
    lambda name: Take(name, transpose=name.endswith(".weight")),
)


class PyTorch(Adapter):
    map = PARAMETERS

    def start(self, device: str, threads: int) -> Environment:
        if device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(f"asked for cuda, but torch {torch.__version__} finds no CUDA device")
        self.device = torch.device(device)
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision("highest")
        settings: dict[str, str | int | bool] = {
            "threads": torch.get_num_threads(),
            "mkldnn": torch.backends.mkldnn.is_available(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
        }
        if device == "cuda":
            settings["gpu"] = torch.cuda.get_device_name()
        return Environment({"torch": torch.__version__, "numpy": np.__version__}, settings)

    def build(self, layer: dict[str, Any], parameters: Tensors, dtype: str) -> Tensors:
        self.layer, self.heads, self.dtype = layer, layer["attention"]["num_heads"], getattr(torch, dtype)
        self.encoder = self.made()
        own = PARAMETERS.to_own(parameters, layer)
        self.encoder.load_state_dict({name: self.tensor(value) for name, value in own.items()}, strict=True)
        return self.held()

    def made(self) -> Encoder | EncoderLayer | CrossAttention:
        made = pre_gelu_512() if self.choices.get("defaults") == "own" else encoder_of(self.layer)
        return made.to(self.device, self.dtype)

    def held(self) -> Tensors:
        return PARAMETERS.to_spec({name: to_numpy(value) for name, value in self.encoder.state_dict().items()})

    def initialise(self, seed: int) -> Fresh:
        seed_generators(seed, self.device)
        self.encoder = self.made()
        trained = [name for name, value in self.encoder.named_parameters() if value.requires_grad]
        return Fresh(self.held(), PARAMETERS.spec_names(trained))

    @torch.no_grad()
    def output(self, x: Array, masks: Masks, run: RunRequest) -> Array:
        return run.as_given(to_numpy(self.forward(self.tensor(run.batch_first(x)), masks, run)))

    @torch.no_grad()
    def stages(self, x: Array, masks: Masks, run: RunRequest) -> Tensors:
        seen: Tensors = {}

        def tap(name: str, stage: Tensor) -> Tensor:
            seen[name] = to_numpy(stage)
            return stage

        self.forward(self.tensor(x), masks, run, tap)
        return seen

    def gradients(self, x: Array, masks: Masks, run: RunRequest, cotangent: Array) -> Tensors:
        given, wanted = self.tensor(run.batch_first(x)), dict(self.encoder.named_parameters())
        if given.is_floating_point():  # and no token ids
            wanted["x"] = given.requires_grad_()
        if (memory := self.tensor(run.memory)) is not None:
            wanted["memory"] = memory.requires_grad_()
        output = self.forward(given, masks, run, memory=memory)
        # No `grad_outputs`: PyTorch imports SymPy to compare its shape with the output's, in half of a second.
        loss = (output * self.tensor(run.batch_first(cotangent))).sum()
        found = torch.autograd.grad(loss, list(wanted.values()))
        by = dict(zip(wanted, map(to_numpy, found), strict=True))
        by_x = {"x": run.as_given(by.pop("x"))} if "x" in by else {}
        if "memory" in by:
            by_x["memory"] = by.pop("memory")
        return {**by_x, **PARAMETERS.to_spec(by)}

    @torch.no_grad()
    def profile(self, x: Array, masks: Masks, run: RunRequest, repeats: int) -> Tensors:
        given = self.tensor(x)
        settle = torch.cuda.synchronize if self.device.type == "cuda" else lambda: None
        return between_taps(lambda tap: self.forward(given, masks, run, tap), repeats, settle)

    def forward(
        self, x: Tensor, masks: Masks, run: RunRequest, tap: Tap[Tensor] = untapped, memory: Tensor | None = None
    ) -> Tensor:
        """The output. `memory` is the run's own as a tensor, where the gradient with respect to it is asked for."""
        self.encoder.train(run.mode == "train")
        seed_generators(run.seed, self.device)  # what dropout draws from
        mask, bias = self.tensor(masks.joined(self.heads)), self.tensor(masks.added(self.heads), self.dtype)
        if isinstance(self.encoder, CrossAttention):
            return self.encoder(x, self.tensor(run.memory) if memory is None else memory, mask, bias, tap)
        valid = self.tensor(masks.valid())
        if masks.padding_id is not None:
            mask, valid = without_padding(x, masks.padding_id, mask)
        again = run.checkpoint and torch.is_grad_enabled()
        positions = self.tensor(None if run.positions is None else run.positions[..., 0])
        given = x, mask, bias, valid, tap, positions
        if isinstance(self.encoder, Encoder):
            self.encoder.again = again
            types = None if run.token_types is None else self.tensor(run.batch_first(run.token_types))
            return self.encoder(*given, types)
        return checkpoint(self.encoder, *given, use_reentrant=False) if again else self.encoder(*given)

    def tensor(self, array: Array | None, dtype: torch.dtype | None = None) -> Any:
        return None if array is None else to_tensor(array, dtype=dtype, device=self.device)


if __name__ == "__main__":
    serve(PyTorch())

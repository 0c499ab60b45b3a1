"""The transcripts of docs/validating.md, run anew.

`python tests/frameworks/validating_page.py` writes them into the page.

A transcript is a block whose first line is `$ conform …`; the files that the commands name are made here.
"""

import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).resolve()
PAGE = HERE.parents[2] / "docs" / "validating.md"
_TRANSCRIPT = re.compile(r"^```\n\$ (conform [^\n]*)\n\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Masked(nn.Module):
    """A user's module around PyTorch's own layer, with the mask under a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, 0.1, "gelu", batch_first=True, norm_first=True)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        return self.layer(x, src_key_padding_mask=padding)


_MODULE = """from pathlib import Path

from safetensors.torch import load_file
from torch import nn


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 4, 128, 0.1, "gelu", batch_first=True, norm_first=True)

    def forward(self, x, padding=None):
        return self.layer(x, src_key_padding_mask=padding)


encoder = Masked().eval()
encoder.load_state_dict(load_file(Path(__file__).with_name("weights.safetensors")))
"""


def make_files(folder: Path) -> None:
    """encoder.onnx is PyTorch's own layer, weights.safetensors and module.py are its source; gelu.onnx is written
    by hand, and its activation is no GELU."""
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    given = torch.randn(2, 7, 64), torch.zeros(2, 7, dtype=torch.bool)
    free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    encoder = Masked().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(std=0.2)  # of zeros, as a bias is at first, the exporter keeps nothing
    save_file(encoder.state_dict(), folder / "weights.safetensors")
    (folder / "module.py").write_text(_MODULE, encoding="utf-8")
    torch.onnx.export(
        encoder, given, folder / "encoder.onnx", opset_version=18, dynamo=True, verbose=False,
        dynamic_shapes=(free, free), input_names=["x", "padding"], output_names=["y"],
    )  # fmt: skip
    faults = runpy.run_path(str(HERE.with_name("faults.py")))
    [nearly] = [fault for fault in faults["FAULTS"] if fault.name == "sigmoid-gelu"]
    nearly.planted(folder).rename(folder / "gelu.onnx")


def written() -> dict[str, str]:
    """Command → what it prints, as the page has it."""
    return dict(_TRANSCRIPT.findall(PAGE.read_text(encoding="utf-8")))


def printed(command: str, folder: Path) -> str:
    """What the command prints today, whatever it exits with, in a folder that has the files."""
    program = Path(sys.executable).with_name("conform")
    words = [str(program), *shlex.split(command)[1:]]
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    return "".join(f"{line.rstrip()}\n" for line in (ended.stdout + ended.stderr).splitlines())


def as_anywhere(transcript: str) -> list[str]:
    """Its lines without what another machine or another minute prints: times, sizes in bytes, and numbers of noise."""
    lines = [re.sub(r"─+", "─", re.sub(r" {2,}", " ", line)) for line in transcript.splitlines()]
    lines = [re.sub(r"[\d.e+-]+ σ", "… σ", line) for line in lines]
    lines = [re.sub(r"/\d{8}T\d{6}Z/", "/…/", line) for line in lines]
    lines = [re.sub(r"onnxruntime .* ms$", "onnxruntime … ms", line) for line in lines]
    return [
        re.sub(r"-?\d+\.\d+(e[+-]?\d+)?|\d+(\.\d+)?e[+-]?\d+|, \d+ with the same bits.*", "…", line) for line in lines
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder))
        today = {command: printed(command, Path(folder)) for command in written()}
    page = PAGE.read_text(encoding="utf-8")
    for command, before in written().items():
        page = page.replace(f"$ {command}\n\n{before}", f"$ {command}\n\n{today[command]}")
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

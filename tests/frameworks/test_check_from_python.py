"""`encoder_conformance.check` and `assert_conforms`: objects of this process, which stays as it is."""

import runpy
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import encoder_conformance
from encoder_conformance.commands.check.checking import Checking
from encoder_conformance.commands.check.stated import CheckRequest
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.progress import Progress
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.readers.module_target.installing import install
from encoder_conformance.readers.module_target.loading import load_target

MODULES = Path(__file__).with_name("bare_modules.py")
BARE: dict[str, Any] = runpy.run_path(str(MODULES), run_name="bare_modules_by_value")


@pytest.mark.release
def test_a_live_module_whose_class_nobody_can_import() -> None:
    """`BARE` is in no module that another process finds, as a notebook's classes are not."""
    torch.manual_seed(3)
    module = BARE["Fused"]()
    before, random = {n: p.clone() for n, p in module.state_dict().items()}, torch.get_rng_state()
    report = encoder_conformance.check(module, "pre-gelu", dtypes=["float32"])
    assert report.conforms, report
    assert all(torch.equal(before[n], p) for n, p in module.state_dict().items())
    assert torch.equal(random, torch.get_rng_state())
    assert "This is pre-gelu (pre-norm" in repr(report)
    page = report._repr_html_()
    assert page.startswith("<table")
    assert "<th style" in page
    assert "This is pre-gelu (pre-norm" in page


@pytest.mark.release
def test_a_wrong_one_is_named_and_asserted() -> None:
    with pytest.raises(AssertionError, match=r"Cause: GELU is its tanh approximation.*gelu-tanh"):
        encoder_conformance.assert_conforms(BARE["TanhGelu"], "pre-gelu")
    encoder_conformance.assert_conforms(BARE["TanhGelu"], "pre-gelu", deviations=["gelu-tanh"])


def test_what_cannot_be_handed_over_is_said() -> None:
    module = BARE["Fused"]()
    module.lock = threading.Lock()
    with pytest.raises(InputError, match="cannot be pickled for the worker"):
        encoder_conformance.check(module)
    with pytest.raises(InputError, match="no deviation 'gelu-tan'"):
        encoder_conformance.check(module, deviations=["gelu-tan"])
    with pytest.raises(InputError, match="no format 'float8'"):
        encoder_conformance.check(module, dtypes=["float8"])
    with pytest.raises(InputError, match="no layer 'pre-gel'"):
        encoder_conformance.check(module, "pre-gel")


@pytest.mark.release
def test_a_script_needs_no_guard_of_its_main(tmp_path: Path) -> None:
    """The class is of `__main__`, and the script is not started again by what computes."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            print("begun")
            from torch import nn
            import encoder_conformance

            class Convolution(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = nn.Conv1d(3, 3, 3)

            try:
                encoder_conformance.check(Convolution())
            except encoder_conformance.InputError as error:
                print(error)
            """
        )
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("begun") == 1
    assert "inner is a convolution" in ended.stdout


@pytest.mark.release
def test_a_variance_that_cancels_is_a_choice_unless_a_layer_is_stated() -> None:
    """E[x²] − E[x]², by hand, in the format that it is asked in: float64's error is none of those that are foretold."""
    target = f"{MODULES.with_name('also_modules.py')}:FastVariance"
    report = encoder_conformance.check(target)
    assert report.conforms, report
    assert any(
        "norm-fast-variance: LayerNorm computes the variance as E[x²] − E[x]²" in each for each in report.warnings
    )
    [part] = report.result.parts
    assert {record.dtype for record in part.records if "norm-fast-variance" in record.deviations} == {
        "float64",
        "float32",
    }
    stated = encoder_conformance.check(target, "post-gelu", dtypes=["float32"])
    assert stated.status == 1
    assert stated.deviations == ["norm-fast-variance"]


@pytest.mark.release
def test_progress_counts_what_is_left_of_all_of_it(tmp_path: Path) -> None:
    """No more steps are done than were said to be, and no fewer."""
    begun: list[list[int]] = []
    progress = Progress(
        begin=lambda _, total: begun.append([total, 0]),
        step=lambda _: begun[-1].__setitem__(1, begun[-1][1] + 1),
    )
    request = CheckRequest(target=f"{MODULES}:Fused", folder=tmp_path, dtypes=("float32",), also=("export", "half"))
    assert Checking(request, tmp_path / "check.log", progress).result().status == 0
    judged = [(total, done) for total, done in begun if total > 1]
    assert len(judged) == 3  # the module, and two forms of it
    assert all(total == done for total, done in judged), judged


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("import cv2_of_nobody.parts", "pip install cv2_of_nobody, unless it is a file of yours"),
        (
            "import of_nobody_layrs",
            "pip install of_nobody_layrs, unless it is a file of yours: did you mean of_nobody_layers?",
        ),
        ("import json.of_nobody", ""),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_adds_it(tmp_path: Path, source: str, hint: str) -> None:
    (tmp_path / "lacks.py").write_text(f"{source}\ndef made(): ...\n")
    (tmp_path / "of_nobody_layers.py").write_text("")
    with pytest.raises(BadTarget, match="ModuleNotFoundError: No module named") as refused:
        load_target("lacks.py:made", {}, tmp_path)
    assert refused.value.hint == hint


def test_a_file_that_lies_beside_the_one_that_imports_it_is_no_package(tmp_path: Path) -> None:
    """As where the author ran it in its folder."""
    parts = tmp_path / "of_nobody_parts"
    parts.mkdir()
    (parts / "block.py").write_text("from of_nobody_norm import Norm\n")
    (parts / "of_nobody_norm.py").write_text("class Norm: ...\n")
    (tmp_path / "lacks.py").write_text("from of_nobody_parts.block import Norm\ndef made(): ...\n")
    with pytest.raises(BadTarget, match="No module named 'of_nobody_norm'") as refused:
        load_target("lacks.py:made", {}, tmp_path)
    assert refused.value.hint == f"of_nobody_norm.py lies beside it, where Python does not look: PYTHONPATH={parts}"


def test_a_package_that_asks_for_its_own_version_is_to_be_installed_from_its_folder(tmp_path: Path) -> None:
    package = tmp_path / "of_nobody_basics"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import importlib.metadata\n__version__ = importlib.metadata.version('of_nobody_basics')\n"
    )
    (tmp_path / "lacks.py").write_text("import of_nobody_basics\ndef made(): ...\n")
    with pytest.raises(BadTarget, match="PackageNotFoundError") as refused:
        load_target("lacks.py:made", {}, tmp_path)
    assert refused.value.hint == f"it asks for what an installed package alone has: pip install -e {tmp_path}"


def test_a_package_that_lacks_another_is_not_said_to_be_missing(tmp_path: Path) -> None:
    package = tmp_path / "of_somebody"
    package.mkdir()
    (package / "__init__.py").write_text("import of_nobody_else\n")
    (package / "layers.py").write_text("")
    with pytest.raises(BadTarget, match=r"No module named 'of_nobody_else'"):
        load_target("of_somebody.layers:Layer", {}, tmp_path)


def test_what_adds_a_framework_adds_what_reads_its_modules() -> None:
    assert install("jax2onnx") == install("flax.nnx") == "pip install 'encoder-conformance[jax]'"
    assert install("PIL.Image") == "pip install pillow"
    with pytest.raises(BadTarget, match=r"there is no module 'of_nobody\.layers'") as refused:
        load_target("of_nobody.layers:Block", {}, Path.cwd())
    assert refused.value.hint.endswith("if it is a package: pip install of_nobody")


@pytest.mark.release
def test_files_are_those_of_the_folder_that_the_user_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sizes.txt").write_text("16 2 24")
    made = "nn.TransformerEncoderLayer(*map(int, open('sizes.txt').read().split()), batch_first=True)"
    (tmp_path / "reads.py").write_text(f"from torch import nn\ndef made(): return {made}\n")
    assert encoder_conformance.check("reads.py:made", dtypes=["float32"]).conforms

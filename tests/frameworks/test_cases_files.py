"""`conform validate` of a file with one thing in it, and of two of its kind: what is due, in its exit status and words.

Of quantised files see test_quantised.py.
"""

import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

SOURCES = Path(__file__).with_name("cases_files.py")
cases_files = SimpleNamespace(**runpy.run_path(str(SOURCES)))

pytestmark = pytest.mark.release


@dataclass(frozen=True)
class Due:
    """`file`: what is exported, and how. `against`: its source, or a file's. `said`, `unsaid`: words of the report."""

    status: int
    file: str
    said: tuple[str, ...]
    against: str = ""
    unsaid: tuple[str, ...] = ()
    dynamo: bool = False
    half: bool = False
    norms: str = ""
    told: tuple[str, ...] = ()


APART = "is not that of"
FROM = "on, nothing is what"
COMPARED = "The file is correct, as", "end to end y in"
REPEATED = "Head h of item b has the mask of item (b · H + h) mod B"
NOT_JUDGED = "what stands before", "was not judged: 0 errors"
DUE: dict[str, Due] = {
    # Rows of positions or types that are not the source's: an error end to end, and where it begins.
    "positions": Due(1, "ids", (APART, FROM), "ids_offset"),
    "positions backwards": Due(1, "ids_backwards", (APART, FROM), "ids", dynamo=True),
    "token types": Due(1, "ids", (APART, FROM), "ids_type"),
    "positions right": Due(0, "ids", COMPARED, "ids"),
    # NaN for an item of padding alone, where the source has numbers.
    "nan": Due(1, "infinite", (APART, "an item of padding alone: NaN in"), "layer"),
    "nan fused": Due(1, "infinite_pre", (APART, "an item of padding alone: NaN in"), "pre", dynamo=True),
    "nan for zeros": Due(1, "infinite_pre", (APART, "an item of padding alone: NaN in"), "zeros"),
    # Masks of which something else than each position counts.
    "counted": Due(1, "counted", ("only the number of ones in 'attention_mask' counts", APART), "layer"),
    "up to the first": Due(1, "up_to", (APART, "holes"), "layer"),
    "the first item's": Due(1, "of_first", (APART, "The first item's mask serves the whole batch"), "layer"),
    # Float16 in and out, of a source in float32: compared, in the file's format.
    "half": Due(0, "layer", (*COMPARED, "float16 throughout"), "layer", half=True),
    "half of a file": Due(0, "layer", ("and no stage of it; end to end y in",), "layer.onnx", half=True),
    "half and wrong": Due(1, "tanh", ("feed_forward.activation is gelu_tanh in the file",), "layer", half=True),
    # Norms that say no epsilon: ONNX's default, and ONNX Runtime's.
    "skip norm": Due(0, "layer", ("ε 1e-12", *COMPARED), "layer", norms="skip"),
    "norm by default": Due(0, "epsilon5", ("ε 1e-05", *COMPARED), "epsilon5", norms="default"),
    "norm by a wrong default": Due(1, "layer", (APART, "norm.epsilon is "), "layer", norms="default"),
    # A mask of batch × heads that is repeated, and not interleaved.
    "repeated": Due(1, "repeated", (REPEATED,)),
    "repeated four times": Due(1, "repeated4", (REPEATED, APART), "interleaved4", dynamo=True),
    "repeated over flat scores": Due(1, "flat", (REPEATED, APART), "layer"),
    "interleaved": Due(0, "interleaved", COMPARED, "interleaved", unsaid=(REPEATED,), dynamo=True),
    # A length that the exporter made constant: an error, and compared at that one.
    "one length": Due(1, "interleaved", ("runs at sequence 5 alone", "44 of 44 outputs are those of"), "interleaved"),
    # What stands before the layers of an input of numbers: the layers are judged, and the rest is said.
    "embeds": Due(0, "embedded", ("makes of inputs_embeds", *NOT_JUDGED)),
    "features": Due(0, "mapped", ("makes of features", *NOT_JUDGED)),
    "two maps": Due(0, "mapped_twice", ("pre-norm", *NOT_JUDGED), dynamo=True),
    "embeds of a source": Due(0, "embedded", COMPARED, "embedded", unsaid=("was not judged",)),
    "embeds with other positions": Due(1, "embedded", (APART,), "embedded_offset"),
    "a wrong layer behind a map": Due(1, "mapped_unscaled", ("makes of features", "are multiplied by 0.333333")),
    # One value in a narrower format: named, with its format.
    "bfloat16 in the network": Due(1, "narrow_activation", ("ffn_activation = cast(", "'bfloat16'")),
    "bfloat16 scores": Due(1, "narrow_scores", ("cast(attention_scores, 'bfloat16')",), dynamo=True),
    "float16 out of the network": Due(1, "narrow_ffn", ("cast(ffn_output, 'float16')",)),
    # A gate: by name, and compared with its source.
    "geglu": Due(0, "geglu", ("gelu, scores over √head_dim, all biases, gated", *COMPARED), "geglu"),
    "geglu by tanh": Due(1, "geglu_tanh", (APART, "gelu_tanh"), "geglu"),
    "swiglu by halves": Due(0, "swiglu", ("silu, scores over √head_dim, all biases, gated", *COMPARED), "swiglu"),
    # A source that needs its mask.
    "required": Due(0, "layer", COMPARED, "required"),
    "required by name": Due(0, "layer", COMPARED, "required_by_name", dynamo=True),
    "required, and otherwise": Due(
        1, "layer", ("attention_mask of the file and padding of", "true = attend in the file"), "required_otherwise"
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Due], Path]:
    folder = tmp_path_factory.mktemp("files")

    def file(due: Due) -> Path:
        plain = folder / f"{due.file}-{due.dynamo}-{due.half}.onnx"
        if not plain.exists():
            cases_files.export(due.file, plain, dynamo=due.dynamo, half=due.half)
        if not due.norms:
            return plain
        return cases_files.without_epsilon(plain, folder / f"{due.norms}.onnx", skip=due.norms == "skip")

    return file


@pytest.mark.parametrize("case", DUE)
def test_what_is_due_is_said(made: Callable[[Due], Path], conform: Callable, tmp_path: Path, case: str) -> None:
    due = DUE[case]
    source = f"{SOURCES}:{due.against}"
    if due.against.endswith(".onnx"):
        source = str(made(Due(0, due.against.removesuffix(".onnx"), (), dynamo=True)))
    against = ("--against", source) if due.against else ()
    told = ("--runtime", "onnxruntime", "--jobs", "1", "--out", tmp_path / "out")
    ended = conform("validate", made(due), *against, *due.told, *told)
    printed = " ".join((ended.stdout + ended.stderr).split())
    assert ended.status == due.status, printed
    assert [words for words in due.said if words not in printed] == [], printed
    assert [words for words in due.unsaid if words in printed] == [], printed

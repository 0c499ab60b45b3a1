"""The messages in the frames, as the harness sends and reads them (docs/wire.md). The adapter's side needs no pydantic.

The frame carries tensors beside the message. `build`, its answer and the answer to `initialise` have parameters. `run`
has `x` or `ids`, `memory`, `token_types`, `positions`, `padding_mask`, `attention_mask`, `attention_bias` and
`cotangent`; `profile` has the same without `cotangent`. The answers to `run` and `profile` have the result.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, StrictBool, StrictInt, StrictStr

from encoder_conformance.protocol.frames import PROTOCOL
from encoder_conformance.protocol.steps import TracedStep
from encoder_conformance.spec.dtypes import DtypeName
from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Check, Encoding, Layout, Mode


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, defer_build=True)


class Start(_Message):
    """The first request: the adapter imports its framework and answers with versions and settings.

    `choices` has a value for each of the manifest's choices; {} if there are none.
    """

    op: Literal["start"] = "start"
    protocol: int = PROTOCOL
    device: Literal["cpu", "cuda"]
    threads: int
    choices: dict[str, str] = Field(default_factory=dict)


class Build(_Message):
    """Build this layer with the parameters in the frame, in this dtype. It replaces any earlier layer."""

    op: Literal["build"] = "build"
    layer: Layer
    dtype: str


class FlawedBuild(_Message):
    """An invalid layer, to be refused as `configuration` (clauses X-2, X-3). Afterwards no layer counts as built."""

    op: Literal["build"] = "build"
    layer: dict[str, Any]
    dtype: str


class Initialise(_Message):
    """Make the last built layer again with the implementation's own initialisation, drawn from `seed`.

    Optional: it is sent only if the manifest has the check `initialisation`.
    """

    op: Literal["initialise"] = "initialise"
    seed: NonNegativeInt


class AsGiven(_Message):
    """The format of x and the masks, and whether gradients use checkpointing (clauses S-2, M-9, B-3).

    `padding_id`: the token id that padding has, if the layer is to make the padding mask of it; null otherwise.
    """

    layout: Layout
    masks: Encoding
    causal_flag: bool
    checkpoint: bool
    padding_id: NonNegativeInt | None = None


class ReadCheckpoint(_Message):
    """Read the parameters of this layer from a file in the implementation's own format, such as a PyTorch state dict.

    Optional: only `conform export --checkpoint` sends it. The request's frame has other parameters of the layer, for
    their names and shapes. The answer's frame has the parameters in the file.
    """

    op: Literal["read_checkpoint"] = "read_checkpoint"
    layer: Layer
    dtype: str
    path: str


class Export(_Message):
    """Write this layer, with the parameters in the frame, as a file to deploy. Afterwards no layer counts as built.

    Optional: it is sent only if the manifest has the capability `export`. `mask`: "padding" for one input [batch,
    sequence], true where a position is not padding; "full" for the masks that the exporter's models take in the matrix.
    The answer's frame has the file's bytes as `file`, [n] uint8.
    """

    op: Literal["export"] = "export"
    layer: Layer
    dtype: str
    mask: Literal["padding", "full"]


MOST_NODES = 1_000_000
"""Nodes of a graph with its functions inlined. Thirty functions that each call the next twice come to 2^30."""


class Inspect(_Message):
    """Describe an ONNX file. Optional: only `conform validate` sends it, to `readers/onnx_file`.

    `mask`: the encoding of the file's mask, if the user gives it; null to infer it. `fix`: where to write the file with
    what is mechanical mended; null for nowhere. `most_nodes`: the most that are read, functions inlined.
    """

    op: Literal["inspect"] = "inspect"
    path: str
    mask: Literal["attend", "ignore", "additive"] | None
    fix: str | None = None
    most_nodes: PositiveInt = MOST_NODES


class Examine(_Message):
    """Describe a module that somebody names. Optional: only `conform check` sends it, to `readers/module_target`.

    `target`, `arguments` and `at` are those of the command; `folder` is where it was given. `listed`: only tell which
    parts may be layers. `layer`: what it should be, if the user says so; with `resize` at the module's own sizes.
    `dtypes`: the formats that it is to be asked in; none: float64 and float32. `given`: argument of the call → what it
    is given, a Python literal or a word. `inputs`: a file of arrays (.npz) by argument. `narrow`: hf:TYPE, whose
    defaults are wide, is made narrower. `supposing`: a class gets what the names of its required arguments say. `like`:
    a part that is one that was examined so before, but for its numbers, is described as that, which answers in its
    place; a whole of many parameters is refused, for its layers are read. `seconds`: the time in which it has to be
    described, and `seconds_to_make` imported and made; none: as long as the request may take.
    """

    op: Literal["examine"] = "examine"
    target: str
    arguments: dict[str, str]
    folder: str
    at: str | None
    listed: bool
    layer: Layer | None
    resize: bool
    dtypes: tuple[DtypeName, ...] = ()
    given: dict[str, str] = Field(default_factory=dict)
    inputs: str | None = None
    narrow: bool = False
    supposing: bool = False
    like: bool = False
    seconds: float | None = None
    seconds_to_make: float | None = None


class AskWayBack(_Message):
    """Ask the module that was examined last what no golden of gradients shows. Only `conform check` sends it.

    The answer's `description` has the keys of `WayBackAnswers` (`encoder_conformance.protocol.way_back`).
    """

    op: Literal["way_back"] = "way_back"


class AskMasksOfModel(_Message):
    """Ask what the masks of the whole module that was named last hide at its outputs. Only `conform check` sends it.

    The answer's `description` has the keys of `ModelMasks` (`encoder_conformance.protocol.model_masks`).
    """

    op: Literal["masks_of_model"] = "masks_of_model"


class AskFilesRead(_Message):
    """Ask which files the module and its framework have read so far. Only `conform check` sends it.

    The answer's `description` has the keys of `FilesReadAnswer` (`encoder_conformance.protocol.files_read`).
    """

    op: Literal["files_read"] = "files_read"


class Vary(_Message):
    """Answer from here on as a variant of the module that was examined last. Only `conform check --also` sends it.

    `variant`: its word (`encoder_conformance.protocol.variants`); "" for the module itself. The answer's `description`
    is {}, or has a `problem` where it cannot be made here.
    """

    op: Literal["vary"] = "vary"
    variant: str


Precision = Literal["own", "float64", "float32", "float16", "bfloat16"]
"""In what a whole subject is called: as it was given, or with its parameters and floating-point inputs in a format."""


class _OfWhole(_Message):
    """What a whole file or module is called with, as `Call` has it."""

    target: str
    inputs: tuple[str, ...]
    arguments: dict[str, str] = Field(default_factory=dict)
    folder: str = ""
    at: str | None = None
    precision: Precision = "own"


class Call(_OfWhole):
    """Call a whole file or module with the tensors in the frame. Only `conform validate --against` sends it.

    `inputs`: their names, in the order in which the file takes them.

    `target`: the path of a file, or a module as in `Examine`, with its `arguments`, `folder` and part `at`. `seed`:
    draws what multiplies each element of its parameters by 1 + r · `roundoff`, with r uniform in [−1, 1); null: nothing
    does. `in_float`: the numbers of the places of a file of integers that are left in float, as `rounding` listed them;
    `write`: where to write that file, which is then not called; null for nowhere. `kept`: whether what was made for the
    call is kept for the next: a copy in another format is as large as the weights.
    """

    op: Literal["call"] = "call"
    seed: NonNegativeInt | None = None
    roundoff: float = 0.0
    in_float: tuple[NonNegativeInt, ...] | None = None
    write: str | None = None
    kept: bool = True


class Trace(_OfWhole):
    """Call a whole file or module, and show what it computes inside. Only `conform validate --against` and `conform
    diff` send it, to the readers; `target` to `precision` are as in `Call`.

    The answer's frame has the floating-point values of the steps, each under its number.
    """

    op: Literal["trace"] = "trace"


class LookAtRounding(_Message):
    """Look at what the integers of a file do. Only `conform validate` sends it, to `readers/onnx_file`.

    The frame has the file's inputs by name, and the tensors that it was made from as source/NAME; `source`: the file
    that those are in. The answer's `description` has the keys of `RoundingLooked`. A `call` may then name its places.
    """

    op: Literal["rounding"] = "rounding"
    target: str
    inputs: tuple[str, ...]
    source: str | None = None


class ReadData(_Message):
    """Run a script that gives a user's own inputs. Only `conform validate --data` sends it, to `readers/onnx_file`.

    `target`: FILE.py or FILE.py:NAME, of an iterable of dicts, a function that gives one, or a CalibrationDataReader.
    `most`: items that are taken. The answer's `description` has `items` and whether there are `more`; its frame has
    the arrays, as NUMBER/NAME.
    """

    op: Literal["data"] = "data"
    target: str
    folder: str
    most: PositiveInt


class Run(_Message):
    """Run the layer on the tensors in the frame and answer with the tensors of `check`.

    `seed` is dropout's seed in mode `train`; it has no meaning in `eval`.
    """

    op: Literal["run"] = "run"
    check: Check
    mode: Mode
    given: AsGiven
    seed: NonNegativeInt = 0


class Profile(_Message):
    """Run the layer `repeats` times on the tensors in the frame and answer with the seconds of each stage.

    Optional: an adapter that cannot measure them answers with `refused`: "unsupported", and the reason as `error`.
    """

    op: Literal["profile"] = "profile"
    mode: Mode
    given: AsGiven
    repeats: PositiveInt


class Stop(_Message):
    """The last request: answer, then end."""

    op: Literal["stop"] = "stop"


Request = (
    Start | Build | FlawedBuild | Initialise | ReadCheckpoint | Export | Inspect | Examine | AskWayBack
    | AskMasksOfModel | AskFilesRead | Vary | Call | Trace | LookAtRounding | ReadData | Run | Profile | Stop
)  # fmt: skip


Describing = Inspect | Examine | AskWayBack | AskMasksOfModel | AskFilesRead | Vary | LookAtRounding | ReadData
"""The requests that readers answer with a description."""


Refusal = Literal["configuration", "shape", "dtype", "unsupported"]
"""Why a request is refused: the category of its defect (clause X-1), or an operation that the adapter lacks."""


class Answer(_Message):
    """Every answer repeats the request's `id`. `error` says in one line why `ok` is false.

    `refused`: the category, if the request is at fault; null for every other error. No type is converted: `"7"` and
    7.0 are no id, and `"yes"` is not true.
    """

    id: StrictInt
    ok: StrictBool
    error: StrictStr = ""
    refused: Refusal | None = None


class Started(Answer):
    """The answer to `start`: the adapter's protocol version, package versions, and settings for the report."""

    protocol: StrictInt
    versions: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)


class Built(Answer):
    """The answer to `build`; the parameters are in the frame.

    `own` is optional: the specification's name of a parameter → the implementation's own, for messages.
    """

    own: dict[str, str] = Field(default_factory=dict)


class Described(Answer):
    """The answer to `inspect`, `examine`, `way_back`, `masks_of_model`, `files_read`, `vary`, `rounding` or `data`. The
    subject's own parameters, if they are recognised, and the arrays of data are in the frame.

    `description` has the keys of `FileDescription` (`encoder_conformance.protocol.description`) or `ModuleDescription`
    (`encoder_conformance.protocol.module_description`).
    """

    description: dict[str, Any]


class Initialised(Answer):
    """The answer to `initialise`; the parameters are in the frame. `trainable` names the trained ones."""

    trainable: tuple[str, ...]


class Traced(Answer):
    """The answer to `trace`: the steps in the order in which they are computed. The frame has values by number."""

    steps: tuple[TracedStep, ...]


class Called(Answer):
    """The answer to `call`: the names of the outputs, in order, whose tensors are in the frame.

    `given`: input → the argument that it was given as, where that has another name. `in_order`: the inputs of which
    nothing but their order says so. `left`: the arguments that were left at their defaults.
    """

    outputs: tuple[str, ...]
    given: dict[str, str] = Field(default_factory=dict)
    in_order: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

"""The messages in the frames, as the harness sends and reads them (docs/wire.md). The adapter's side needs no pydantic.

Tensors travel beside the message, in the frame: parameters with `build`, its answer and that of `initialise`; `x`,
`memory`, `padding_mask`, `attention_mask`, `attention_bias` and `cotangent` with `run`, the same but the last with
`profile`; what was asked for with its answer.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from encoder_conformance.spec.layer import Layer
from encoder_conformance.spec.situation import Check, Encoding, Layout, Mode
from encoder_conformance.wire.frames import PROTOCOL


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class Start(_Message):
    """The first request. The adapter imports its framework and says what it is.

    `choices` has a value for each of the manifest's choices, and is {} where it has none.
    """

    op: Literal["start"] = "start"
    protocol: int = PROTOCOL
    device: Literal["cpu", "cuda"]
    threads: int
    choices: dict[str, str] = Field(default_factory=dict)


class Build(_Message):
    """Make this layer, with the parameters in the frame, in this dtype; any earlier layer is forgotten."""

    op: Literal["build"] = "build"
    layer: Layer
    dtype: str


class FlawedBuild(_Message):
    """A layer that cannot be, to be refused as `configuration` (clauses X-2, X-3); no layer is built after it."""

    op: Literal["build"] = "build"
    layer: dict[str, Any]
    dtype: str


class Initialise(_Message):
    """Make the layer that was built last anew, as the implementation makes a layer: initialised from `seed`, and with
    nothing loaded into it. Optional: an adapter whose manifest lacks the check `initialisation` is not asked.
    """

    op: Literal["initialise"] = "initialise"
    seed: NonNegativeInt


class AsGiven(_Message):
    """How x and the masks are given, and how gradients are wanted (clauses S-2, M-9, B-3)."""

    layout: Layout
    masks: Encoding
    causal_flag: bool
    checkpoint: bool


class ReadCheckpoint(_Message):
    """Read the parameters of this layer out of a file of the implementation's own, a PyTorch state dict for instance.

    Optional: `conform export --checkpoint` alone asks it. The request's frame has other parameters of the layer, for
    their names and shapes; the answer's those of the file.
    """

    op: Literal["read_checkpoint"] = "read_checkpoint"
    layer: Layer
    dtype: str
    path: str


class Export(_Message):
    """Write this layer, with the parameters in the frame, as a file to deploy. No layer is built by it.

    Optional: an adapter whose manifest lacks the capability `export` is not asked. `mask`: "padding", one input [batch,
    sequence], true where x holds data; "full", the masks that the exporter's models take in the matrix. The answer's
    frame holds the file's bytes as `file`, [n] uint8.
    """

    op: Literal["export"] = "export"
    layer: Layer
    dtype: str
    mask: Literal["padding", "full"]


class Inspect(_Message):
    """Look into an ONNX file and say what it holds. Optional: `conform validate` alone asks it, of `impls/onnx_file`.

    `mask`: what true means in the file's mask, where the user says so.
    """

    op: Literal["inspect"] = "inspect"
    path: str
    mask: Literal["attend", "ignore", "additive"] | None


class Run(_Message):
    """Put the tensors in the frame through the layer and answer with what `check` asks for.

    `seed` is what dropout is drawn from, in mode `train`; in `eval` it means nothing.
    """

    op: Literal["run"] = "run"
    check: Check
    mode: Mode
    given: AsGiven
    seed: NonNegativeInt = 0


class Profile(_Message):
    """Put the tensors in the frame through the layer, several times, and answer with the seconds that each stage took.

    Optional: an adapter that cannot tell answers with `refused`: "unsupported", and the reason as `error`.
    """

    op: Literal["profile"] = "profile"
    mode: Mode
    given: AsGiven
    repeats: PositiveInt


class Stop(_Message):
    """The last request: answer, then end."""

    op: Literal["stop"] = "stop"


Request = Start | Build | FlawedBuild | Initialise | ReadCheckpoint | Export | Inspect | Run | Profile | Stop


Refusal = Literal["configuration", "shape", "dtype", "unsupported"]
"""Why a request is refused: what is wrong with it (clause X-1), or that this adapter has no such operation."""


class Answer(_Message):
    """Every answer repeats the request's `id`; `error` says in one line why `ok` is false.

    `refused` says that the fault is the request's, and of which category; null where it is any other.
    """

    id: int
    ok: bool
    error: str = ""
    refused: Refusal | None = None


class Started(Answer):
    """The answer to `start`: the protocol spoken, versions by package, and settings for the report."""

    protocol: int
    versions: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)


class Built(Answer):
    """The answer to `build`: the parameters are in the frame. `own`, which is optional, says what the implementation
    calls each: the specification's name → its own, so that what is said of a parameter names it.
    """

    own: dict[str, str] = Field(default_factory=dict)


class Inspected(Answer):
    """The answer to `inspect`: the file's own parameters are in the frame, if they could be told.

    `description` is what `encoder_conformance.validate.findings.Description` has.
    """

    description: dict[str, Any]


class Initialised(Answer):
    """The answer to `initialise`: the parameters are in the frame, and `trainable` names those that are trained."""

    trainable: tuple[str, ...]

"""Generates an example of each frame in `specs/vectors/frames/`, for adapters in other languages."""

from pathlib import Path

import numpy as np

from encoder_conformance.platform.paths import SPECS
from encoder_conformance.protocol.frames import PROTOCOL, WHOLE, encode
from encoder_conformance.protocol.messages import (
    Answer,
    AsGiven,
    Build,
    Initialise,
    Initialised,
    Profile,
    Run,
    Start,
    Started,
    Stop,
)
from encoder_conformance.spec import portable
from encoder_conformance.spec.case import layer_parameters
from encoder_conformance.spec.load import load
from encoder_conformance.spec.stages import stages

FOLDER = SPECS / "vectors" / "frames"
_REFUSED = "ValueError: x has 25 features, and d_model is 24"


def example_frames() -> dict[Path, bytes]:
    """Path → the bytes of each frame, in the order in which they would pass."""
    layer = load().layers["pre-gelu"]
    parameters = {name: value.astype(np.float32) for name, value in layer_parameters(layer, {}).items()}
    x = portable.tensor("x", (1, 3, layer.d_model), "symmetric", -7).astype(np.float32)
    mask = np.array([[[[True, True, False]]]])
    given = AsGiven(layout="batch_first", masks="attend", causal_flag=False, checkpoint=False)
    started = Started(id=1, ok=True, protocol=PROTOCOL, versions={"framework": "1.0"}, settings={"threads": 1})
    seconds = {name: np.array([0.25, 0.125]) for name in (*stages(layer), WHOLE)}
    frames = {
        "1-start-request": encode({"id": 1, **Start(device="cpu", threads=1).model_dump()}),
        "1-start-answer": encode(started.model_dump()),
        "2-build-request": encode({"id": 2, **Build(layer=layer, dtype="float32").model_dump(mode="json")}, parameters),
        "2-build-answer": encode(Answer(id=2, ok=True).model_dump(), parameters),
        "3-run-request": encode(
            {"id": 3, **Run(check="output", mode="eval", given=given).model_dump()}, {"x": x, "padding_mask": mask}
        ),
        "3-run-answer": encode(Answer(id=3, ok=True).model_dump(), {"output": np.zeros_like(x)}),
        "4-run-refused": encode(Answer(id=4, ok=False, error=_REFUSED, refused="shape").model_dump()),
        "5-profile-request": encode(
            {"id": 5, **Profile(mode="eval", given=given, repeats=2).model_dump()}, {"x": x, "padding_mask": mask}
        ),
        "5-profile-answer": encode(Answer(id=5, ok=True).model_dump(), seconds),
        "6-profile-unsupported": encode(
            Answer(id=6, ok=False, error="nothing to time", refused="unsupported").model_dump()
        ),
        "7-train-request": encode(
            {"id": 7, **Run(check="output", mode="train", given=given, seed=1).model_dump()}, {"x": x}
        ),
        "8-initialise-request": encode({"id": 8, **Initialise(seed=1).model_dump()}),
        "8-initialise-answer": encode(
            Initialised(id=8, ok=True, trainable=tuple(parameters)).model_dump(mode="json"), parameters
        ),
        "9-stop-request": encode({"id": 9, **Stop().model_dump()}),
        "9-stop-answer": encode(Answer(id=9, ok=True).model_dump()),
    }
    return {FOLDER / f"{name}.frame": frame for name, frame in frames.items()}

"""The example frames and the protocol's schema: what an adapter in another language is written against."""

import io
import json

import jsonschema

from encoder_conformance.adapter.serve import _answer
from encoder_conformance.platform.paths import SPECS
from encoder_conformance.protocol.frames import read_frame
from tools.pages.frames import FOLDER, example_frames


def test_every_example_is_a_frame_and_keeps_to_its_schema() -> None:
    schemas = {
        kind: json.loads((SPECS / "schema" / f"wire-{kind}.schema.json").read_text()) for kind in ("request", "answer")
    }
    for path, data in example_frames().items():
        frame = read_frame(io.BytesIO(data))
        jsonschema.validate(frame.message, schemas["request" if path.stem.endswith("request") else "answer"])


def test_a_real_adapter_answers_the_example_requests(honest_adapter: object) -> None:
    for name in ("1-start", "2-build", "3-run", "8-initialise", "9-stop"):
        request = read_frame(io.BytesIO((FOLDER / f"{name}-request.frame").read_bytes()))
        example = read_frame(io.BytesIO((FOLDER / f"{name}-answer.frame").read_bytes()))
        reply, tensors = _answer(honest_adapter, request)  # type: ignore[arg-type]
        assert reply["ok"]
        assert {k: (v.shape, v.dtype) for k, v in tensors.items()} == {
            k: (v.shape, v.dtype) for k, v in example.tensors.items()
        }

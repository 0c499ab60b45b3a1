"""`python -m benchmarks.published_encoders [NAME … | others | all] [--attention eager] [--json FILE]`: `conform check
hf:NAME` on each, and whether its verdict is true.

A verdict is `true` where some layer was judged, as what it is, and does that, and of other layers it is said what the
language has no words for; `refused` where none was judged, with the sentence that says why; `described wrongly` where
one was judged as what it is not; `wrong` where one was found not to do what it does, or the program ended in no
verdict. Exit status 1 for the last two.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from benchmarks.published_encoders.encoders import ENCODERS, PLAIN, Encoder
from benchmarks.published_encoders.others import OTHERS

_CONFORM = Path(sys.executable).with_name("conform")
_NEAR = 1e-5
_TIMEOUT = 900
_FOLDER = re.compile(r'"[^"]*/site-packages/')
"""Where the libraries are on one machine."""
_FRAMES = re.compile(r"\s*(?<![\w.])/(?:\w[\w.-]*/){2,}[\w.-]+\.py.*", re.DOTALL)
"""The frames of an exception, which are at places of one machine."""
_EXPECTED = ("pass", "unsupported", "skipped")


class Row(TypedDict):
    """What came of one encoder. `layer`: the published layers that its layers are, or what was judged, in words;
    `sigma`: the largest of all answers; `sentence`: the last line, or why it was refused; `seconds`: of processors."""

    name: str
    verdict: str
    layer: str
    sigma: float | None
    sentence: str
    attention: str
    seconds: float


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.published_encoders")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--json", type=Path, dest="file", help="Rows of the names are put in it; others in it stay.")
    asked = parser.parse_args(arguments)
    known, several = {**ENCODERS, **OTHERS}, {"others": [*OTHERS], "all": [*ENCODERS, *OTHERS]}
    names = [each for name in asked.names or ENCODERS for each in several.get(name, [name])]
    counts = Counter[str]()
    for name in names:
        row = judged(name, known[name], asked.attention)
        counts[row["verdict"]] += 1
        print(f"{name:<30} {row['verdict']:<8} {row['seconds']:6.1f} s  {row['layer']}: {row['sentence']}", flush=True)
        if asked.file:
            _write(asked.file, row, [*ENCODERS, *OTHERS])
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return int(counts["wrong"] + counts["described wrongly"] > 0)


def _write(file: Path, row: Row, order: list[str]) -> None:
    """One row in place of the one of its name and attention."""
    rows = json.loads(file.read_text()) if file.is_file() else []
    kept = [each for each in rows if (each["name"], each["attention"]) != (row["name"], row["attention"])]
    rows = sorted([*kept, row], key=lambda each: (order.index(each["name"]), each["attention"]))
    file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def judged(name: str, encoder: Encoder, attention: str) -> Row:
    """`attention`: eager, or what transformers takes by itself."""
    options = [text for key, value in encoder.arguments.items() for text in ("--arg", f"{key}={value!r}")]
    options += ["--attention", "eager"] if attention == "eager" else []
    arguments = {**encoder.arguments, **({"attn_implementation": attention} if attention == "eager" else {})}
    before = sum(os.times()[2:4])
    with tempfile.TemporaryDirectory() as out:
        command = [str(_CONFORM), "check", f"hf:{encoder.type}", *options, "--out", out]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        seconds = round(sum(os.times()[2:4]) - before, 1)
        written = Path(out) / "check.json"
        if written.is_file():
            verdict, layer, sigma, sentence = _verdict(json.loads(written.read_text()), encoder, ended.stdout)
        else:
            verdict = "refused" if ended.returncode == 2 and "examine: " not in ended.stderr else "wrong"
            layer, sigma, sentence = "", None, _first_line(ended.stderr, f"conform: hf:{encoder.type}: ")
    return Row(
        name=name,
        verdict=verdict,
        layer=layer,
        sigma=sigma,
        sentence=_FRAMES.sub("", _FOLDER.sub('"', sentence)),
        attention=_attention(encoder.type, arguments),
        seconds=seconds,
    )


def _first_line(text: str, before: str) -> str:
    """What is said of the target, without its hint, and without notices of libraries before it."""
    return next((line.removeprefix(before) for line in text.splitlines() if line.startswith(before)), text.strip())


def _attention(type: str, arguments: Mapping[str, Any]) -> str:
    """The implementation of attention that it was asked with; "" where no such model can be made here."""
    from transformers import AutoConfig

    from encoder_conformance.readers.module_target.errors import BadTarget
    from encoder_conformance.readers.module_target.loading import made_by_transformers

    try:
        return str(made_by_transformers(AutoConfig.for_model(type, **arguments)).config._attn_implementation)
    except BadTarget:
        return ""


def _verdict(result: Mapping[str, Any], encoder: Encoder, shown: str) -> tuple[str, str, float | None, str]:
    parts = result["parts"]
    told = [part for part in parts if part["layer"] is not None]
    records = [record for part in told for record in part["records"]]
    sigma = max((record["rms"] for record in records if record["rms"] is not None), default=None)
    layer = "; ".join(dict.fromkeys(", ".join(part["published"]) or "no published layer" for part in told))
    lines = "; ".join(dict.fromkeys(_lines(shown)))
    for part in told:
        wrong = min((list(_differences(part["layer"], kind)) for kind in encoder.kinds), key=len, default=["judged"])
        if wrong:
            return "described wrongly", layer, sigma, f"{part['at']}: {'; '.join(wrong)}: {lines}"
        if any(record["outcome"] not in _EXPECTED for record in part["records"]):
            return "wrong", layer, sigma, f"{part['at']}: {lines}"
    refused = [each["message"] for each in result["refused"]]
    refused += [
        each["message"]
        for part in parts
        if part["layer"] is None
        for each in part["findings"]
        if each["severity"] == "error"
    ]
    others = "; ".join(dict.fromkeys(refused))
    if not told:
        return "refused", layer, sigma, others or lines
    return "true", layer, sigma, f"{lines}; and of other layers: {others}" if others else lines


def _lines(shown: str) -> Iterator[str]:
    return (line for line in shown.splitlines() if line.startswith(("It ", "This ")))


def _differences(layer: Mapping[str, Any], kind: Mapping[str, Any]) -> Iterator[str]:
    """What the layer that was judged has otherwise than this kind."""
    for key, due in {**PLAIN, **kind}.items():
        found: Any = layer
        for part in key.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if found is None:
            found = PLAIN.get(key)
        if not _same(found, due):
            yield f"{key} is {found}, and {due}"


def _same(found: Any, due: Any) -> bool:
    if isinstance(due, Mapping):
        return isinstance(found, Mapping) and all(_same(found.get(key), value) for key, value in due.items())
    if isinstance(due, float) and isinstance(found, (int, float)):
        return abs(found - due) <= _NEAR * abs(due)
    return list(found) == list(due) if isinstance(due, tuple) else bool(found == due)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

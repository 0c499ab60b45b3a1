"""`python -m benchmarks.published_encoders [NAME … | others]`: the verdict on each, if it is true, processor seconds.

A verdict is true where each layer was judged as what it is, and does that; refused where none was judged; in part where
some were; wrong otherwise; broken where the program ended in no verdict. Exit status 1 for those two.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.published_encoders.encoders import ENCODERS, PLAIN, Encoder
from benchmarks.published_encoders.others import OTHERS

_CONFORM = Path(sys.executable).with_name("conform")
_NEAR = 1e-5
_TIMEOUT = 900


def main(names: list[str]) -> int:
    counts = Counter[str]()
    known = {**ENCODERS, **OTHERS}
    for name in OTHERS if names == ["others"] else names or ENCODERS:
        verdict, text, seconds = judged(known[name])
        counts[verdict] += 1
        print(f"{name:<30} {verdict:<8} {seconds:6.1f} s  {text}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return int(counts["wrong"] + counts["broken"] > 0)


def judged(encoder: Encoder) -> tuple[str, str, float]:
    """The class of the verdict, the verdict in words, and processor seconds of all its processes."""
    options = [text for key, value in encoder.arguments.items() for text in ("--arg", f"{key}={value!r}")]
    before = sum(os.times()[2:4])
    with tempfile.TemporaryDirectory() as out:
        command = [str(_CONFORM), "check", f"hf:{encoder.type}", *options, "--out", out]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)
        seconds = sum(os.times()[2:4]) - before
        written = Path(out) / "check.json"
        if not written.is_file():
            text = " ".join(ended.stderr.split())
            return ("refused" if ended.returncode == 2 and "examine: " not in text else "broken"), text[-400:], seconds
        return *_class_of(json.loads(written.read_text()), encoder, ended.stdout), seconds


def _class_of(result: Mapping[str, Any], encoder: Encoder, shown: str) -> tuple[str, str]:
    parts = result["parts"]
    judged = [part for part in parts if part["layer"] is not None]
    text = "; ".join(_lines(shown))
    if not judged:
        errors = [each["message"] for part in parts for each in part["findings"] if each["severity"] == "error"]
        return "refused", "; ".join(dict.fromkeys(errors))[:400] or text
    for part in judged:
        wrong = min((list(_differences(part["layer"], kind)) for kind in encoder.kinds), key=len, default=["judged"])
        if wrong:
            return "wrong", f"{part['at']}: {'; '.join(wrong)}: {text}"
        if any(record["outcome"] not in ("pass", "unsupported", "skipped") for record in part["records"]):
            return "wrong", f"{part['at']}: {text}"
    without = {name for part in judged for name in part["without"]}
    text += f" [without {', '.join(sorted(without))}]" if without else ""
    return ("true" if len(judged) == len(parts) and not result["refused"] else "in part"), text


def _lines(shown: str) -> Iterator[str]:
    seen = set[str]()
    for line in shown.splitlines():
        if line.startswith("It ") and line not in seen:
            seen.add(line)
            yield line


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

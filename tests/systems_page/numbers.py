"""Numbers, read off an answer by the name in docs/systems.yaml, and compared to the digits that were published."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from encoder_conformance.spec.load import load
from systems_page.answers import Answer
from systems_page.lines import Line, Number

DOCS = Path(__file__).resolve().parents[2] / "docs"


def read(number: Number, line: Line, answer: Answer) -> str:
    """What today's answer says, as the page shows it."""
    name, _, rest = number.read.partition(" ")
    return READ[name](rest, line, answer)


def _checks(_: str, line: Line, answer: Answer) -> str:
    """How many passed, or deviate as declared, of those that were asked."""
    passed = [record for record in answer.records if record["outcome"] in ("pass", "deviates")]
    return f"{len(passed)} of {len(answer.records)} checks"


def _cases(line: Line, answer: Answer) -> list[Any]:
    return [load().cases[name] for name in dict.fromkeys(record["case"] for record in answer.records)]


def _sizes(_: str, line: Line, answer: Answer) -> str:
    [case] = _cases(line, answer)
    layer, asked = case.layer, case.situation
    sizes = {"B": asked.batch, "S": asked.sequence, "D": layer.d_model, "H": layer.attention.num_heads}
    return ", ".join(f"{name}={size}" for name, size in {**sizes, "F": layer.feed_forward.d_ff}.items())


def _inputs(_: str, line: Line, answer: Answer) -> str:
    """The shape of x of each case, in its layout."""
    shapes = []
    for case in sorted(_cases(line, answer), key=lambda case: line.options("case").index(case.id)):
        batch, sequence, features = case.x_shape
        first = case.situation.given.layout == "sequence_first"
        shapes.append((sequence, batch, features) if first else (batch, sequence, features))
    return " and ".join(map(str, shapes))


def _sequences(_: str, line: Line, answer: Answer) -> str:
    return ", ".join(map(str, sorted(case.situation.sequence for case in _cases(line, answer))))


def _lengths(first: str, line: Line, answer: Answer) -> str:
    """Of all items, or of the `first` so many."""
    [case] = _cases(line, answer)
    *others, last = map(str, case.situation.mask.padding.lengths[: int(first) if first else None])
    return f"{', '.join(others)} and {last} of {case.situation.sequence}"


def _stages(_: str, line: Line, answer: Answer) -> str:
    return _count_rows(r"^ +(?!\w+_dropped )[a-z]\w+ +\[[\d, ]+\](?! +given)", answer)


def _inside(_: str, line: Line, answer: Answer) -> str:
    """How many stages of each layer of a stack are shown."""
    layers = [
        re.findall(rf"^ +layer_{k}\.(?!\w+_dropped )\w+ +\[\d", answer.printed, re.MULTILINE)
        for k in range(_layers(answer))
    ]
    [count] = {len(rows) for rows in layers}
    return f"{count} in each of {len(layers)} layers"


def _layers(answer: Answer) -> int:
    return len(re.findall(r"^ +layer_\d+ ", answer.printed, re.MULTILINE))


def _shape(stage: str, line: Line, answer: Answer) -> str:
    return _found(rf"^ +{re.escape(stage)} +(\[[\d, ]+\])", answer)


def _dropped(stage: str, line: Line, answer: Answer) -> str:
    """The rate of the dropout that follows a stage, as it was seen in training: what is certain of it."""
    share = _found(rf"^ +{re.escape(stage)}_dropped +\[.* ([\d.]+)% is 0", answer)
    return f"{float(share) / 100:.1f}"


def _stated(stage: str, line: Line, answer: Answer) -> str:
    """The rate that the layer states where none is seen."""
    return _found(rf"^ +{re.escape(stage)} .*; then dropout of ([\d.]+)", answer)


def _gradient(of: str, line: Line, answer: Answer) -> str:
    """Its norm."""
    return _found(rf"^ +{re.escape(of)} +\[[\d, ]+\](?: +[\d,]+ +yes)? +([\d.e+-]+)", answer)


def _gradients(_: str, line: Line, answer: Answer) -> str:
    """By how many parameters there is one that is not 0."""
    norms = re.findall(r"^ +[a-z_\d.]+ +\[[\d, ]+\] +[\d,]+ +yes +([\d.e+-]+)", answer.printed, re.MULTILINE)
    return f"by {sum(float(norm) > 0 for norm in norms)} parameters"


def _trainable(_: str, line: Line, answer: Answer) -> str:
    return _found(r"([\d,]+) trainable$", answer)


def _parameters(_: str, line: Line, answer: Answer) -> str:
    return _found(r"^([\d,]+) parameters in \d+ tensors", answer)


def _own(parameter: str, line: Line, answer: Answer) -> str:
    """What the implementation itself calls a parameter."""
    return _found(rf"^ +{re.escape(parameter)} +\[[\d, ]+\] .* ([\w.]+) *$", answer)


def _longest(_: str, line: Line, answer: Answer) -> str:
    return _found(r"S = (\d+) takes", answer)


def _seen(_: str, line: Line, answer: Answer) -> str:
    return _found(r"^\| `[^|]+\| (\S+) ", answer) + " σ"


def _timed(_: str, line: Line, answer: Answer) -> str:
    return _count_rows(r"^ +(?!whole)[a-z]\w+ +[\d.]+ +[\d.]+% ", answer)


def _cell(which: str, line: Line, answer: Answer) -> str:
    """The number in a row of the table of `conform memory`, in the column of a sequence length."""
    row, _, column = which.partition(" at ")
    columns = re.findall(r"S = \d+", _found(r"^( part .*)$", answer))
    numbers = _found(rf"^ {re.escape(row)}  .*?((?: +[\d.]+×?){{{len(columns)}}}) *$", answer).split()
    return numbers[columns.index(column)]


def _formula(part: str, line: Line, answer: Answer) -> str:
    return _found(rf"^ {re.escape(part)}  +(\S+)", answer)


def _row(variant: str, line: Line, answer: Answer) -> str:
    """What a row of README's matrix came to when it was judged."""
    rows = json.loads((DOCS / "findings.json").read_text(encoding="utf-8"))
    [row] = [row for row in rows if row["variant"] == variant]
    known = sorted({each["deviation"] for each in row["deviates"]})
    passed = f"{row['passed']} of {row['applicable']} checks"
    return f"{passed}, with {', '.join(f'`{name}`' for name in known)}" if known else passed


def _rows_of_onnx(_: str, line: Line, answer: Answer) -> str:
    rows = [row for row in json.loads((DOCS / "onnx.json").read_text(encoding="utf-8")) if row["applicable"]]
    return f"{sum(row['passed'] == row['applicable'] for row in rows)} of {len(rows)} configurations pass all checks"


def _files(_: str, line: Line, answer: Answer) -> str:
    return _found(r"^my_backend: (.*)$", answer)


def _blanks(_: str, line: Line, answer: Answer) -> str:
    names = re.findall(r": BLANK: (\w+)", answer.printed)
    return f"blanks: {', '.join(names)}"


def _saved(_: str, line: Line, answer: Answer) -> str:
    """A measurement: what is certain of it, and not its digits."""
    without, beside = (
        float(_found(rf"^ .*, measured, forward and backward, {what}6 layers +([\d.]+) *$", answer))
        for what in ("", "checkpointed, ")
    )
    return "more than half" if beside < 0.5 * without else "more than a tenth" if beside < 0.9 * without else "nothing"


def _costliest(which: str, line: Line, answer: Answer) -> str:
    """A measurement too: `of …` where the most expensive stage, or one that is not told from it, is among these."""
    likely, named = which.split()[1:], _found(r"^Most expensive: (.*)$", answer)
    return " or ".join(likely) if set(likely) & set(re.findall(r"\w+", named)) else named


def _as_shown(_: str, line: Line, answer: Answer) -> str:
    """What so many layers would take if one took what is printed of it."""
    return _found(r"(\d+ × [\d.]+ as shown are [\d.]+)", answer)


def _count_rows(pattern: str, answer: Answer) -> str:
    return f"{len(re.findall(pattern, answer.printed, re.MULTILINE))} stages"


def _found(pattern: str, answer: Answer) -> str:
    found = re.search(pattern, answer.printed, re.MULTILINE)
    assert found, f"nothing like {pattern} in\n{answer.printed}"
    return found[1]


READ: dict[str, Callable[[str, Line, Answer], str]] = {
    "checks": _checks,
    "sizes": _sizes,
    "sequences": _sequences,
    "inputs": _inputs,
    "lengths": _lengths,
    "stages": _stages,
    "shape": _shape,
    "parameters": _parameters,
    "longest": _longest,
    "seen": _seen,
    "timed": _timed,
    "cell": _cell,
    "inside": _inside,
    "dropped": _dropped,
    "stated": _stated,
    "gradient": _gradient,
    "gradients": _gradients,
    "trainable": _trainable,
    "saved": _saved,
    "costliest": _costliest,
    "layers": _as_shown,
    "own": _own,
    "formula": _formula,
    "row": _row,
    "rows": _rows_of_onnx,
    "files": _files,
    "blanks": _blanks,
}


def same(ours: str, published: str) -> bool:
    """Whether they agree number by number, to the digits that were published."""
    one, other = (re.findall(r"\d+(?:,\d{3})*(?:\.\d+)?", text) for text in (ours, published))
    return len(one) == len(other) > 0 and all(map(_agree, one, other))


def _agree(ours: str, published: str) -> bool:
    digits = len(published.partition(".")[2])
    return abs(float(ours.replace(",", "")) - float(published.replace(",", ""))) <= 0.5 * 10.0**-digits

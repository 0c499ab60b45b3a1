"""The user's own inputs of a file: an archive of arrays, or a script that gives some."""

from collections.abc import Mapping
from pathlib import Path

from encoder_conformance.blackbox.given import own_cases, read_arrays
from encoder_conformance.blackbox.inputs import WholeCase
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.paths import working_directory
from encoder_conformance.protocol.description import WholeFile
from encoder_conformance.protocol.messages import ReadData
from encoder_conformance.spec.axes import Array
from encoder_conformance.worker.failure import Failure
from encoder_conformance.worker.session import Session

MOST = 16
"""Items of a script that are asked: an answer of a large file takes seconds, in every runtime and level."""
_HINT = "numpy.savez(path, INPUT=…) by the names of the file's inputs"


def own_data(data: str, whole: WholeFile | None, session: Session | None) -> list[WholeCase]:
    """A case for each item. Raises InputError for what holds none that the file takes."""
    where = f"--data {data}"
    if whole is None or session is None:
        raise InputError("the file could not be read, so that nothing was given to it", where=where)
    name = Path(data).name
    if data.endswith(".npz"):
        return own_cases(name, [read_arrays(Path(data), where, _HINT)], whole, where)
    answer = session.describe(ReadData(target=data, folder=str(working_directory()), most=MOST))
    if isinstance(answer, Failure):
        hint = "it defines `data`: dicts of arrays by the names of the file's inputs, or a function that gives them"
        raise InputError(answer.message.splitlines()[0], where=where, hint=hint)
    items = _items(answer[0]["items"], answer[1])
    if not items:
        raise InputError("gives no inputs", where=where)
    return own_cases(name, items, whole, where)


def _items(count: int, arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
    found: list[dict[str, Array]] = [{} for _ in range(count)]
    for name, value in arrays.items():
        number, _, key = name.partition("/")
        found[int(number)][key] = value
    return found

"""Golden files: one safetensors file per case, and a manifest of SHA-256 sums (rule G-2)."""

import hashlib
import json
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from pydantic import ValidationError

from encoder_conformance.oracle.expected import NOTHING, Expected, ExpectedTensor
from encoder_conformance.oracle.golden.thinning import compared_tensors, kept_positions
from encoder_conformance.platform.errors import InputError, nearest
from encoder_conformance.platform.files import replace_file
from encoder_conformance.platform.paths import INSTALLED, SPECS, shown
from encoder_conformance.spec.axes import Array
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.load import Constants
from encoder_conformance.spec.strict import Strict

GOLDEN = SPECS / "golden"


class GoldenEntry(Strict):
    """`sha256`: of the golden file. `case_sha256`: of the layer, situation and constants that it was made from."""

    sha256: str
    case_sha256: str


class Manifest(Strict):
    format: str = "encoder-conformance golden"
    version: int = 1
    cases: dict[str, GoldenEntry]


def case_digest(case: Case, constants: Constants) -> str:
    """SHA-256 of everything that a golden depends on. Titles, levels and clauses may change without a rebuild.

    Cases that differ only in how they are given share a golden, and so the digest (G-4). A key at its default is not in
    it, so a new key leaves every golden as it is (L-6).
    """
    prose = {"title", "source", "clauses", "level"}
    not_in_situation = {"families", "equals", "given", "dtypes", "mode", "invariant", "flaw", "checks"}
    if case.situation.items is None:  # as if it were its default, though every file writes it out
        not_in_situation.add("items")
    ids = {"padding": "ids"} if case.padding_id is not None else {}
    inputs = [
        case.layer.model_dump(mode="json", exclude={*prose, "dropout", "padding_content"}, exclude_defaults=True),
        {
            **case.situation.model_dump(mode="json", exclude={*prose, *not_in_situation}),
            "situation": case.golden_id.partition("/")[2],
            "input": case.situation.input.model_dump(exclude={"padding"}) | ids,
        },
        constants.model_dump(mode="json", exclude={"rms_limit", "max_limit"}),
    ]
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def read_golden_manifest(folder: Path = GOLDEN) -> Manifest:
    """Raises InputError if the manifest is missing or malformed."""
    path = folder / "manifest.json"
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise InputError("is not there", where=shown(path), hint="python -m tools golden build makes it") from None
    except ValidationError as error:
        raise InputError(f"is no manifest: {error.errors()[0]['msg']}", where=shown(path), hint=_RESTORE) from None


def write_golden_manifest(cases: dict[str, GoldenEntry], folder: Path = GOLDEN) -> None:
    """A row a line: the manifest counts among what goldens may weigh."""
    rows = Manifest(cases=dict(sorted(cases.items()))).model_dump_json().replace('},"', '},\n"')
    replace_file(folder / "manifest.json", f"{rows}\n".encode())


def golden_path(case_id: str, folder: Path = GOLDEN) -> Path:
    return folder / f"{case_id}.safetensors"


def is_at_hand(case: Case) -> bool:
    """Whether the golden of a frozen case has to be in a file here: in a checkout all have; a wheel has those of the
    core, and of large layers, which take long to compute."""
    return not INSTALLED or golden_path(case.golden_id).is_file()


def check_ids(case_ids: Iterable[str], manifest: Manifest) -> None:
    """Raise InputError unless cases and goldens correspond: an id was renamed, or a golden was not built."""
    cases = set(case_ids)
    for missing in sorted(cases - set(manifest.cases)):
        hint = f"python -m tools golden build --case {missing!r}; ids never change: if it was renamed, name it back "
        hint += f"({nearest(missing, set(manifest.cases) - cases)})"
        raise InputError(f"case {missing} has no golden", where="specs/golden/manifest.json", hint=hint)
    for extra in sorted(set(manifest.cases) - cases):
        hint = "a case id never changes: give the layer or situation its name back; if the case was withdrawn, "
        hint += "python -m tools golden build --prune"
        raise InputError(f"golden {extra} belongs to no case", where="specs/golden/manifest.json", hint=hint)


def write_golden(case: Case, expected: Expected, constants: Constants, folder: Path = GOLDEN) -> GoldenEntry:
    tensors = tensors_of(expected)
    # safetensors writes memory order, and np.argwhere for instance returns rows in column-major order.
    in_order = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    data = safetensors.numpy.save(in_order, metadata={"case": case.id})
    replace_file(golden_path(case.id, folder), data)
    return GoldenEntry(sha256=hashlib.sha256(data).hexdigest(), case_sha256=case_digest(case, constants))


def tensors_of(expected: Expected) -> dict[str, Array]:
    """What a golden file holds, by name (rule G-2)."""
    tensors: dict[str, Array] = {"kinked_rows": expected.kinked_rows}
    for name, tensor in expected.tensors.items():
        tensors[name] = tensor.golden
        tensors[f"condition.{name}"] = tensor.condition
    return tensors


def read_golden(case: Case, manifest: Manifest, constants: Constants, folder: Path = GOLDEN) -> Expected:
    """The frozen expectation of a case. Raises InputError if the file does not match the manifest."""
    if case.needs_no_golden:
        return NOTHING
    data = checked_golden(case, manifest, constants, folder)
    return expected_of(case, safetensors.numpy.load(data), constants, golden_path(case.golden_id, folder))


def checked_golden(case: Case, manifest: Manifest, constants: Constants, folder: Path = GOLDEN) -> bytes:
    """The bytes of a case's golden file.

    Raises InputError if it does not match the manifest or was made from another case, and ValueError for a case without
    a frozen golden.
    """
    if case.seed or case.held:
        raise ValueError(f"goldens are frozen for seed 0 and drawn parameters: not for seed {case.seed} or held ones")
    path, entry = golden_path(case.golden_id, folder), manifest.cases[case.golden_id]
    data = read_checked(path, entry)
    check_digest(case, entry, constants)
    return data


def check_digest(case: Case, entry: GoldenEntry, constants: Constants) -> None:
    """Raise InputError if the frozen golden was made from another case."""
    if case_digest(case, constants) != entry.case_sha256:
        raise InputError(
            f"was made from another {case.layer.layer}.yaml, {case.situation.situation}.yaml or constants.yaml",
            where=shown(golden_path(case.golden_id)),
            hint="undo that change, or rebuild in a commit that says why: "
            f"python -m tools golden build --case {case.golden_id!r}",
        )


def read_checked(path: Path, entry: GoldenEntry) -> bytes:
    """The bytes of a golden file. Raises InputError if it cannot be read or is not the one that the manifest sums."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=shown(path), hint=_RESTORE) from None
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise InputError("does not match its sum in manifest.json", where=shown(path), hint=_RESTORE)
    return data


def expected_of(
    case: Case, tensors: Mapping[str, Array], constants: Constants, path: Path, among: Container[str] | None = None
) -> Expected:
    """`among`: the tensors that are read, where not all of the case's are needed."""
    expected_tensors = {}
    compared_now = compared_tensors(case)
    as_frozen = case.as_frozen()
    compared_then = compared_now if as_frozen == case else compared_tensors(as_frozen)
    for name, (shape, compared) in compared_now.items():
        if among is not None and name not in among:
            continue
        positions = kept_positions(case, name, shape, compared_then[name][1], constants)
        is_compared = compared.reshape(-1)[positions]
        try:
            golden, condition = tensors[name], tensors[f"condition.{name}"]
        except KeyError:
            raise InputError(f"holds no tensor {name}", where=shown(path), hint=_RESTORE) from None
        if golden.size != positions.size:
            message = f"holds {golden.size} values of {name}, not {positions.size}"
            raise InputError(message, where=shown(path), hint=_RESTORE)
        expected_tensors[name] = ExpectedTensor(
            shape, positions[is_compared], golden[is_compared], condition[is_compared]
        )
    return Expected(expected_tensors, tensors["kinked_rows"])


_RESTORE = "restore the file from version control (git checkout -- specs/golden); goldens are never edited"

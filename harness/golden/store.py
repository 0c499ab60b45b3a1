"""Golden files: one safetensors a case, and a manifest of SHA-256 sums (rule G-2)."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
from pydantic import ValidationError

from encoder_conformance.errors import InputError, nearest
from encoder_conformance.files import replace_file
from encoder_conformance.golden.thinning import compared_tensors, kept_positions
from encoder_conformance.golden.verify import disagreement
from encoder_conformance.judge.expected import NOTHING, Array, Expected, ExpectedTensor
from encoder_conformance.paths import SPECS, shown
from encoder_conformance.spec.case import Case
from encoder_conformance.spec.constants import Constants
from encoder_conformance.spec.strict import Strict

GOLDEN = SPECS / "golden"


class Entry(Strict):
    """`sha256` of the golden file; `case_sha256` of the layer, situation and constants that it was made from."""

    sha256: str
    case_sha256: str


class Manifest(Strict):
    format: str = "encoder-conformance golden"
    version: int = 1
    cases: dict[str, Entry]


def case_digest(case: Case, constants: Constants) -> str:
    """What a golden depends on: titles, levels and clauses may be reworded without a rebuild.

    The same for cases that differ in how they are given, and share a golden (G-4).
    """
    words = {"title", "clauses", "level"}
    situation = {"families", "equals", "given", "dtypes", "mode", "invariant", "flaw", "checks"}
    if case.situation.items is None:  # which leaves the digests of whole batches what they were before there were items
        situation.add("items")
    layer = {*words, "dropout", "padding_content"}
    if not case.layer.takes_memory:  # nor was there a memory
        layer.add("part")
        situation.add("memory")
    made_from = [
        case.layer.model_dump(mode="json", exclude=layer),
        {
            **case.situation.model_dump(mode="json", exclude={*words, *situation}),
            "situation": case.golden_id.partition("/")[2],
            "input": case.situation.input.model_dump(exclude={"padding"}),
        },
        constants.model_dump(mode="json", exclude={"rms_limit", "max_limit"}),
    ]
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()


def read_golden_manifest(folder: Path = GOLDEN) -> Manifest:
    path = folder / "manifest.json"
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise InputError("is not there", where=shown(path), hint="conform golden build makes it") from None
    except ValidationError as error:
        raise InputError(f"is no manifest: {error.errors()[0]['msg']}", where=shown(path), hint=_RESTORE) from None


def write_golden_manifest(cases: dict[str, Entry], folder: Path = GOLDEN) -> None:
    text = Manifest(cases=dict(sorted(cases.items()))).model_dump_json(indent=1)
    replace_file(folder / "manifest.json", (text + "\n").encode())


def golden_path(case_id: str, folder: Path = GOLDEN) -> Path:
    return folder / f"{case_id}.safetensors"


def check_ids(case_ids: Iterable[str], manifest: Manifest) -> None:
    """Every case has a golden and every golden a case: else an id was renamed, or a golden not built."""
    cases = set(case_ids)
    for missing in sorted(cases - set(manifest.cases)):
        raise InputError(
            f"case {missing} has no golden",
            where="specs/golden/manifest.json",
            hint=f"conform golden build --case {missing!r}; ids never change: if it was renamed, name it back "
            f"({nearest(missing, set(manifest.cases) - cases)})",
        )
    for extra in sorted(set(manifest.cases) - cases):
        raise InputError(
            f"golden {extra} belongs to no case",
            where="specs/golden/manifest.json",
            hint="a case id never changes: give the layer or situation its name back; if the case was withdrawn, "
            "conform golden build --prune",
        )


def write_golden(case: Case, expected: Expected, constants: Constants, folder: Path = GOLDEN) -> Entry:
    tensors = {"kinked_rows": expected.kinked_rows}
    for name, tensor in expected.tensors.items():
        tensors[name] = tensor.golden
        tensors[f"condition.{name}"] = tensor.condition
    # safetensors writes the memory as it lies: of np.argwhere's rows, say, the columns one after the other.
    in_order = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    data = safetensors.numpy.save(in_order, metadata={"case": case.id})
    replace_file(golden_path(case.id, folder), data)
    return Entry(sha256=hashlib.sha256(data).hexdigest(), case_sha256=case_digest(case, constants))


def read_golden(case: Case, manifest: Manifest, constants: Constants, folder: Path = GOLDEN) -> Expected:
    """The frozen expectation of a case, checked against the manifest first."""
    if case.needs_no_golden:
        return NOTHING
    data = checked_golden(case, manifest, constants, folder)
    return _expected(case, safetensors.numpy.load(data), constants, golden_path(case.golden_id, folder))


def checked_golden(case: Case, manifest: Manifest, constants: Constants, folder: Path = GOLDEN) -> bytes:
    """A case's golden file, if it is the manifest's and was made from this case; InputError if not."""
    if case.seed or case.held:
        raise ValueError(f"goldens are frozen for seed 0, not for seed {case.seed} or parameters of another's")
    path, entry = golden_path(case.golden_id, folder), manifest.cases[case.golden_id]
    data = _read(path, entry)
    if case_digest(case, constants) != entry.case_sha256:
        raise InputError(
            f"was made from another {case.layer.layer}.yaml, {case.situation.situation}.yaml or constants.yaml",
            where=shown(path),
            hint="undo that change, or rebuild in a commit that says why: "
            f"conform golden build --case {case.golden_id!r}",
        )
    return data


def still_frozen(
    case: Case, entry: Entry, today: Expected, constants: Constants, folder: Path = GOLDEN
) -> Entry | None:
    """The entry of a golden that what the oracle says today agrees with; None if there is none, or it does not.

    Another machine's BLAS gives other last bits. A golden that is still right stays, byte for byte, even where a change
    of the specification's language gave its case another digest.
    """
    try:
        path = golden_path(case.id, folder)
        frozen = _expected(case, safetensors.numpy.load(_read(path, entry)), constants, path)
    except InputError:
        return None
    if any(tensor.golden.shape != today.tensors[name].golden.shape for name, tensor in frozen.tensors.items()):
        return None
    if disagreement(frozen, today, constants):
        return None
    return Entry(sha256=entry.sha256, case_sha256=case_digest(case, constants))


def _read(path: Path, entry: Entry) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=shown(path), hint=_RESTORE) from None
    if hashlib.sha256(data).hexdigest() != entry.sha256:
        raise InputError("does not match its sum in manifest.json", where=shown(path), hint=_RESTORE)
    return data


def _expected(case: Case, tensors: Mapping[str, Array], constants: Constants, path: Path) -> Expected:
    kept = {}
    here_compared = compared_tensors(case)
    as_frozen = case.as_frozen()
    frozen = here_compared if as_frozen == case else compared_tensors(as_frozen)
    for name, (shape, compared) in here_compared.items():
        at = kept_positions(case, name, shape, frozen[name][1], constants)
        here = compared.reshape(-1)[at]
        try:
            golden, condition = tensors[name], tensors[f"condition.{name}"]
        except KeyError:
            raise InputError(f"holds no tensor {name}", where=shown(path), hint=_RESTORE) from None
        if golden.size != at.size:
            raise InputError(f"holds {golden.size} values of {name}, not {at.size}", where=shown(path), hint=_RESTORE)
        kept[name] = ExpectedTensor(shape, at[here], golden[here], condition[here])
    return Expected(kept, tensors["kinked_rows"])


_RESTORE = "restore the file from version control (git checkout -- specs/golden); goldens are never edited"

"""The locks have a file for each environment, every package in them has a hash, and they keep to what is pinned."""

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LOCKS = ROOT / "locks"
RENEW = runpy.run_path(str(LOCKS / "renew.py"))
ENVIRONMENTS: dict[str, list[str]] = RENEW["environments"]()
PACKAGE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[a-z,]+\])?==([^\s;\\]+)(.*)", re.DOTALL)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_of(name: str) -> str:
    return (LOCKS / f"{name}.txt").read_text(encoding="utf-8")


def sums(entry: str) -> set[str]:
    return set(re.findall(r"--hash=sha256:(\w+)", entry))


def locked(name: str) -> dict[str, tuple[str, str]]:
    """Package → its version and what else its lines say."""
    entries = [PACKAGE.match(entry) for entry in re.split(r"\n(?=\w)", lock_of(name))[1:]]
    assert all(entries)
    return {normal(entry[1]): (entry[2], entry[3]) for entry in entries if entry}


def pinned(requirements: list[str]) -> dict[str, str]:
    """Package → the version that the requirements pin."""
    lines = [line for line in requirements if not line.startswith("-r ")]
    for line in requirements:
        if line.startswith("-r "):
            lines += (ROOT / line[3:]).read_text(encoding="utf-8").splitlines()
    pins = (re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[a-z]+\])?==([^;\s]+).*", line.strip()) for line in lines)
    return {normal(pin[1]): pin[2] for pin in pins if pin}


def test_each_environment_has_a_lock_and_no_lock_is_left_over() -> None:
    assert {path.stem for path in LOCKS.glob("*.txt")} == set(ENVIRONMENTS)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_lock_has_hashes_and_keeps_to_what_is_pinned(name: str) -> None:
    packages = locked(name)
    assert len(packages) > (0 if name == "lint" else 5)
    assert all("--hash=sha256:" in rest for _, rest in packages.values())
    pins = pinned(ENVIRONMENTS[name])
    assert {package: packages[package][0] for package in pins} == pins, "tox -e supply"


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_lock_has_the_sums_of_torchs_build_for_processors(name: str) -> None:
    """Only that build's version has the suffix that the second line keeps; the other's sums are refused on renewal."""
    packages = locked(name)
    said = re.search(r"^# torch is the build for processors, (\S+)$", lock_of(name), re.MULTILINE)
    assert (said is not None) == ("torch" in packages)
    if said:
        version, rest = packages["torch"]
        assert said[1] == f"{version}+cpu"
        assert sums(rest) == sums(locked("pytorch")["torch"][1]), "of two builds: tox -e supply"
        assert not {package for package in packages if re.match(r"nvidia-|cuda-|triton$", package)}


COMPILED = "numpy==2.4.6 \\\n    --hash=sha256:aa\ntorch==2.13.0{suffix} \\\n    --hash=sha256:bb\n    # via -r it\n"


def test_a_renewal_without_torchs_build_for_processors_is_refused() -> None:
    """Without a place of that build, uv finds the one for graphics cards, which has other sums."""
    with pytest.raises(SystemExit, match=r"locks/pytorch.txt stays as it was.* torch 2\.13\.0,.* UV_FIND_LINKS"):
        RENEW["locked"]("pytorch", COMPILED.format(suffix=""))
    written = RENEW["locked"]("pytorch", COMPILED.format(suffix="+cpu"))
    head, build, rest = written.split("\n", 2)
    assert head == lock_of("pytorch").splitlines()[0]
    assert build == "# torch is the build for processors, 2.13.0+cpu"
    assert rest == COMPILED.format(suffix="")


@pytest.mark.parametrize("file", sorted(LOCKS.iterdir()), ids=lambda path: path.name)
def test_nothing_says_where_a_package_comes_from(file: Path) -> None:
    if file.is_file():
        assert not re.search(r"index-url|find-links https?|file://|simple/", file.read_text(encoding="utf-8")), file


@pytest.mark.parametrize("framework", ["keras", "mlx", "jax", "tensorflow-cpu", "torch", "onnx", "onnxruntime"])
def test_frameworks_are_pinned_wherever_they_are_named(framework: str) -> None:
    named = re.compile(rf"^{framework}(\[[a-z]+\])?([=<>!~].*)?$", re.MULTILINE)
    for file in (path for folder in ("impls", "harness") for path in (ROOT / folder).rglob("requirements.txt")):
        for _, bound in named.findall(file.read_text(encoding="utf-8")):
            assert bound.startswith("=="), file


def test_the_bill_of_materials_and_the_licences_are_of_the_same_packages() -> None:
    sbom = json.loads((LOCKS / "sbom.cdx.json").read_text(encoding="utf-8"))
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| (.+) \|$", (LOCKS / "LICENCES.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    components = {(component["name"], component["version"]) for component in sbom["components"]}
    assert {(name, version) for name, version, _ in rows[1:] if name != "---"} >= components - {("package", "version")}
    assert {"torch", "jax", "keras", "onnx", "numpy", "safetensors"} <= {name for name, _ in components}
    assert "externalReferences" not in json.dumps(sbom)

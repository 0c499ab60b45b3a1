"""`tox -e supply`: renews the locks, the bill of materials (SBOM) and the list of licences in this folder.

    python locks/renew.py [--python PATH] [NAME …]

One lock for each environment of tox.ini, or for those named, by uv, with the hashes of every file. PATH is an
interpreter that has everything installed; the bill of materials is of that, by cyclonedx-py.
"""

import argparse
import configparser
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent
PLATFORM = "x86_64-manylinux_2_35"
PYTHON, NEWER = "3.11", {"lucid_dl": "3.12"}
TOOLS = ("lint", "types", "docs", "site", "supply")
"""Environments of tox.ini that install what is named there, after what the package itself needs."""
PROCESSORS = "+cpu"
"""The local suffix of the version of torch's build for processors."""
SEVERAL = ("onnx_exporters",)
"""Environments of tox.ini that install several extras."""
SBOM, LICENCES = FOLDER / "sbom.cdx.json", FOLDER / "LICENCES.md"


def environments() -> dict[str, list[str]]:
    """Name → what is installed: requirements, and files of them with `-r`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    hook = project["tool"]["hatch"]["metadata"]["hooks"]["requirements_txt"]
    extras: dict[str, list[str]] = hook["optional-dependencies"]
    # Those for users have bounds and no versions: there is nothing to lock.
    extras = {name: files for name, files in extras.items() if not files[0].startswith("requirements/")}
    of_all = [*project["project"]["dependencies"], *(f"-r {file}" for file in extras.pop("test"))]
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini", encoding="utf-8")
    for name in SEVERAL:
        named = tox[f"testenv:{name}{{,-release}}"]["extras"].split()
        extras[name] = [file for each in named for file in extras.get(each, [])]
    tools = {
        name: [
            *([] if tox[f"testenv:{name}"].getboolean("skip_install", fallback=False) else of_all),
            *filter(None, tox[f"testenv:{name}"]["deps"].split("\n")),
        ]
        for name in TOOLS
    }
    return {
        "core": of_all,
        **{name: [*of_all, *(f"-r {file}" for file in files)] for name, files in extras.items()},
        **tools,
    }


def lock(name: str, requirements: list[str]) -> None:
    """Write the lock of one environment."""
    options = ["--generate-hashes", "--no-header", "--prerelease", "disallow", "--upgrade"]
    options += ["--python-version", NEWER.get(name, PYTHON), "--python-platform", PLATFORM]
    text = "\n".join(requirements) + "\n"
    command = [Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", *options, "-"]
    compiled = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
    if compiled.returncode:
        raise SystemExit(f"{name}: {compiled.stderr}")
    (FOLDER / f"{name}.txt").write_text(locked(name, compiled.stdout), encoding="utf-8")


def locked(name: str, compiled: str) -> str:
    """The lock of what uv compiled. Raises SystemExit where the sums of torch are not of the build for processors.

    That build has the same version as the one for graphics cards, and a local suffix that only its own index knows.
    """
    head = f"# {name}, for Python {NEWER.get(name, PYTHON)} on {PLATFORM}; renewed by: tox -e supply\n"
    if torch := re.search(r"^torch==(\S+)", compiled, flags=re.MULTILINE):
        if not torch[1].endswith(PROCESSORS):
            raise SystemExit(
                f"locks/{name}.txt stays as it was: uv found torch {torch[1]}, and not its build for processors, "
                f"{torch[1]}{PROCESSORS}. Say where that build is: UV_FIND_LINKS, a folder or page with its wheel, or "
                "UV_INDEX, an index of such builds"
            )
        head += f"# torch is the build for processors, {torch[1]}\n"
    return head + re.sub(rf"^(torch==\S+?){re.escape(PROCESSORS)}", r"\1", compiled, flags=re.MULTILINE)


def bill_of_materials(python: str) -> dict[str, Any]:
    """What `python` has installed, in CycloneDX, without addresses."""
    command = [Path(sys.executable).with_name("cyclonedx-py"), "environment", "--output-reproducible", "--of", "JSON"]
    made = subprocess.run([*command, "--pyproject", ROOT / "pyproject.toml", python], capture_output=True, check=True)
    return without_addresses(json.loads(made.stdout))


def without_addresses(value: Any) -> Any:
    """The same without `externalReferences`: homepages and indexes, which say nothing of what is installed."""
    if isinstance(value, dict):
        return {key: without_addresses(inner) for key, inner in value.items() if key != "externalReferences"}
    return [without_addresses(inner) for inner in value] if isinstance(value, list) else value


def licences(sbom: dict[str, Any]) -> Iterator[str]:
    """The page of licences."""
    yield "# Licences of what an environment with everything installs"
    yield ""
    yield f"`tox -e supply` writes this page from `{SBOM.name}`. The locks beside it say which environment has what."
    yield ""
    yield "| package | version | licence, as the package states it |"
    yield "|---|---|---|"
    for component in sorted(sbom["components"], key=lambda component: str(component["name"]).lower()):
        stated = " and ".join(dict.fromkeys(_name(licence) for licence in component.get("licenses", [])))
        yield f"| {component['name']} | {component['version']} | {stated or 'not stated'} |"


def _name(licence: dict[str, Any]) -> str:
    inner = licence.get("license", {})
    text = str(licence.get("expression") or inner.get("id") or inner.get("name") or "in its files")
    text = text.rpartition(" :: ")[2].removeprefix("declared license of ")  # of a classifier, its last part
    return " ".join(text.split())[:80].replace("|", "/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", metavar="PATH", help="an interpreter with everything, for SBOM and licences")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the locks to renew; default: all")
    options = parser.parse_args()
    known = environments()
    for name in options.names or known:
        if name not in known:
            parser.error(f"no environment {name!r}: {', '.join(known)}")
        lock(name, known[name])
    if options.python:
        sbom = bill_of_materials(options.python)
        SBOM.write_text(json.dumps(sbom, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        LICENCES.write_text("\n".join(licences(sbom)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""`conform new`: a folder for a new implementation."""

import importlib.util
import keyword
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template

import click

from encoder_conformance.commands.options import FOLDER
from encoder_conformance.commands.smoke.placeholders import placeholders_of
from encoder_conformance.implementation.manifest import known_folders
from encoder_conformance.platform.errors import InputError
from encoder_conformance.platform.files import make_folder, writable
from encoder_conformance.platform.paths import IMPLS, PACKAGE, shown

TEMPLATES = PACKAGE / "commands" / "new" / "templates"


_DEFAULTS = """\
choices:
  # own: the constructor as it is called without arguments, which makes one of the layers in `defaults`
  - {name: defaults, values: [given, own]}
defaults: [pre-gelu-512]
"""


@dataclass(frozen=True)
class Framework:
    """A framework. `like` is the folder in impls/ whose requirements.txt is copied; "" if the template has its own.
    `choices`: lines of the manifest; a file of ONNX has no constructor with defaults."""

    title: str
    homepage: str
    requires: tuple[str, ...]
    install: str
    like: str
    dtypes: tuple[str, ...] = ("float64", "float32")
    checks: tuple[str, ...] = ("output", "stages", "gradients", "refusal")
    choices: str = _DEFAULTS
    stages: tuple[str, ...] = (
        "norm1", "attention_output", "residual1", "norm2", "ffn_output", "residual2", "output",
    )  # fmt: skip


FRAMEWORKS: dict[str, Framework] = {
    "pytorch": Framework("PyTorch", "https://pytorch.org", ("torch",), "torch", "pytorch"),
    "keras": Framework("Keras", "https://keras.io", ("tensorflow", "keras"), "tensorflow-cpu", "keras_tf"),
    "jax": Framework("JAX", "https://docs.jax.dev", ("jax",), "jax", "jax_pure"),
    "onnx": Framework(
        "ONNX Runtime",
        "https://onnxruntime.ai",
        ("onnx", "onnxruntime"),
        "onnx onnxruntime",
        "onnx_direct",
        dtypes=("float32",),
        checks=("output", "refusal"),
        stages=("output",),
        choices="",
    ),
    "numpy": Framework("NumPy", "https://numpy.org", ("numpy",), "numpy", "", checks=("output", "stages", "refusal")),
}
"""Value of --framework → framework. NumPy's template is the plain one, for frameworks that are not listed."""


@click.command(epilog="Example: conform new my_backend --framework pytorch")
@click.argument("name")
@click.option(
    "--framework",
    type=click.Choice(list(FRAMEWORKS)),
    required=True,
    help="Framework of the implementation; numpy is the plain template, for any other.",
)
@click.option(
    "--out",
    type=FOLDER,
    default=Path(),
    help="Parent of the new folder; default: the current folder.",
)
def new(name: str, framework: str, out: Path) -> None:
    """Make a folder with an adapter that is complete but for a few blanks, and list the blanks."""
    folder = make(name, framework, out)
    click.echo(f"{shown(folder)}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    for blank in placeholders_of(folder):
        click.echo(f"  {blank}")
    path = shown(folder)
    argument = path if "/" in path else f"./{path}"  # with a slash it is not taken for a name
    click.echo(f"Fill these in, then run: conform smoke {argument}")


_SUFFIX = ".template"


def make(name: str, framework: str, out: Path) -> Path:
    """Make the folder `out`/`name` from the framework's template. Raises InputError."""
    folder = out / name
    _refuse_name(name)
    if folder.exists():
        raise InputError("exists already", where=shown(folder), hint="give another name, or another --out")
    with writable(shown(folder), "choose another --out"):
        make_folder(folder, _files(name, framework))
    return folder


def _files(name: str, framework: str) -> dict[str, str]:
    """File name → text. The name of the adapter's class is `name` in camel case."""
    facts = FRAMEWORKS[framework]
    substitutions = {
        key: ", ".join(value) if isinstance(value, tuple) else value for key, value in asdict(facts).items()
    }
    substitutions |= {"name": name, "adapter": "".join(word.capitalize() for word in name.split("_"))}
    files = {"impl.yaml": (TEMPLATES / "impl.yaml").read_text(encoding="utf-8")}
    for path in sorted((TEMPLATES / framework).iterdir()):
        files[path.name.removesuffix(_SUFFIX)] = path.read_text(encoding="utf-8")
    if facts.like:
        files["requirements.txt"] = (IMPLS / facts.like / "requirements.txt").read_text(encoding="utf-8")
    return {file: Template(text).substitute(substitutions) for file, text in files.items()}


def _refuse_name(name: str) -> None:
    """Raises InputError for a name that is invalid, a Python keyword, or taken by a module or implementation."""
    problem = hint = ""
    required = {module for framework in FRAMEWORKS.values() for module in framework.requires}
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        problem, hint = "is no name for an implementation", "small letters, digits and _, a letter first: my_backend"
    elif name in known_folders():
        problem, hint = "is an implementation already (conform list impls)", "give another name"
    elif name in required or importlib.util.find_spec(name) is not None:  # which imports nothing
        problem, hint = "is the name of a module, which the folder would shadow", f"for example {name}_layer"
    if problem:
        raise InputError(f"{name!r} {problem}", where="NAME", hint=hint)

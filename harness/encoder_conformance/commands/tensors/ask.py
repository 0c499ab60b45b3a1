"""`conform ask`: the questions of a layer as a file of tensors."""

from collections import Counter
from pathlib import Path

import click

from encoder_conformance.commands.completion import layers
from encoder_conformance.commands.inspect.layer_selection import find_layer
from encoder_conformance.commands.options import FILE, dtypes_option, jobs_option, level_option
from encoder_conformance.commands.run.judging import compute
from encoder_conformance.commands.tensors.files import require_questions, write_questions
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.spec.dtypes import FORMATS, DtypeName
from encoder_conformance.spec.level import Level
from encoder_conformance.subjects.questions import Asking, cases_asked, questions_of

_EXAMPLES = """
\b
Examples:
  conform ask --layer post-relu --to asked.safetensors
  conform ask --layer my-layer.yaml --to asked.safetensors
  conform judge answers.safetensors --asked asked.safetensors
"""


@click.command(epilog=_EXAMPLES)
@click.option("--layer", required=True, metavar="ID|YAML", shell_complete=layers, help="The layer that is asked for.")
@level_option
@dtypes_option
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of inputs and parameters.")
@jobs_option
@click.option(
    "--to",
    type=FILE,
    default=Path("asked.safetensors"),
    show_default=True,
    help="The file of questions.",
)
def ask(layer: str, level: Level, dtypes: tuple[DtypeName, ...], seed: int, jobs: int, to: Path) -> int:
    """Write inputs, masks and parameters to a file, for a program that can run no adapter.

    It answers with a file of its own, which `conform judge` judges (docs/tensors.md).
    """
    require_questions(to)
    every = tuple(dtype for dtype in FORMATS if not dtypes or dtype in dtypes)
    asking = Asking.model_validate({"layer": find_layer(layer), "level": level, "dtypes": every, "seed": seed})
    cases = cases_asked(asking)
    goldens = Goldens(cases, jobs)
    compute(goldens)
    questions = questions_of(asking, {case.id: goldens(case) for case in cases})
    write_questions(questions, to)
    counts = Counter(question.group for question in questions.questions)
    groups = ", ".join(f"{count} in {group}" for group, count in counts.items())
    click.echo(f"{to}: {len(questions.questions)} questions of {asking.layer.layer} ({groups})")
    click.echo("Answer each ID/x with ID/output, and copy the tensor 'asked'. Then:")
    click.echo(f"conform judge answers.safetensors --asked {to}")
    return 0

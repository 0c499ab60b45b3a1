"""`conform judge`: a file of answers, judged and diagnosed as any run."""

from pathlib import Path

import click

from encoder_conformance.commands.options import FILE, FOLDER, GIVEN_FILE, file_alone, jobs_option
from encoder_conformance.commands.run.judging import Planned, compute, judge_assignments
from encoder_conformance.commands.tensors import files
from encoder_conformance.engine.run_options import RunOptions
from encoder_conformance.engine.scheduling import Assignment
from encoder_conformance.implementation.interpreter import Ready
from encoder_conformance.implementation.manifest import read_implementation
from encoder_conformance.implementation.task import Task
from encoder_conformance.oracle.golden.goldens import Goldens
from encoder_conformance.platform.clean import first_names
from encoder_conformance.platform.paths import READERS
from encoder_conformance.reports.run.folder import NAME, begun_run
from encoder_conformance.subjects.plan import plan
from encoder_conformance.subjects.questions import Questions, cases_asked, questions_of
from encoder_conformance.subjects.starting import require_ready
from encoder_conformance.subjects.subject import found_to_be

READER = READERS / "tensor_file"

_EXAMPLES = """
\b
Examples:
  conform judge answers.safetensors
  conform judge answers.safetensors --asked /data/asked.safetensors
"""


@click.command(epilog=_EXAMPLES)
@click.argument("answers", type=GIVEN_FILE, metavar="ANSWERS.safetensors")
@click.option(
    "--asked",
    type=FILE,
    help="The file that was answered; default: asked.safetensors beside the answers.",
)
@jobs_option
@click.option(
    "--out",
    type=FOLDER,
    help="Folder for report.json and the log; default: a new one under conform-report.",
)
@click.option("--json", "as_json", is_flag=True, help="report.json on standard output, and nothing else.")
def judge(answers: Path, asked: Path | None, jobs: int, out: Path | None, as_json: bool) -> int:
    """Judge a file of answers to the questions of `conform ask`, and print the matrix.

    Stages and gradients are judged where the file has them. A question without an answer is an error of the run.
    """
    asked = asked or answers.with_name("asked.safetensors")
    asking, digest = files.read_asking(asked)
    cases = cases_asked(asking)
    with begun_run(out) as folder, file_alone(folder / NAME if as_json else None):
        goldens = Goldens(cases, jobs)
        compute(goldens)
        questions = questions_of(asking, {case.id: goldens(case) for case in cases})
        files.check_same_specification(questions, digest, asked)
        given = files.read_answers(answers, questions, asked)
        assignment = _assignment(answers, asked, questions, given)
        options = RunOptions(jobs=1, seed=asking.seed)
        status = judge_assignments(Planned([assignment], goldens), folder, options).show(out)
    unanswered = [question.id for question in questions.questions if question.id not in given]
    if unanswered and not as_json:
        count, named = len(unanswered), first_names(unanswered, 5)
        click.echo(f"{count} of {len(questions.questions)} questions have no answer: {named}")
    return status


def _assignment(answers: Path, asked: Path, questions: Questions, given: dict[str, set[str]]) -> Assignment:
    chosen = {"answers": str(answers.absolute()), "asked": str(asked.absolute())}
    manifest = read_implementation(READER, chosen, str(answers))
    stages = files.stages_of(given)  # those in the file, and no others
    implementation = found_to_be(manifest, answers.name, stages=stages)
    ready = require_ready(implementation, READER, {}, str(answers), "cannot be read here")
    return Assignment(ready, _tasks(ready, questions, given))


def _tasks(ready: Ready, questions: Questions, given: dict[str, set[str]]) -> list[Task]:
    """The output of every question, and the stages and gradients of those whose answers have them."""
    return [
        task
        for question in questions.questions
        for task in plan(ready.implementation, [question.case], (question.dtype,))
        if task.check in files.checks_of(given.get(question.id, ()))
    ]

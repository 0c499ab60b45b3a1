"""The commands by name, and exit statuses. A command is imported on use: NumPy alone takes as long as help."""

from collections.abc import Iterable
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING

import click

from encoder_conformance.commands.exit_statuses import STATUSES
from encoder_conformance.platform.errors import nearest
from encoder_conformance.platform.interrupts import ended_at_once

if TYPE_CHECKING:
    from encoder_conformance.judging.records import Diagnosis

NOT_AS_EXPECTED, BAD_INPUT, INCOMPLETE = 1, 2, 3
"""Exit statuses: 0 all as expected; 1 something did not conform; 2 wrong usage or bad input; 3 incomplete or failed."""

_COMMANDS = {
    "run": ("run.command:run", "Test implementations; print the matrix."),
    "explain": ("explain:explain", "Show one failure of that run in full."),
    "report": ("report:report", "Write runs as a static site to look at."),
    "reproduce": ("reproduce:reproduce", "Write a failure as a script of the framework alone."),
    "compare": ("compare:compare_", "Compare two runs: what changed, what got worse."),
    "versions": ("versions.command:versions", "Find the release that changed behaviour."),
    "merge": ("merge:merge_", "Unite parts of a run, or runs, into one report."),
    "summarize": ("summarize:summarize", "Write a run for CI: JUnit, Markdown, a badge, JSON."),
    "new": ("new.command:new", "Make the folder of a new implementation."),
    "smoke": ("smoke.command:smoke", "Test a new adapter, step by step."),
    "check": ("check.command:check", "Test a module, without an adapter."),
    "diff": ("diff.command:diff", "Compare two layers, with the same parameters."),
    "validate": ("validate.command:validate_", "Test an ONNX file from any source."),
    "ask": ("tensors.ask:ask", "Write questions to a file, for any program."),
    "judge": ("tensors.judge:judge", "Judge a file of answers to them."),
    "export": ("export:export", "Export a layer to ONNX."),
    "trace": ("inspect.trace_command:trace", "Show every stage's shape, in the live module."),
    "parameters": ("inspect.parameters:parameters", "Show every parameter, total and trainable."),
    "memory": (
        "inspect.memory_command:memory",
        "Show memory, and the longest sequence that fits.",
    ),
    "profile": ("inspect.profile:profile", "Show how long each stage takes."),
    "list": ("list:list_", "List implementations, layers, cases, deviations, …"),
}
"""Name → module:attribute in encoder_conformance.commands, and summary; in the order in which a user needs them."""


def unless_faulty(status: int, diagnoses: "Iterable[Diagnosis]") -> int:
    """The exit status; no 0 where a fault of ours ended a diagnosis."""
    return status or INCOMPLETE * any(each.fault for each in diagnoses)


class Commands(click.Group):
    """The group of all commands. It imports none of them until it runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        attribute = _COMMANDS[cmd_name][0].partition(":")[2]
        with ended_at_once():
            command = getattr(import_module(self.module_of(cmd_name)), attribute)
        assert isinstance(command, click.Command)
        told = STATUSES[cmd_name].line
        if told not in (command.help or ""):
            command.help = f"{cleandoc(command.help or '')}\n\n{told}"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, and a name that is none is answered with those that are like it."""
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            hint = nearest(args[0], _COMMANDS)
            ctx.fail(f"{args[0]!r} is no command: {hint}")
        return super().resolve_command(ctx, args)

    @staticmethod
    def module_of(command: str) -> str:
        """The module that has a command."""
        return f"encoder_conformance.commands.{_COMMANDS[command][0].partition(':')[0]}"

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in _COMMANDS.items()])

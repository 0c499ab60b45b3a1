"""The result of `encoder_conformance.check`, to be read, shown in a notebook, or asserted."""

import io
from functools import cached_property

from rich.console import Console

from encoder_conformance.commands.check.results import CheckResult
from encoder_conformance.commands.check.show import show_check

_WIDTH = 160
_HTML = '<pre style="white-space: pre-wrap; line-height: 1.35; font-family: monospace">{code}</pre>'


class CheckReport:
    """The report of one check. `repr` and notebooks show what `conform check` prints.

    `result` has everything, as check.json does (docs/checking.md).
    """

    def __init__(self, result: CheckResult) -> None:
        self.result = result

    @property
    def status(self) -> int:
        """0 it does what it was judged as; 1 it does not; 2 it was not judged."""
        return self.result.status

    @property
    def conforms(self) -> bool:
        """Whether it does what it was judged as: the stated layer, or what was read off it."""
        return self.status == 0

    @property
    def warnings(self) -> list[str]:
        """The unusual choices of the module, over all parts."""
        return [finding.message for part in self.result.parts for finding in part.warnings]

    @property
    def deviations(self) -> list[str]:
        """The deviations that explain what does not conform, over all parts and formats."""
        found = [each for part in self.result.parts for each in part.diagnoses if each.confidence == "explained"]
        return list(dict.fromkeys(name for each in found for name in each.deviations))

    def __repr__(self) -> str:
        return self._screen.export_text(clear=False).strip()

    def _repr_html_(self) -> str:
        return self._screen.export_html(clear=False, inline_styles=True, code_format=_HTML)

    @cached_property
    def _screen(self) -> Console:
        """Everything, printed once to where nobody looks, with its colours."""
        screen = Console(file=io.StringIO(), record=True, width=_WIDTH, force_terminal=True, markup=False)
        show_check(screen, self.result)
        return screen

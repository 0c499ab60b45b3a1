"""What an exit status says, of each command: the one place, from which help and docs/exit-statuses.md are made."""

from dataclasses import dataclass

USAGE = "wrong usage, or a specification, manifest, file or option that cannot be used: it is named, with its place"
UNFINISHED = (
    "it was interrupted, or the machine lacks something, or what it was to write could not be written, "
    "or conform itself failed: nothing is said of what was to be judged"
)


@dataclass(frozen=True)
class Statuses:
    """What 0 and 1 say of a command, and what 2 and 3 say beside what they say of every command. `one`: "" where the
    command judges nothing."""

    zero: str
    one: str = ""
    two: str = ""
    three: str = ""

    @property
    def line(self) -> str:
        """The end of a command's help."""
        two = f"wrong usage or bad input{', or ' if self.two else ''}{self.two}"
        three = f"interrupted or failed{', or ' if self.three else ''}{self.three}"
        said = [f"0 {self.zero}", f"1 {self.one}" if self.one else "", f"2 {two}", f"3 {three}"]
        return f"Exit status: {'; '.join(filter(None, said))}."


_FAULT = "all of that, and conform itself failed in a diagnosis"
_WRITTEN = Statuses("written")

STATUSES = {
    "run": Statuses("all as expected", "something did not conform", three="a planned check was not judged"),
    "explain": Statuses("shown, or nothing failed"),
    "report": _WRITTEN,
    "reproduce": Statuses("the script shows the failure", "it does not"),
    "compare": Statuses(
        "nothing got worse",
        "something did: a check that conformed is out of line, deviates in another way, or is opted out of",
        three="a run is incomplete, and nothing of what both asked got worse",
    ),
    "versions": Statuses(
        "all versions were judged",
        "the newest is out of line where an older one was not",
        three="a version could not be installed, or its run is incomplete",
    ),
    "merge": Statuses(
        "all as expected, in all of these records",
        "something did not conform",
        "two runs contradict each other",
        "a part is missing or incomplete",
    ),
    "summarize": Statuses("written, whatever the run says"),
    "new": _WRITTEN,
    "smoke": Statuses(
        "every step is right",
        "a step failed",
        "there is no interpreter to start it with",
        f"{_FAULT}: every step is right",
    ),
    "check": Statuses("correct, as what it was judged as", "it is not", "it could not be judged", _FAULT),
    "diff": Statuses("they agree", "they do not", "they cannot be compared", _FAULT),
    "validate": Statuses(
        "correct, or internally consistent where nothing states what it should be",
        "something of it is known to be wrong",
        "it could not be judged",
        _FAULT,
    ),
    "ask": _WRITTEN,
    "judge": Statuses("all as expected", "something did not conform", three="a question was not judged"),
    "export": Statuses("written", "the exporter failed"),
    "trace": Statuses("all stages are as specified", "a stage is not, or there was no answer"),
    "parameters": Statuses(
        "shown", "there was no answer, or the layer does not return the parameters that it was sent"
    ),
    "memory": Statuses("shown", "there was no answer"),
    "profile": Statuses("shown", "there was no answer"),
    "list": Statuses("listed"),
}
"""Command → what its statuses say. A verdict has 0 or 1, and nothing else has 1 but a program that gave no answer."""

"""Texts from adapters and manifests that would forge, break or fill what a run prints and writes.

Each is injected wherever an adapter can say something, a line a place. Whatever it is, the run judges everything else,
ends with the status of what was judged, and its report and its terminal hold text that is fit to print.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from products import daily

from encoder_conformance.platform.clean import line
from encoder_conformance.reports.run.reading import read_report

CASES = ("--case", "pre-gelu/no-mask", "--dtype", "float32")
FORGED = "745 of 745 checks conform"

TEXTS = {
    "lone-surrogate": r"'lost \udc80 half'",
    "ansi-that-forges-the-last-line": rf"'\x1b[2K\x1b[1G{FORGED}\x1b[8m'",
    "carriage-return": rf"'bad\r{FORGED}'",
    "line-break": rf"'bad\n{FORGED}'",
    "unicode-line-separator": rf"'bad\u2028{FORGED}'",
    "next-line": rf"'bad\x85{FORGED}'",
    "right-to-left": r"'bad \u202emrofnoc'",
    "nul": r"'bad\x00'",
    "closing-markup": "'bad [/x]'",
    "markup": "'bad [bold red]x[/bold red]'",
    "link-markup": "'bad [link=https://example.org]here[/link]'",
    "emoji-code": "'bad :warning:'",
    "3-mb": "'x' * 3_000_000",
}
_ALL = " + ' ' + ".join(text for name, text in TEXTS.items() if name != "3-mb")
TEXTS["all-of-them"] = f"({_ALL})"
DAILY = ("all-of-them",)

PLACES = {
    "error": "def output(self, x, masks, run):\n    raise ValueError(TEXT)",
    "error-of-start": "def start(self, device, threads):\n    raise ValueError(TEXT)",
    "error-of-build": "def build(self, layer, parameters, dtype):\n    raise ValueError(TEXT)",
    "name-of-a-tensor": "def stages(self, x, masks, run):\n    return {**super().stages(x, masks, run), TEXT: x}",
    "name-of-a-parameter": "def build(self, layer, parameters, dtype):\n    return {**parameters, TEXT: np.ones(1)}",
    "version": "def start(self, device, threads):\n    return Environment({'numpy': TEXT}, {})",
    "name-of-a-package": "def start(self, device, threads):\n    return Environment({TEXT: '1'}, {})",
    "setting": "def start(self, device, threads):\n    return Environment({}, {'flags': [TEXT]})",
    "name-of-a-setting": "def start(self, device, threads):\n    return Environment({}, {TEXT: 1})",
    "last-words": "def output(self, x, masks, run):\n    import sys\n    sys.stderr.buffer.write("
    "TEXT[:5000].encode('utf-8', 'surrogateescape'))\n    sys.stderr.flush()\n    os._exit(3)",
}


def lie(place: str, text: str) -> str:
    return PLACES[place].replace("TEXT", text)


def texts_of(value: Any) -> list[str]:
    """Every text in a value of JSON, keys included."""
    match value:
        case str():
            return [value]
        case dict():
            return [*value, *(text for each in value.values() for text in texts_of(each))]
        case list():
            return [text for each in value for text in texts_of(each)]
    return []


def check_fit_to_print(printed: str) -> None:
    assert FORGED not in printed.splitlines()
    assert all(line.isprintable() for line in printed.splitlines()), ascii(printed[-2000:])


SIZED = ("error", "name-of-a-tensor", "setting", "last-words")
"""Places where the size of a text is another matter than its characters."""
HARMLESS = frozenset({"version", "name-of-a-package", "setting", "name-of-a-setting"})
"""Places of which no check depends."""


def name_of(place: str) -> str:
    return place.replace("-", "_")


@pytest.mark.parametrize("text", daily(DAILY, TEXTS))
def test_a_text_of_an_adapter_spoils_nothing(conform: Callable, fake: Callable, text: str) -> None:
    """One implementation says it at each place, all in one run beside an honest one."""
    places = SIZED if text == "3-mb" else tuple(PLACES)
    folders = [fake(name_of(place), lie(place, TEXTS[text])) for place in places]
    named = [word for folder in [*folders, fake("good")] for word in ("--impl", folder)]
    ended = conform("run", *named, *CASES)
    assert ended.status == 1, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert "Traceback" not in ended.stderr
    check_fit_to_print(ended.stdout + ended.stderr)
    assert ended.report["complete"]
    for place in places:
        assert (set(ended.outcomes(implementation=name_of(place))) == {"pass"}) == (place in HARMLESS), place
    assert set(ended.outcomes(implementation="good")) == {"pass"}
    assert (ended.out / "report.json").stat().st_size < 1 << 18
    assert len(ended.stdout) < 100_000
    assert all(each.isprintable() for each in texts_of(ended.report))
    for place in places[:4]:
        explained = conform("explain", "--impl", name_of(place), "--case", "pre-gelu/no-mask")
        assert explained.status == 0, explained.stderr[-2000:]
        check_fit_to_print(explained.stdout)


@pytest.mark.parametrize("place", ["error", "error-of-start", "version", "last-words"])
@pytest.mark.parametrize("text", daily(["all-of-them"], TEXTS))
def test_a_text_of_an_adapter_does_not_spoil_smoke(conform: Callable, fake: Callable, place: str, text: str) -> None:
    folder = fake("liar", lie(place, TEXTS[text]))
    for option in ((), ("--json",))[: 1 + (place == "error")]:
        ended = conform("smoke", folder, *option)
        assert ended.status == int(place not in HARMLESS), ended.stderr[-2000:]
        assert "Traceback" not in ended.stderr
        check_fit_to_print(ended.stdout)
        assert len(ended.stdout) < 100_000


def test_brackets_stay_as_they_are(conform: Callable, fake: Callable) -> None:
    folder = fake("liar", lie("error", "'x[batch] [/x] :warning: [bold]'"))
    ended = conform("run", "--impl", folder, *CASES)
    assert ended.status == 1
    assert "x[batch] [/x] :warning: [bold]" in ended.stdout
    assert "x[batch] [/x] :warning: [bold]" in conform("explain").stdout
    assert "x[batch] [/x] :warning: [bold]" in conform("smoke", folder).stdout


def test_a_name_that_is_nearly_right_is_not_made_right(conform: Callable, fake: Callable) -> None:
    """What is not printable is replaced and never dropped."""
    body = "def stages(self, x, masks, run):\n    shown = super().stages(x, masks, run)\n"
    body += "    shown['key\\x00'] = shown.pop('key')"
    ended = conform("run", "--impl", fake("liar", body + "\n    return shown"), *CASES)
    assert ended.outcomes("stages") == ["error"]
    assert "not asked for key\N{REPLACEMENT CHARACTER}" in ended.messages()


def test_what_is_clean_stays_as_it_is() -> None:
    """So a report that is read again is the one that was written."""
    for text in ("a" * 5000, "\x1b[1m" * 3000, "two\nlines", "\udc80", "x[batch] → é 中", " one "):
        once = line(text)
        assert line(once) == once
        assert once.isprintable()
        assert len(once) <= 4000
    assert line("a" * 5000).endswith("a… (5,000 characters)")


def test_the_advice_to_run_a_dangerous_file_is_not_relayed(conform: Callable, fake: Callable) -> None:
    """An adapter that reads a checkpoint in its own way raises what PyTorch raises; these are its words."""
    said = (
        "Weights only load failed. This file can still be loaded, to do so you have two options. (1) Re-running "
        "`torch.load` with `weights_only` set to `False` will likely succeed, but it can run arbitrary code."
    )
    folder = fake("reader", f"def output(self, x, masks, run):\n    raise OSError({said!r})")
    ended = conform("run", "--impl", folder, *CASES)
    assert "OSError: Weights only load failed. [advice to load the file without protection is left" in ended.messages()
    for text in (ended.stdout, ended.stderr, (ended.out / "report.json").read_text()):
        assert "weights_only" not in text
        assert "likely succeed" not in text
    for text in ("try torch.load(f, weights_only=False)", "x. Re-running `torch.load` with `weights_only` set", said):
        assert line(line(text)) == line(text)
        assert "False" not in line(text)
    assert line("loads with weights_only=True") == "loads with weights_only=True"


REASONS = {
    "closing-markup": r"cannot do [/x] at all",
    "bracket": r"cannot do x[batch] at all",
    "ansi": rf"cannot \e[2K\e[1G{FORGED}",
    "line-break": rf"cannot\n{FORGED}",
}


@pytest.mark.parametrize("reason", daily(["bracket", "ansi"], REASONS))
def test_a_reason_of_a_manifest_spoils_nothing(conform: Callable, fake: Callable, reason: str) -> None:
    entry = f'[{{when: {{check: gradients}}, reason: "{REASONS[reason]}", link: "https://example.org"}}]'
    ended = conform("run", "--impl", fake("modest", unsupported=entry), *CASES)
    assert ended.status == 0, ended.stdout + ended.stderr
    check_fit_to_print(ended.stdout)
    assert all(each.isprintable() for each in texts_of(ended.report))
    if reason == "bracket":
        assert "cannot do x[batch] at all" in ended.stdout
    if reason == "closing-markup":
        assert "cannot do [/x] at all" in ended.stdout


def test_a_manifest_that_is_no_unicode_is_refused(conform: Callable, fake: Callable) -> None:
    entry = r'[{when: {check: gradients}, reason: "cannot \udc80 do it", link: "https://example.org"}]'
    ended = conform("run", "--impl", fake("modest", unsupported=entry), *CASES)
    assert ended.status == 2
    assert "lone leading surrogate" in ended.stderr


SETTINGS = {
    "900-levels": "deep = 1\n    for _ in range(900): deep = [deep]\n    return Environment({}, {'deep': deep})",
    "200-levels-of-mappings": "deep = 1\n    for _ in range(200): deep = {'a': deep}\n    return Environment({}, deep)",
    "many-entries": "return Environment({}, {f'flag {i}': i for i in range(100_000)})",
    "a-long-list": "return Environment({}, {'flags': list(range(100_000)), 'last': 1})",
    "many-packages": "return Environment({f'package {i}': '1' for i in range(100_000)}, {})",
    "a-number-of-400-digits": "return Environment({}, {'most': 10**400})",
    "not-a-number": "return Environment({}, {'share': float('nan'), 'most': float('inf')})",
}


@pytest.mark.parametrize("name", daily(["900-levels", "many-entries", "a-number-of-400-digits"], SETTINGS))
def test_settings_of_any_size_and_depth_leave_a_report(conform: Callable, fake: Callable, name: str) -> None:
    folder = fake("liar", f"def start(self, device, threads):\n    {SETTINGS[name]}")
    ended = conform("run", "--impl", folder, *CASES)
    assert ended.status == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    assert set(ended.outcomes()) == {"pass"}
    assert (ended.out / "report.json").stat().st_size < 1 << 19
    assert len(ended.stdout) < 100_000
    json.dumps(ended.report, allow_nan=False)
    assert read_report(ended.out).complete


def test_a_report_of_somebody_else_is_shown_as_text(conform: Callable, fake: Callable, tmp_path: Path) -> None:
    """A report that was sent by somebody may hold anything."""
    ran = conform("run", "--impl", fake("liar", lie("error", "'MARK'")), *CASES)
    path = ran.out / "report.json"
    path.write_text(path.read_text().replace("MARK", rf"\u001b[2K\u001b[1G\n{FORGED}\u202e"))
    ended = conform("explain")
    assert ended.status == 0
    check_fit_to_print(ended.stdout)

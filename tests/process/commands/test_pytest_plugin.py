"""`pytest --conform` without a framework: unused, it does nothing; a wrong use is said."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester: pytest.Pytester):
    """pytest in a process of its own, as a user runs it; the plugin is given by name where it is not installed."""

    def command(*arguments: str) -> pytest.RunResult:
        installed = ["-p", "encoder_conformance.pytest_plugin"] if not _is_installed() else []
        return pytester.runpytest_subprocess(*installed, "-q", *arguments)

    return command


def _is_installed() -> bool:
    return any(each.value == "encoder_conformance.pytest_plugin" for each in entry_points(group="pytest11"))


def test_unused_it_imports_nothing_of_the_harness(pytester: pytest.Pytester, run) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_what_is_imported():
            loaded = [name for name in sys.modules if name.startswith("encoder_conformance.")]
            assert loaded == ["encoder_conformance.pytest_plugin"]
        """
    )
    run().assert_outcomes(passed=1)


@pytest.mark.release
def test_a_manifest_that_names_no_deviation(pytester: pytest.Pytester, run) -> None:
    pytester.path.joinpath("conform.yaml").write_text(
        "modules: {m.py:L: {deviations: [{deviation: norm-eps-1e3, reason: a misprint}]}}"
    )
    ended = run("--conform", "m.py:L")
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    ended.stderr.fnmatch_lines(["*no deviation 'norm-eps-1e3'*", "*did you mean*norm-eps-1e-3*"])


def test_the_plugin_is_an_entry_point() -> None:
    root = Path(__file__).resolve().parents[3]
    assert 'conform = "encoder_conformance.pytest_plugin"' in (root / "pyproject.toml").read_text()
    program = "import encoder_conformance.pytest_plugin, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

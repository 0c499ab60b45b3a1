"""What is wrong is refused, in the right category, and leaves no trace: fakes that do otherwise, each in one way.

The layer is pre-gelu: d_model 24, 3 heads, so that 5 is the next number of heads that does not divide.
"""

from collections.abc import Callable

import pytest

FLAWS = ("activation", "feature_size", "input_dtype", "mask_shape", "num_heads")
AT_BUILD = ("activation", "num_heads")
AT_RUN = ("feature_size", "input_dtype", "mask_shape")


@pytest.fixture
def judged(conform: Callable, fake: Callable) -> Callable[[str], dict[str, tuple[str, str]]]:
    """Flaw → outcome and message, of the fake that lies so, in float32."""

    def ask(lie: str) -> dict[str, tuple[str, str]]:
        folder = fake("liar", lie, checks="[refusal]", dtypes="[float32]")
        report = conform("run", "--impl", folder, "--case", "pre-gelu/refuse-*", "--dtype", "float32").report
        records = {record["case"].partition("refuse-")[2].replace("-", "_"): record for record in report["records"]}
        assert tuple(sorted(records)) == FLAWS
        return {flaw: (record["outcome"], record["message"]) for flaw, record in records.items()}

    return ask


def test_the_honest_one_refuses_and_goes_on(conform: Callable, honest: object) -> None:
    ended = conform("run", "--impl", honest, "--case", "pre-?elu/refuse-*", "--case", "post-?elu/refuse-*")
    assert ended.status == 0, ended.stdout + ended.stderr
    assert ended.outcomes() == ["pass"] * (3 * 5 + 1) * 2  # of pre-relu one alone is asked
    assert all(record["rms"] > 0 for record in ended.report["records"])  # of what is right, asked afterwards


LIES = {
    "accepts everything": (
        """
        def build(self, layer, parameters, dtype):
            layer["attention"]["num_heads"], layer["feed_forward"]["activation"] = 3, "gelu"
            return super().build(layer, parameters, dtype)

        def output(self, x, masks, run):
            try:
                return super().output(x, masks, run)
            except (TypeError, ValueError):
                return np.zeros((2, 10, 24), self.dtype)
        """,
        {
            "activation": "activation: accepted activation swish9, which no layer knows",
            "feature_size": "feature_size: accepted x of 25 features, where d_model is 24",
            "input_dtype": "input_dtype: accepted x in float64, where the layer is float32",
            "mask_shape": "mask_shape: accepted a mask of 11 keys, where x has 10 positions",
            "num_heads": "num_heads: accepted num_heads = 5, where d_model is 24",
        },
    ),
    "lets NumPy broadcast and promote": (
        "def _check_fit(self, *given):\n    pass",
        {
            "feature_size": "accepted x of 1 feature, where d_model is 24",
            "input_dtype": "accepted x in float64, where the layer is float32",
            "mask_shape": "accepted a mask of 2 items, where x has 1",
        },
    ),
    "refuses in one category": (
        "def refusal(self, operation, error):\n    return 'shape'",
        {
            "activation": "refused it as shape instead of refusing it as configuration: build: ValidationError",
            "input_dtype": "refused it as shape instead of refusing it as dtype: run: TypeError",
            "num_heads": "refused it as shape instead of refusing it as configuration",
        },
    ),
    "raises, and does not refuse": (
        "def refusal(self, operation, error):\n    return None",
        dict.fromkeys(FLAWS, "gave an error of no category instead of refusing it as"),
    ),
    "has a category of its own": (
        "def refusal(self, operation, error):\n    return 'value'",
        dict.fromkeys(FLAWS, "broke the protocol: refused"),
    ),
    "refuses with an error that names one of the two numbers": (
        """
        def build(self, layer, parameters, dtype):
            if layer["attention"]["num_heads"] == 5:
                raise ValueError("5 heads do not divide d_model = 240")
            return super().build(layer, parameters, dtype)
        """,
        {"num_heads": "it gave an error that does not name 24: build: ValueError: 5 heads"},
    ),
    "refuses with an error that names nothing": (
        """
        def build(self, layer, parameters, dtype):
            try:
                return super().build(layer, parameters, dtype)
            except ValueError:
                raise ValueError("bad layer") from None
        """,
        {"num_heads": "does not name 5 and 24: build: ValueError: bad layer", "activation": "does not name swish9"},
    ),
    "answers zeros once it has refused": (
        """
        refused = False

        def refusal(self, *asked):
            self.refused = True
            return super().refusal(*asked)

        def output(self, x, masks, run):
            return super().output(x, masks, run) * np.float32(not self.refused)
        """,
        dict.fromkeys(FLAWS, ": output: rms"),  # after refusing once; and then before and after
    ),
    "keeps what it was refused with": (
        """
        def build(self, layer, parameters, dtype):
            layer = getattr(self, "held", layer)
            if layer["attention"]["num_heads"] == 5:
                self.held = layer
            return super().build(layer, parameters, dtype)
        """,
        {"num_heads": "num_heads: after refusing num_heads = 5, where d_model is 24: build: ValidationError"},
    ),
}
"""What it does → its adapter's body, and flaw → what is said of it; the other flaws are as they should be."""


@pytest.mark.parametrize("name", LIES)
def test_what_is_not_refused_as_it_should_be_fails(judged: Callable, name: str) -> None:
    lie, said = LIES[name]
    for flaw, (outcome, message) in judged(lie).items():
        if flaw in said:
            assert outcome in ("fail", "error"), (flaw, message)
            assert said[flaw] in message
        else:
            assert outcome == "pass", (flaw, message)


@pytest.mark.parametrize(
    ("operation", "end", "flaws", "said"),
    [("build", "os._exit(3)", AT_BUILD, "exited with status 3"), ("run", "os.abort()", AT_RUN, "was ended by SIGABRT")],
)
def test_an_end_is_no_refusal(judged: Callable, operation: str, end: str, flaws: tuple[str, ...], said: str) -> None:
    """Another worker takes up the next check."""
    lie = f"""
    def refusal(self, operation, error):
        return {end} if operation == "{operation}" else super().refusal(operation, error)
    """
    for flaw, (outcome, message) in judged(lie).items():
        assert outcome == ("crash" if flaw in flaws else "pass"), (flaw, message)
        if flaw in flaws:
            assert said in message
            assert message.startswith(f"{flaw}: given ")


def test_one_that_refuses_everything_refuses_nothing(judged: Callable) -> None:
    said = judged("def output(self, x, masks, run):\n    raise ValueError('x does not please')")
    for outcome, message in said.values():
        assert outcome == "error"
        assert message == "before anything wrong was given: run: ValueError: x does not please"


def test_broken_by_what_it_refused(judged: Callable) -> None:
    lie = """
    broken = False

    def refusal(self, *asked):
        self.broken = asked[0] == "run"
        return super().refusal(*asked)

    def build(self, *asked):
        self.broken = False
        return super().build(*asked)

    def output(self, x, masks, run):
        if self.broken and x.shape == (2, 10, 24) and x.dtype == "float32" and masks.padding.shape[-1] == 10:
            os._exit(3)
        return super().output(x, masks, run)
    """
    said = judged(lie)
    for flaw in AT_RUN:
        outcome, message = said[flaw]
        assert outcome == "crash"
        assert message.startswith(f"{flaw}: after refusing ")
        assert "exited with status 3" in message
    assert [said[flaw][0] for flaw in AT_BUILD] == ["pass"] * 2


def test_a_refusal_that_fails_can_be_explained(conform: Callable, fake: Callable) -> None:
    folder = fake("liar", "def _check_fit(self, *given):\n    pass", checks="[refusal]", dtypes="[float32]")
    ended = conform("run", "--impl", folder, "--case", "pre-gelu/refuse-feature-size", "--dtype", "float32")
    assert ended.status == 1
    said = "feature_size: accepted x of 1 feature, where d_model is 24"
    assert f"pre-gelu/refuse-feature-size float32 refusal: fail: {said}" in ended.stdout
    explained = conform("explain")
    assert explained.status == 0, explained.stderr
    assert f"refusal: fail\n  {said}" in explained.stdout

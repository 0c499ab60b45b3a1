"""`conform check` of a layer of today with one thing beyond the classic one, and of two of its kind: what is due, in
status and words. What no layer can state is refused by name, with its line, and no advice that cannot work."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.release
HERE = Path(__file__).parent


class Due(NamedTuple):
    """Words that stand in the report, and words that do not."""

    status: int
    said: tuple[str, ...]
    unsaid: tuple[str, ...]


def right(*said: str, masks: bool = True) -> Due:
    """It is read, proved and judged; `masks`: with its padding, too."""
    covered = " and without" if masks else "without masks"
    return Due(0, ("This is a correct", covered, "up to 300 positions", *said), ("✗", "closest"))


def layers(*said: str) -> Due:
    """Its layers are right, and what it does around them is said to be not asked."""
    around = "what it does before, between and after them was not asked", " It was not judged itself: "
    return Due(0, ("This is a correct", *around, *said), ("✗",))


def beyond(*said: str) -> Due:
    """Refused, for what no layer can state."""
    return Due(
        2, ("It could not be judged: see above.", *said), ("This is a correct", "This layer is wrong", "--layer")
    )


def without(unsaid: str, *said: str) -> Due:
    """The same, without a reason that is not the one."""
    due = beyond(*said)
    return due._replace(unsaid=(*due.unsaid, unsaid))


def mistaken(*said: str) -> Due:
    return Due(1, ("This layer is wrong", "At: cases_", *said), ("does the work of",))


def refused(*said: str) -> Due:
    return Due(2, said, ("This is a correct", "This layer is wrong"))


SIDE_BY_SIDE = ("side by side, and not as x + attention(norm(x)) + feed_forward(norm(x)) (E-41)",)
EXPERTS = "it chooses among experts;", "cases_steps.py:"
BATCH = "it norms each feature over a batch (BatchNorm)", "cases_steps.py:"
CONVOLUTION = "there is a convolution in it", "cases_steps.py:"
DISTANCE = ("numbers by distance are added to the scores, of neither a table by buckets (E-23) nor ALiBi (E-43)",)
KEY = "a learned key beside those of positions"
OTHER_KEYS = ("there are keys and values beside those of the positions, otherwise than one of each head (E-44)",)
DECODER = "it is a layer of a decoder", "memory"
POSITIONS = "numbers that do not depend on x are added to it, as positions are", "cases_calls.py:"
ZEROS = "was given as zeros, and other values of it change the output", "it was asked without"
POOLED = "a mean, a maximum, a norm or a softmax is taken over the positions", "cases_gathered.py:"
STRANGERS = ("cases_strangers.py:",)
MISTAKES = ("cases_mistakes.py:",)
BRANCHES = ("it branches on numbers that it computes, and is read as it goes with usual ones",)
ADAPTIVE = ("gains and shifts of its norms are computed from another input (adaptive norms, adaLN)",)
HANDED_TO = 1 + next(
    number
    for number, line in enumerate((HERE / "cases_repositories.py").read_text().splitlines())
    if "# of queries" in line
)
SCALED = "attention's weights are multiplied by a number, as where", "cases_repositories.py:"
STACKED = ("cosines beside sines of theta 10000, float32 [sequence, d_head / 2, 2]",)
UNMAPPED = "what attention gives is taken as it is, without the linear map", "cases_repositories.py:"
OF_THE_BRANCH = ("the feed-forward network reads what attention gives, and not the residual sum",)
OF_THE_PART = (
    "true = ignore here",
    "(cases_jax.py:{})".format(
        1
        + next(n for n, line in enumerate((HERE / "cases_jax.py").read_text().splitlines()) if "# of the part" in line)
    ),
)

_OWN16 = """layer: own16
title: One of few features, scaled by the size of a head
clauses:
- L-1
family: small
part: encoder_layer
d_model: 16
norm:
  placement: pre
  kind: layer_norm
  epsilon: 1.0e-5
attention:
  num_heads: 2
  projections: full
  qkv_bias: true
  output_bias: true
  scale: 64
  rope: {theta: 10000.0, pairing: interleaved}
  masked_score: minus_infinity
  fully_masked_row: unspecified
feed_forward:
  d_ff: 24
  activation: gelu
  bias: true
dropout:
  attention_weights: 0.0
  attention_output: 0.0
  ffn_activation: 0.0
  ffn_output: 0.0
  embedded: 0.0
stack:
  layers: 1
  final_norm: false
embedding: null
padded_rows: unspecified
padding_content: finite
"""
"""A layer of no place in the specification."""


def line_of(remark: str, file: str = "cases_drawn.py") -> str:
    """The line of a file of cases that ends in this remark, as a report names it."""
    lines = (HERE / file).read_text().splitlines()
    return f"{file}:{1 + next(number for number, line in enumerate(lines) if line.endswith(remark))}"


def at(remark: str) -> str:
    """The place that a report names, of a line of planted bugs."""
    return f"At: {line_of(remark, 'cases_planted_lines.py')}"


OF_SOME = (
    "some of query, key and value read x, and some its norm",
    f"At: {line_of('# for some of three', 'cases_domains.py')}",
)
SERIES = "cases_series.py"
FILLED = line_of("# this one")
OF_A_PART, THROWN_AWAY = (f"{line_of(mark, 'cases_found.py')})" for mark in ("# of the part", "# thrown away"))
ONE_MAP = "its feed-forward network is one linear map", "return self.one(x)"
UNCALLED = "has no __call__", "name a module of yours whose __call__ calls encode"
NEEDED = {
    **dict.fromkeys(("cases_jax", "cases_jax_given", "cases_jax_held"), ("flax", "equinox", "jax2onnx")),
    "cases_keras": ("keras", "tf2onnx"),
    "cases_keras_graphs": ("keras", "tf2onnx"),
    "cases_keras_made": ("keras", "tf2onnx"),
}
"""File → what it needs; the others PyTorch and its exporter."""
COMPILED = (
    "it was given in torch.compile with the backend aot_eager: that and the module in it, which is read, are asked",
)
DUE: dict[str, dict[str, Due]] = {
    "cases_plain": {
        "Plain": right("pre-norm"),
        "PlainPost": right("post-norm"),
        "BeginsAsNothing": right("pre-norm"),
        "PlainByEinsum": right("pre-norm"),
    },
    "cases_guests": {
        "DrawnTooLarge": Due(0, ("This is a correct pre-norm", "no position sees a later one"), ("✗", "closest")),
        "NamesWhatItHasNot": right("pre-norm"),
        "AddsItsQueriesToItsKeys": without(
            "what is added to its scores",
            "its scores are no products of queries and keys, as of additive attention",
            f"At: {line_of('# of no product', 'cases_guests.py')}",
        ),
        "NormsItsKeysApart": beyond(
            "some of query, key and value read x, and some its norm, or another of its norms",
            f"At: {line_of('# of two norms', 'cases_guests.py')}",
        ),
        "HandsItOnInALoop": Due(
            1,
            ("padding is refused in every form", f"At: {line_of('# of the mask', 'cases_guests.py')}"),
            ("..",),
        ),
        "DividesByItsBatch": Due(
            2,
            (
                "but 1/√3, and x has 3 items in its batch: with another number of them it is another layer",
                f"At: {line_of('# of the batch', 'cases_guests.py')}",
            ),
            ("This is a correct",),
        ),
        "OfParts": right("post-norm", "x is given as [batch, sequence, parts, d_model / parts]", masks=False),
    },
    "cases_pairs": {
        "OfTwoAtLeast": right(
            f"it refuses one position itself ({line_of('# of one', 'cases_pairs.py')}): it is asked from 2 on"
        ),
        "BreaksAtOne": Due(1, ("This layer is wrong", "single-position"), ("it refuses",)),
        "FlagsOf32Bits": right("with mask (true = attend)"),
        "AddsHalves": right("with mask and without"),
        "AsItsModeSays": right("with padding_mask"),
        "NeedsAMode": refused("it needs mode beside inputs", "--with mode=VALUE (no array)"),
        "FlagsWhatIsValid": right("valid: true = ignore here, and true = attend wherever it is known (cases_"),
        "SkipsByAMean": without(
            "subtracted", "multiplies what skips the sub-layer", f"At: {line_of('# of both', 'cases_pairs.py')}"
        ),
        "SkipsByAGate": without(
            "subtracted", "a gate that is computed of x", f"At: {line_of('# by a gate', 'cases_pairs.py')}"
        ),
        "TakesItsNetworkAway": beyond("is subtracted from another", f"At: {line_of('# less it', 'cases_pairs.py')}"),
    },
    "cases_manners": {
        "SoftmaxInBaseTwo": Due(
            2,
            ("ffn_activation is missing", f"At: {line_of('# of nothing between', 'cases_manners.py')}"),
            ("no softmax",),
        ),
        "TakesItByKeys": right("pre-norm", "with padding_mask"),
        "WindowsOfEight": beyond("its scores are of fewer keys than there are positions"),
        "AnswersToItsCall": right("it is called with valid_lens: lengths"),
        "TurnedByAPair": right("it is called with rope: cosines and sines", "rope θ 10000 halves"),
        "TurnedAndInBuckets": right("rope θ 10000 halves", "position bias in 32 buckets up to 128"),
        "ValidInAnObject": right("x is 'features' of a mapping", "with valid (true = attend)"),
        "DistancesHeadByHead": without(
            "cannot be followed", *DISTANCE, f"At: {line_of('# by distance', 'cases_manners.py')}"
        ),
        "DoneWhereItSays": Due(
            2, ("it is called with done_mask: a mask that hides nothing, bool",), ("it returns its input",)
        ),
        "SecondMapOfQueries": without(
            "no argument that", "as LoRA's two are", f"At: {line_of('# of two maps', 'cases_manners.py')}"
        ),
        "CallsItsAngles": Due(
            2, ("'Tensor' object is not callable", f"{line_of('# called', 'cases_manners.py')}, in turned"), ()
        ),
        "PlacesBeforeALibrarys": beyond(
            "numbers that do not depend on x are added to it", f"At: {line_of('# of places', 'cases_manners.py')}"
        ),
        "HalvesAlone": Due(
            0, ("no argument that took an array hides a position", "added was not given"), ("no argument of it hides",)
        ),
        "TokenBefore": layers("x_mask (true = ignore) hides what it flags at the model's outputs, too"),
        "TokenBeforeUnmasked": Due(0, ("x_mask changes what the model gives",), ("which is of a whole item",)),
    },
    "cases_planted_lines": {
        "HalfPostNorm": beyond("the norm of attention stands before it, and that of the", at("# behind the sum")),
        "FirstDeviationTwice": mistaken(
            "Cause: norm1.a_2 is read for norm2.gain too, and norm2.a_2, of the same size, is read nowhere.",
            at("# by the first one"),
        ),
        "QueryOfANorm": without(
            "x is normed before the first layer", "some of query, key and value read x", at("# of queries alone")
        ),
        "KeepsWhatTurns": Due(2, ("residual2 is missing",), ("tensors that are no parameters",)),
        "ActivatesItsLastMap": beyond("an activation stands behind a map or a norm", at("# once more")),
        "SeesLaterKeysAlone": Due(2, ("a causal mask the other way round", at("# the other way round")), ()),
        "SkipsANormOfItsOwnName": beyond("what skips a sub-layer is normed", at("# in the place of x")),
        "SkipsWhatIsNormed": beyond("what skips a sub-layer is normed", at("# and its name")),
        "NoNormAtItsEnd": Due(2, ("a norm is missing", "no norm as norm2", at("# and no norm")), ()),
        "GroupedMaps": without("convolution", "a linear map takes some of the features alone", at("# of two groups")),
        "BiasedByPairs": Due(
            2,
            (
                "residual1 is missing",
                "pairs was not given, and changes the output",
                "[batch, sequence, sequence, d_model]",
            ),
            ("d_head",),
        ),
        "OfTwoTowers": Due(
            2, ("it attends to another sequence", "encoder_hidden_states, which its model gives it"), ("vectors",)
        ),
        "KeepsABias": right(f"({line_of('# for later calls', 'cases_planted_lines.py')}, forward", masks=False),
    },
    "cases_lines": {
        "SkipsNothingBeforeANorm": Due(
            2, ("residual2 is missing", f"At: {line_of('# without a skip', 'cases_lines.py')}"), ()
        ),
        "SkipsNothingBehindItsNetwork": Due(
            2, ("residual2 is missing", f"At: {line_of('# that adds nothing', 'cases_lines.py')}"), ()
        ),
        "SeesNothingAtTheEnd": Due(
            2,
            ("some positions are hidden from some others", f"At: {line_of('# the later alone', 'cases_lines.py')}"),
            (),
        )._replace(unsaid=("it takes no x", "more arguments")),
        "SoftmaxOverQueriesBesideAMask": Due(
            2,
            ("the softmax of the scores is over the queries", f"At: {line_of('# over the queries', 'cases_lines.py')}"),
            ("raises scores", "✗ mask"),
        ),
        "FirstConnectionTwice": mistaken(
            "attn_connection.layer_norm.std_hat is read for norm2.gain too",
            "ff_connection.layer_norm.std_hat, of the same size",
            "(norms-",
        ),
        "UnscaledBesideNormsOfItsOwn": Due(
            2, ("are multiplied by 1 before", f"At: {line_of('# undivided', 'cases_lines.py')}"), ()
        ),
        "QueryByAMapOfItsOwnClass": mistaken(
            "(query-from-key, 0", f"At: {line_of('# by the map of keys', 'cases_lines.py')}"
        ),
        "NoNormBeforeItsNetwork": Due(
            2, ("no norm as norm2", f"At: {line_of('# of what is not normed', 'cases_lines.py')}"), ()
        ),
        "MergedAcrossItems": Due(
            2,
            ("heads are put together without a transpose", f"At: {line_of('# of the items', 'cases_lines.py')}"),
            ("a product that goes",),
        ),
        "ShownInTheWrongPlace": right(
            f"true = ignore wherever it is known ({line_of('# the other way round', 'cases_lines.py')})"
        ),
    },
    "cases_planted": {
        "DropsBesideAMask": Due(
            1,
            ("it answers at random", f"At: {line_of('# always', 'cases_planted.py')}"),
            ("raises scores", "attention_mask changes", "another output", "differ:"),
        ),
        "QueryByTheMapOfKeys": mistaken(
            f"k.weight is read for attention.query.weight too ({line_of('# for the query', 'cases_planted.py')})",
            f"At: {line_of('# for the query', 'cases_planted.py')}",
        ),
        "KeyByTheMapOfQueries": mistaken(
            f"q.weight is read for attention.key.weight too ({line_of('# for the key', 'cases_planted.py')})",
            f"At: {line_of('# for the key', 'cases_planted.py')}",
        ),
        "MergedWithoutATranspose": Due(
            2,
            ("heads are put together without a transpose", f"At: {line_of('# of the rows', 'cases_planted.py')}"),
            (),
        ),
        "CutWithoutATranspose": Due(
            2, ("heads are cut without a transpose", f"At: {line_of('# of the heads', 'cases_planted.py')}"), ()
        ),
        "TheSameNormAgain": mistaken(
            f"norms.0.a_2 is read for norm2.gain too ({line_of('# once more', 'cases_planted.py')}), and norms.1.a_2",
        ),
    },
    "cases_mutants": {
        "Listed": right("pre-norm", masks=False),
        "GainOfListedNormAsShift": mistaken(
            "sublayer.0.norm.a_2 is read for norm1.shift too (cases_mutants.py:25), and sublayer.0.norm.b_2, of the",
            "sublayer.1.norm.a_2 is read for norm2.shift too (cases_mutants.py:25), and sublayer.1.norm.b_2, of the",
        ),
        "ShiftOfListedNormForgotten": mistaken("(cases_mutants.py:30): the norm adds no shift"),
        "GainOfListedNormForgotten": mistaken("(cases_mutants.py:35): the norm multiplies by no gain"),
        "ValueForQueryOfAList": mistaken("linears.2.weight is read for attention.query.weight too", "linears.0.weight"),
        "KeyForQueryWithoutBias": mistaken(
            "Cause: The queries are the keys: the query projection is never read", "and linears.0.weight, of the same"
        )._replace(unsaid=("linears.0.weight is\n", "linears.0.bias is read nowhere, and")),
        "OneOfAList": Due(
            1,
            ("linears.0.weight are one tensor: one part stands in a list more than once",),
            ("are the same numbers",),
        ),
        "AttentionIsNotUsed": Due(
            2,
            ("key_padding_mask is taken and hides no position", f"At: {line_of('# of the value', 'cases_mutants.py')}"),
            ("This layer is wrong",),
        ),
        "DropsAll": Due(1, ("in training: drop drops all that it is given: its rate is 1",), ()),
        "DropsAllByAFlag": Due(1, ("in training its output is another, and nothing is drawn",), ()),
        "ScaleIsNoParameter": refused("is none of its parameters, and cannot be set: it uses gamma, no parameter"),
        "KeyForValueOfAList": mistaken("linears.1.weight is read for attention.value.weight too", "linears.2.weight"),
    },
    "cases_tutorials": {
        "OfWords": layers("given src_mask, as OfWords makes and gives it", "with src_key_padding_mask"),
        "OfFewPositions": layers("post-norm", "up to 300 positions"),
        "OfFewEarlierPositions": layers("post-norm", "given src_mask", "up to 40 positions"),
        "AsksOfItsMask": right("pre-norm", "mask-added-minus-1e", f"({line_of('# lowered', 'cases_tutorials.py')})"),
        "CastsToFill": right("pre-norm"),
        "KeysInAColumn": right("pre-norm", "with mask (true = attend)"),
        "HandsArgumentsOn": right("post-norm", "made with --arg d_model=64 --arg nhead=4"),
        "NamesOneOfThem": right("post-norm", "F = 40", "made with --arg d_model=64 --arg nhead=4"),
        "KeepsTruths": right("pre-norm", masks=False)._replace(
            said=("This is a correct pre-norm", "up to 256 positions"), unsaid=("✗", "frozen (")
        ),
        "OfAllItsPositions": Due(0, ("This is a correct", "of 8 positions, with up to 17 items in"), ("✗", "up to 8")),
        "FillsEqualItems": Due(
            1,
            ("padding is refused: bool [batch, sequence] at batch", "it is taken at batch 1 and 4 alone"),
            ("in every",),
        ),
        "GivesItsWeights": layers("mask (true = attend) hides what it flags at the model's outputs, too"),
    },
    "cases_series": {
        "SeriesFirst": layers(
            "src_mask (true = ignore) hides what it flags at the model's outputs, too (bool [sequence, sequence])",
            "src_key_padding_mask (true = ignore) hides what it flags at the model's outputs, too (bool [batch, sequen",
            "but for what src_mask and src_key_padding_mask hide. ",
        ),
        "IdsFirst": layers("src_mask (true = ignore) hides what it flags at the model's outputs, too (bool [seque"),
        "ToOneOfTwo": Due(
            1,
            (
                "This is a correct pre-norm",
                "padding_mask changes what the model gives, and what it flags still reaches other positions",
                "ToOneOfTwo is wrong around these parts",
            ),
            ("was not asked: no way",),
        ),
        "MakesTheMaskOfIds": layers("with source_mask (true = attend) and without", "given source_mask, as")._replace(
            unsaid=("✗", "hides a position")
        ),
        "ScaledOnALineOfItsOwn": right("pre-norm", f"1/√16 ({line_of('# of all features', SERIES)})"),
        "TurnsByWhatItMakes": layers("rope θ 10000 halves", "given wheel, as TurnsByWhatItMakes makes and gives it"),
        "SaysWhatItWasGiven": refused("ValueError: no mode is called tensor(…)"),
    },
    "cases_found": {
        "AddsBothMasks": right("pre-norm", "with key_padding_mask and attn_mask and without"),
        "CallsForward": right("pre-norm", f"another number that hides as much ({OF_A_PART}"),
        "FillsNothingOfEachQuery": right(
            "masked_fill gives a new tensor, which is thrown away",
            f"hides no position (bool [batch, sequence, sequence]) ({THROWN_AWAY}",
            masks=False,
        ),
        "FillsWithNextToNothing": Due(
            1,
            (
                "mask changes what other positions get",
                "27 of 27 checks pass",
                "called with mask: a mask that hides nothing",
            ),
            ("pattern of its own", "could not be judged"),
        ),
        "TimesDistances": Due(
            2, ("other values of it change the output (float32 [batch, sequence, sequence])",), ("correct", "wrong")
        ),
        "SumsAttentionAlone": refused("network's sum adds what attention gives, and not the sum of", "(y + x)) + y)"),
        "SumsAttentionAlonePre": refused("network's sum adds what attention gives, and not the sum of"),
        "KeepsRowsAndNeedsScores": right(
            "post-norm", "non_pad_mask: a mask that hides nothing, bool [batch, sequence, 1] of 1", "with slf_attn_mask"
        ),
        "HoldsNoNumbers": right("pre-norm")._replace(unsaid=("✗", "closest", "nothing in the layer that was read")),
    },
    "cases_drawn": {
        "OneNormUnscaled": Due(
            2,
            ("are multiplied by 1 before the softmax", "say what it should be with --layer", "cases_drawn.py:"),
            ("Cause unknown", "This layer is wrong"),
        ),
        "ThreeBranches": beyond("more residual sums than the two of a layer", "return x + self.ffn(self.norm2(x))"),
        "OfSeveralInputs": right("post-norm", "x is the first of 2 arguments", "item 1 of inputs (true = ignore)"),
        "OfOneBatch": refused("its batch has to be 2, for which it was made: it takes x [2, 5, 16], and no [3, 5, 16]"),
        "NamesNoAttribute": Due(
            2, ("has no attribute 'h'", "that line names what is not there: mend it"), ("conform_inputs", "--with")
        ),
        "KeepsItsWeights": right("kept is changed by each call (cases_drawn.py:", "self.kept, y = self.weighted("),
        "FillsNothing": Due(
            1, (f"src_padding_mask is taken and hides no position (bool [batch, sequence]) ({FILLED})",), ()
        ),
        "FillsNothingBesideOneNorm": right(
            "6 warnings: masked_fill gives a new tensor, which is thrown away", masks=False
        ),
        "TiedOverItems": Due(
            2,
            ("an item of the batch changes another", "sums over the items of the batch"),
            ("heads are cut", "--layer"),
        ),
        "SeesLaterByNumbers": Due(
            2, ("by a pattern of its own", "to some queries all keys", f"At: {line_of('# the other half')}"), ()
        ),
        "ShrinksItsWindow": refused(
            "it took x, and at a later call it raised ValueError: its window", "whatever it was called with before"
        ),
        "PacksOneItem": Due(
            0,
            ("This is a correct pre-norm", "x is given as [1, positions of all items, d_model]", "cumulative lengths"),
            ("✗", "cu_seqlens: positions"),
        ),
        "HeadsMapTheirOwn": beyond("a linear map takes some of the features alone", "cases_drawn.py:"),
    },
    "cases_domains": {
        "HidesEveryFifth": beyond(
            "some positions are hidden from all others by a mask of its own",
            "those at 4, 9, 14, 19, 24, 29 …, counted from 0, are seen by no other: HidesEveryFifth.sees",
            f"At: {line_of('# of the buffer', 'cases_domains.py')}",
        ),
        "HidesTheSeventhWithoutABuffer": beyond(
            "those at 6, 13, 20, 27, 34, 41, counted from 0, are seen by no other)"
        ),
        "CausalUnlessTold": right(
            "no position sees a later one unless diagonal_mask is false: it is judged with"
        )._replace(said=("This is a correct", "unless diagonal_mask is false: it is judged with a causal mask")),
        "NormsTheQueryAlone": without("what skips", *OF_SOME, "the norm is read for query,"),
        "NormsKeysAndValues": without("what skips", *OF_SOME, "x itself is read for query,"),
        "NormsValues": without("what skips", *OF_SOME, "x itself is read for query and key,"),
        "SwitchedByAMask": right(
            f"attn_mask is true or false ({line_of('# of the switch', 'cases_domains.py')}), and no array",
            "with padding (true = ignore)",
        ),
        "AsksAMaskForItsTruth": Due(
            1, ("padding is refused in every form", "Boolean value of Tensor"), ("true or false",)
        ),
        "NormsWhatSkipsBesidePyTorchsOwn": beyond(
            "what skips a sub-layer is normed", f"At: {line_of('# of the norm', 'cases_domains.py')}"
        ),
        "RefusesNaNWhereItAttends": right("with attn_mask (true = attend)", "an item that is padding alone is refused"),
        "RefusesNaN": right("an item that is padding alone is refused: ArithmeticError: NaN in the weights ("),
        "FillsInAFunction": right(f"hides as much ({line_of('# of the function', 'cases_domains.py')})"),
    },
    "cases_repositories": {
        "ToldOfTraining": right("post-norm"),
        "TrainsUnlessTold": right("called without training=False it drops, as in training"),
        "AdaptiveOfContext": without("decoder", *ADAPTIVE, "context: numbers of each item, float32 [batch, 16]"),
        "AdaptiveOfTheLast": beyond(*ADAPTIVE, "c: numbers of each item, float32 [batch, 1, 16]"),
        "AdaptiveOfNorms": beyond(*ADAPTIVE, "cases_repositories.py:"),
        "AttendsToACondition": refused("it needs cond beside x, of a length of its own, and depends on it"),
        "ReadsOffItsKeywords": refused("it needs blocks, places beside x", "KeyError: 'places'"),
        "AttendsByShapes": Due(
            2, ("it is a layer of a decoder: it needs encoder_hidden_states beside x", "one sequence"), ("--with",)
        ),
        "AttendsToContext": refused("it is a layer of a decoder", "context"),
        "KeepsRowsByAMask": Due(
            0,
            ("This is a correct post-norm", "non_pad_mask: a mask that hides nothing", "with slf_mask (true = ignore)"),
            ("zeros of the shape of x",),
        ),
        "TurnedByPairsInTurn": right("rope θ 10000 interleaved"),
        "TurnedWhereItStands": right("rope θ 500 halves"),
        "ScaledWhereItStands": right("post-norm"),
        "NotInFloat64": right("it is not asked in float64: RuntimeError", "cases_repositories.py:"),
        "OverwrittenInPart": beyond("some elements of what depends on x are overwritten", "cases_repositories.py:"),
        "IdsOfSeveral": refused("it takes ids as turns, integers [batch, sequence]", "no part of it is a layer"),
        "OneTensorByManyNames": right("others.2.weight, others.3.weight and 2 more are one tensor"),
        "OfARectangle": right("x_size: the height and the width", masks=False),
        "OfARectangleByItsSize": right("size: the height and the width", masks=False),
        "HandsItsMaskOn": Due(1, ("padding hides queries, not keys", f"At: cases_repositories.py:{HANDED_TO}"), ()),
        "FirstKeyWritten": beyond("as of a class token", "are overwritten with numbers", "cases_repositories.py:"),
        "LastHeadOff": refused(*SCALED, "head 2 0 in sum"),
        "HalfOfTheFirstHead": refused(*SCALED, "head 0 0.5 in sum"),
        "NoMapOfHeads": beyond(*UNMAPPED),
        "NoMapOfHeadsPost": beyond(*UNMAPPED),
        "NormedHeadByHead": without("turned by", "are normed with a gain for each head", "cases_repositories.py:"),
        "AnglesWhereHeadsAreNormed": right("position_embeddings: cosines and sines of theta 10000", "of query and key"),
        "NetworkOfOneMap": without("after ffn_activation", *ONE_MAP),
        "NetworkOfOneMapPost": without("after ffn_activation", *ONE_MAP),
        "NetworkOfTheBranch": Due(2, (*OF_THE_BRANCH, "pass --layer", "(y)) # of attention"), ("more residual sums",)),
        "NetworkOfTheBranchPost": Due(2, (*OF_THE_BRANCH, "pass --layer", "cases_plain.py:"), ("has no key",)),
        "OneOfItsNorms": refused(
            "norm2 is layer_norm with epsilon 1e-12", "At: cases_", "norm1 is layer_norm with epsilon 1e-05"
        ),
        "Differential": beyond("is subtracted from another", "return both[0] - both[1]"),
        "RowsAndColumnsByAType": right("feat_size: the height and the width", masks=False),
    },
    "cases_blocks": {
        "OfPatches": right("post-norm", "x is given as [batch, 1, sequence, d_model]", masks=False),
        "AlongTime": right("post-norm", "x is given as [batch, sequence, 1, d_model]", masks=False),
        "ScoresAsWeights": beyond("attention's weights are no softmax of the scores", "cases_blocks.py:"),
        "ScoresAsWeightsByEinsum": beyond("attention's weights are no softmax of the scores", "cases_blocks.py:"),
        "HeadsAttendToEachOther": beyond("no position attends to another: the heads of each", "cases_blocks.py:"),
        "CausalMaskThrownAway": right(
            "post-norm", "masked_fill gives a new tensor, which is thrown away", "cases_blocks.py:", masks=False
        ),
        "WideWithDropout": Due(0, ("This is a correct pre-norm", "up to 256 positions"), ("✗",)),
        "NeedsAMaskOfAnotherName": right("post-norm", "slf_attn_mask: a mask that hides nothing, bool"),
        "ConvolutionsBesideAMask": without(
            "batch · heads", "there is a convolution in it", "slf_attn_mask changes the output", "cases_blocks.py:"
        ),
        "NoMapsOfHeads": beyond("query, key or value is x itself, without a linear map", "cases_plain.py:"),
        "FromTheFirstPosition": right("rope θ 10000 interleaved", "start_pos: 0, as of the first position"),
        "OfWhatIsDecoded": refused("it needs spoken beside heard, of a length of its own, and depends on it"),
        "WeightsOfEachItem": right("post-norm"),
        "SecondEpsilon": refused("norm2 is layer_norm with epsilon 0.001 (first at", "At: cases_plain.py:"),
        "NeighboursInThePlaceOfAttention": beyond(
            "a mean, a maximum, a norm or a softmax is taken over the positions", "cases_blocks.py:"
        ),
        "FirstMapForAll": Due(1, ("The first item's mask serves the whole batch", "(mask-of-first-item"), ("unknown",)),
        "HeadsCutByReshape": Due(
            2, ("heads are cut without a transpose", "cases_blocks.py:"), ("hides another position", "✗ padding")
        ),
        "HeadsTurnedAtTheEndAlone": beyond("no position attends to another: the heads of each", "cases_blocks.py:"),
        "SoftmaxOverHeads": refused("the softmax of the scores is over the heads", "cases_blocks.py:"),
        "SoftmaxOverItems": refused("the softmax of the scores is over the items of the batch", "cases_blocks.py:"),
        "OutputWithoutItsBias": Due(
            1, ("o.bias is read nowhere (cases_blocks.py:", "(attention-output-bias-missing,"), ("unknown",)
        ),
        "ValueBehindTheWeights": Due(
            1, ("w_vs.weight does the work of attention.output.weight", "that of attention.value.weight"), ("unknown",)
        ),
        "SkipsBothBranches": refused("network's sum adds x, and not what attention's sum gives", "cases_blocks.py:"),
        "SkipsBothBranchesPre": refused("network's sum adds x, and not what attention's sum gives", "cases_blocks.py:"),
        "KeyNotTurned": refused("query is turned by its position, and key is not", "cases_blocks.py:"),
        "ManyHeadsAttendToEachOther": beyond("no position attends to another: the heads of each", "cases_blocks.py:"),
        "ChannelsCutByView": Due(2, ("heads are cut without a transpose", "cases_blocks.py:"), ("cannot be exported",)),
        "ValueOfTheKeysChannels": Due(
            1, ("k.weight is read for attention.value.weight too", "(value-from-key,"), ("unknown", "swapped")
        ),
        "HeadsByThemselves": right("pre-norm"),
        "HeadsByThemselvesWithoutASkip": refused("residual1 is missing", "At: cases_blocks.py:"),
        "OneHeadTwice": refused("heads.0.query.weight", "stand in it more than once", "At: cases_blocks.py:"),
        "HiddenBehindTheSoftmax": Due(
            1, ("hides", "it is judged without", "the softmax", "cases_blocks.py:"), ("unknown",)
        ),
        "HiddenByAZero": Due(1, ("what it flags", "the softmax", "cases_blocks.py:"), ("unknown",)),
        "FirstNormForgotten": Due(1, ("norm1.weight is read nowhere, and norm2.weight is (cases_blocks.py:",), ()),
        "FirstNormForgottenByName": Due(1, ("network_norm.weight is (cases_blocks.py:", "one sub-layer alone"), ()),
        "PadIgnored": right("pad is taken and hides no position", masks=False),
        "PadHidesQueries": Due(1, ("pad hides queries, not keys", "cases_blocks.py:"), ("unknown",)),
        "BareBiasOfALayerForgotten": Due(1, ("layer_0_bo is read nowhere, and layer_0_wo is (",), ("unknown",)),
        "BareBiasForgotten": Due(1, ("bo is read nowhere, and wo is (cases_blocks.py:",), ("unknown",)),
    },
    "cases_kept": {
        "WritesIntoACache": right("layer_cache: an empty dict", masks=False),
        "WritesInThePlaceOfX": right("x is 'x' of a mapping", masks=False),
        "CalledByItsMethod": refused("CalledByItsMethod has no forward", "whose forward calls encode"),
        "TakesThreeCalls": Due(2, ("it took x, and at a later call it raised", "cases_kept.py:"), ("could not be",)),
    },
    "cases_attention": {
        "Rope": right("rope θ 10000 halves"),
        "RopeOfPairs": right("rope θ 10000 interleaved"),
        "RopeOfComplexNumbers": right("rope θ 10000 interleaved"),
        "RopeOfComplexNumbersMadeHere": right("rope θ 10000 interleaved"),
        "RopeOfMatrices": right("rope θ 10000 interleaved"),
        "RopeOfWholeMatrices": right("rope θ 10000 interleaved"),
        "RopeByASignedPermutation": right("rope θ 10000 halves"),
        "RopeOfACache": right("rope θ 10000 interleaved", *STACKED, masks=False),
        "RopeOfStackedTurns": right("rope θ 10000 interleaved", *STACKED, masks=False),
        "ValuesTurnedToo": refused("a rotation by position (interleaved, all 8 features, theta 10000) after value"),
        "FlexAttention": right("it calls FlexAttention, of which PyTorch's own definition was asked"),
        "FlexAttentionOfBlocks": right("with block_mask (true = attend) and without"),
        "FlexAttentionOfAMask": right("with mask (true = attend) and without"),
        "RopeOfAPart": right("rope θ 500 halves, 8 of 16 features"),
        "GQA": right("2 heads of key and value"),
        "OneHeadOfKeys": right("1 head of key and value"),
        "GroupsByEinsum": right("2 heads of key and value"),
        "QKNorm": right("layer_norm of query and key over each head"),
        "QKNormRMS": beyond("the norms differ: query_heads_norm is rms_norm with epsilon 1e-06"),
        "QKNormOfAllHeads": right("layer_norm of query and key over all heads"),
        "RelativeBias": right("pre-norm", "position bias by distance up to 7"),
        "RelativeBiasOfHeads": beyond(*DISTANCE),
        "ALiBi": right("pre-norm", "ALiBi"),
        "ALiBiSubtracted": right("pre-norm", "ALiBi"),
        "Window": right("window 2 before and 2 after"),
        "WindowOfTwoSides": right("window 3 before and 1 after"),
        "WindowBehind": Due(
            0,
            ("window 4 before and 0 after", "judged with a causal mask", "with padding (true = ignore) and without"),
            ("hides no",),
        ),
        "WideHeads": right("heads of 16"),
        "NarrowHeads": right("heads of 4"),
        "MapOfEachHeadInTurn": without(
            "at one position than", "one linear map takes the features of each head in turn", "cases_attention.py:"
        ),
        "WideHeadsOfOneMap": right("heads of 12"),
        "Filled": right("pre-norm"),
        "FilledByWhere": right("post-norm"),
        "FilledWithLowest": right("pre-norm"),
        "MaximumBeforeMask": right("pre-norm"),
        "DividedBehind": refused("attention's weights are divided by their sum after the product with the values"),
        "OneMoreInTheSum": beyond("as of a sigmoid, a ReLU, or a softmax whose sum has a term more"),
    },
    "cases_distances": {
        "OfDistance": right("pre-norm", "position bias by distance up to 7"),
        "OfTurnedDistance": Due(
            0, ("This is a correct pre-norm", "by distance up to 63", "up to 64 positions"), ("✗",)
        ),
        "OfDistanceByHeads": right("post-norm", "position bias by distance up to 7"),
        "OfTwiceTheLength": Due(
            0, ("This is a correct pre-norm", "by distance up to 31", "up to 32 positions"), ("✗",)
        ),
        "OfAnIndex": Due(0, ("This is a correct pre-norm", "by distance up to 11", "of 12 positions"), ("✗",)),
        "OfDistanceEitherWay": beyond(*DISTANCE, "cases_plain.py:"),
        "OfDistanceOneRowOff": beyond(*DISTANCE, "cases_plain.py:"),
        "OfDistanceHeadsNotTransposed": refused("heads are put together without a transpose", "cases_distances.py:"),
        "StackOfDistances": right("position bias by distance up to 7", "3 layers"),
    },
    "cases_alibi": {
        "LosesByDistance": right("pre-norm", "ALiBi"),
        "OfThreeHeads": right("post-norm", "ALiBi"),
        "OfOneSequence": right("pre-norm", "ALiBi"),
        "KeptForTheLongest": right("pre-norm", "ALiBi"),
        "GivenToTheKernel": right("pre-norm", "ALiBi"),
        "LosesCausally": Due(0, ("This is a correct pre-norm", "ALiBi", "it is judged with a causal mask"), ("✗",)),
        "HandedToEachLayer": layers(
            "post-norm", "with bias and without", "attention_mask (true = attend) hides what it flags"
        ),
        "GainsByDistance": mistaken("position-bias-subtracted"),
        "GainsBehindTheQuery": mistaken("buckets-turned-about"),
        "LosesByOneSlope": mistaken("position-bias-of-first-head"),
        "SlopesFromOne": beyond(*DISTANCE, "by slopes 1, 0.0625 of its heads; ALiBi's are 0.0625, 0.003906"),
        "SlopesThatAreLearned": beyond(*DISTANCE, "cases_plain.py:"),
    },
    "cases_appended": {
        "AddsBiasKV": right("pre-norm", KEY),
        "AddsZeros": right("pre-norm", "a zero key beside those of positions"),
        "KeyByHandPost": right("post-norm", KEY),
        "KeyOfGroupedHeads": right("pre-norm", "1 head of key and value", KEY),
        "NullKeyFirst": right("pre-norm", KEY),
        "KeyWithCausalMask": Due(0, ("This is a correct pre-norm", KEY, "it is judged with a causal mask"), ("✗",)),
        "StackWithKeys": right(KEY, "2 layers, final norm"),
        "KeyThatMasksHide": mistaken("appended-key-hidden"),
        "MaskFilledInFront": mistaken("padding hides another position than it flags: that +1 further"),
        "KeyAndValueExchanged": Due(
            1, ("This layer is wrong", "bias_v does the work of attention.appended_key.vector"), ()
        ),
        "FusedPathLosesIt": Due(1, ("This layer is wrong", "PyTorch's fused path and its own code differ", KEY), ()),
        "KeysAreMadeAndNotRead": Due(0, ("attention.bias_k", "change nothing in the layer"), (KEY, "✗")),
        "KeyFirstAndValueLast": beyond(*OTHER_KEYS, "the key stands at one end, and the value at the other"),
        "TwoKeys": beyond(*OTHER_KEYS, "cases_appended.py:"),
        "AddsBoth": beyond(*OTHER_KEYS, "cases_appended.py:"),
        "MergedAsItLies": refused("without a transpose", line_of("as it lies", "cases_appended.py")),
        "SkipsNothing": refused("residual1 is missing", line_of("no skip", "cases_appended.py")),
    },
    "cases_arranged": {
        "ResPostOfRMS": right("res-post-norm", "rms_norm"),
        "StackOfResPost": right("res-post-norm", "3 layers"),
        "ResPostWithoutItsSecondNorm": refused(
            "a norm is missing, or another function stands in its place", "no norm as ffn_output_norm", "--layer"
        ),
        "GatedParallel": right("parallel sub-layers with one norm, gated, rope", "change nothing in the layer"),
        "StackOfParallel": right("parallel sub-layers with one norm, gated, rope", "3 layers, final norm"),
        "ParallelAndScaled": right("parallel sub-layers with two norms, branches times 0.5"),
        "ParallelWithoutX": beyond(*SIDE_BY_SIDE),
        "ParallelNetworkOfX": refused("a norm is missing", "no norm as norm2", "--layer"),
        "ParallelThenNormed": beyond(*SIDE_BY_SIDE),
        "ParallelHeadsNotTransposed": refused("heads are put together without a transpose", "cases_arranged.py:"),
    },
    "cases_steps": {
        "HalfANetworkFirst": without(
            "without attention", "it has more residual sums than the two of a layer", "cases_steps.py:"
        ),
        "LearntScale": refused(
            "the scores are multiplied by scale, a parameter; in the specification by a number (E-5)",
            "At: cases_steps.py:",
        ),
        "SwiGLU": right("silu, gated"),
        "OneMapOfGateAndUp": right("silu, gated"),
        "GeGLU": right("gelu_tanh, gated"),
        "LayerScale": right("layer scale of attention and feed_forward"),
        "LayerScaleInModules": right("layer scale of attention and feed_forward"),
        "LayerScaleOfOne": right("layer scale of feed_forward"),
        "Parallel": right("pre-norm", "parallel sub-layers with two norms"),
        "ParallelOfOneNorm": right("pre-norm", "parallel sub-layers with one norm"),
        "ParallelRMS": right("pre-norm", "parallel sub-layers with two norms", "rms_norm"),
        "Cross": refused(*DECODER, "cases_steps.py:"),
        "decoder_of_pytorch": refused(*DECODER),
        "CrossIfAsked": Due(0, ("memory was not given, and changes the output", "asked without memory"), ("✗",)),
        "MoE": beyond(*EXPERTS),
        "MoEOfTwo": beyond(*EXPERTS),
        "MoESoft": beyond("it has more products of what depends on x than attention's two", "cases_steps.py:"),
        "AutocastInside": refused("its weights are rounded to bfloat16 in each call, as under autocast"),
        "BatchNorm": beyond(*BATCH),
        "BatchNormOfOne": beyond(*BATCH),
        "BatchNormByHand": refused("another function stands in its place", "cases_steps.py:"),
        "ConvFFN": without("hides no position from attention", "still reaches other positions", *CONVOLUTION),
        "ConvBetween": beyond(*CONVOLUTION),
        "ConvBehind": beyond(*CONVOLUTION),
        "ConvBehindGate": beyond(*CONVOLUTION),
        "Pointwise": right("gelu"),
        "PointwiseOfRows": right("post-norm", "relu"),
        "PointwiseAttention": right("pre-norm"),
        "HandNorm": right("layer_norm ε 1e-12"),
        "HandNormPost": right("post-norm layer_norm ε 1e-12"),
        "hand_norm": right("layer_norm ε 1e-08"),
        "HandNormUnbiased": right("a choice of its own, norm-unbiased-variance:", "forward alone"),
        "WideAnnotated": right(
            "norm-unbiased-eps-outside-root", "or another number that hides as much", "cases_steps.py:"
        ),
        "HandNormOutside": right(
            "a choice of its own, norm-eps-outside-root:", "biased one (cases_steps.py:", "gradients are not judged"
        ),
        "HandNormOfChannels": right("layer_norm ε 1e-06", "[batch, d_model, height, width]", masks=False),
        "NormsWithoutParameters": right("layer_norm ε 1e-06", "it has no norm1.gain"),
        "NormOfGroups": beyond("it norms over positions, too (GroupNorm, InstanceNorm)", "cases_steps.py:"),
        "SquashedForNorms": refused("another function stands in its place, as a dynamic tanh", "cases_steps.py:"),
        "GrowsAsItTurns": refused(
            "a rotation that grows or shrinks with the position, as xPos has it", "cases_steps.py:"
        ),
        "FillsItsScoresUp": beyond("attention's weights are no softmax", "an attention sink", "cases_steps.py:"),
        "DividesByLength": refused("divides by the length of a row (an L2 norm)", "cases_steps.py:"),
        "AddsItsValues": beyond("more residual sums than the two", line_of("# one more", "cases_steps.py")),
        "NeedsAPackage": Due(2, ("No module named 'flash_attn'", "pip install flash-attn"), ("This is",)),
        "KeysOfNoPositionTurned": beyond(*OTHER_KEYS, "normed or turned", "cases_steps.py:"),
        "WritesItsWeights": refused("a call writes into its own parameter up.weight", "clamp_ in cases_steps.py:"),
        "NeedsCuda": refused("it needs CUDA, and is called on the CPU", "takes tensors on CUDA", "cases_steps.py:"),
        "RaisesItsOwn": refused("_Own: no licence for this host", "cases_steps.py:"),
        "EndsItsProcess": refused("it ends its own process, by SystemExit: 0", "cases_steps.py:"),
    },
    "cases_calls": {
        "TurnedByAnEncoding": right("rope θ 10000 interleaved", "encoding: cosines and sines of theta 10000"),
        "ChannelsFirst": right("x is given as [batch, d_model, sequence]"),
        "ChannelsFirstPost": right(
            "x is given as [batch, d_model, sequence]", "with x_mask (true = attend) and without"
        ),
        "ChannelsFirstByConvolutions": right("x is given as [batch, d_model, sequence]", masks=False),
        "OneMaskOrAnother": right("padding_mask is ignored where attention_mask is given", "without padding_mask"),
        "MaskAmongOthers": right("mask: a mask that hides nothing", "with mask (true = attend)"),
        "OneSegment": right("segment_ids: one segment for all positions", "with segment_ids (true = attend)"),
        "SequenceFirst": right("x is [sequence, batch, d_model]", "pre-norm"),
        "sequence_first_of_pytorch": right("with src_mask (true = ignore) and src_key_padding_mask and without"),
        "SequenceFirstByEinsum": right("post-norm"),
        "Map2D": right("x is given as [batch, height, width, d_model]", masks=False),
        "Map2DChannelsFirst": right("x is given as [batch, d_model, sequence]", masks=False),
        "Map3D": refused("it takes no x [3, 5, d_model]", "IndexError", "cases_calls.py:"),
        "TupleOut": right("pre-norm"),
        "TupleOutLast": right("post-norm"),
        "ListOut": right("pre-norm"),
        "DataclassOut": right("pre-norm"),
        "NamedTupleOut": right("post-norm"),
        "MappingOut": right("pre-norm"),
        "PackedBySearch": right("cu_seqlens: cumulative lengths, int32 [batch + 1]", masks=False),
        "Packed": right("cu_seqlens: cumulative lengths, int32 [batch + 1]", masks=False),
        "PackedInABatch": Due(
            2,
            ("max_seqlen: the length", "it cannot be exported to ONNX"),
            ("encoder_conformance/", "This is a correct"),
        ),
        "PackedByNumbers": refused("it needs segment_ids beside x", "--with segment_ids=VALUE"),
        "Lengths": right("lengths: lengths, int64 [batch]", "with lengths and without"),
        "LengthsIfAny": right("src_lengths: lengths, int64 [batch]", "with src_lengths and without"),
        "LazyOfLengths": right("valid_lens: lengths, int64 [batch]", "with valid_lens and without"),
        "LengthsAsParts": right("lengths as parts of the longest, float32 [batch]", "with wav_lens and without"),
        "NeedsPositions": beyond("positions: positions, int64 [batch, sequence]", *POSITIONS),
        "PositionsAddedToQueries": right("post-norm", "pos: zeros of the shape of x", *ZEROS),
        "PositionsCalledQueries": right("post-norm", "object_queries: zeros of the shape of x", *ZEROS),
        "PositionsAddedBehindTheNorm": right("pre-norm", "query_pos: zeros of the shape of x", *ZEROS),
        "PositionsOfAnOddNetwork": without("multiplied by 2", "its activation is none that a layer may have", "tanh("),
        "FramesOfVideos": refused("its batch has to be a multiple of 4", "[4, 5, 16], and no [3, 5, 16]"),
        "LooksAtAnImage": refused("it needs visual beside x, of a length of its own, and depends on it"),
        "CosinesAndSinesGiven": right(
            "position_embeddings: cosines and sines of theta 10000, float32 [batch, sequence, d_head]", "rope θ 10000"
        ),
        "TurnsOfAPositionEmbedding": right("position_embeddings: turns of theta 10000", "interleaved", masks=False),
        "TurnsGiven": right("freqs_cis: turns of theta 10000", "rope θ 10000 interleaved", masks=False),
        "LengthsInAList": right("src_len: lengths, int64 [batch]", "with src_len and without"),
        "OfAGraph": right("adj: a mask that hides nothing, bool [batch, sequence, sequence]", "with adj (true ="),
        "FartherIsLess": right("distances: a bias that adds nothing", "without distances", masks=False),
        "MasksInAList": right("attn_masks is given as a list of one mask", "with attn_masks (true = attend)"),
        "MasksOfEachQueryInAList": right("adjacency_masks is given as a list of one mask", "with adjacency_masks"),
        "StateInAndOut": right("x is 'x' of a mapping", "with mask (true = attend)"),
        "FirstOfTwo": right(
            "x is the first of a tuple of 2", "1: a mask that hides nothing", "with item 1 of inputs (true = attend)"
        ),
        "TurnsOfOneSequence": right("x is given as [sequence, d_model], item by item", masks=False)._replace(
            unsaid=("✗", "these parts of", "closest")
        ),
        "AnglesOfSequenceFirst": right("rotary_pos_emb: angles of theta 10000, float32 [sequence, 1, 1, d_head]"),
        "AnglesOfRows": right(
            "rotary_pos_emb: angles of theta 10000, float32 [positions of all items, d_head / 2]", masks=False
        ),
        "LengthsOfSequenceFirst": right(
            "x is given as [sequence, batch, d_model]", "with src_lengths and without", "src_lengths: lengths"
        ),
        "ValidOfSequenceFirst": right("x is given as [sequence, batch, d_model]", "valid: lengths, int64 [batch]"),
        "FirstOfTwoOrMore": right("x is the first of a tuple of 2", "with item 1 of inputs (true = attend)"),
        "FirstOfAny": right("x is the first of a tuple of 2", "with item 1 of inputs (true = attend)"),
        "GoesFurther": refused(
            "it needs positions beside x; given positions", "has no attribute 'offset_of_the_first'", "cases_calls.py:"
        ),
        "TokenIds": layers("layers.0", "layers.1: the same code and settings"),
        "TokenIdsOfLooseParts": refused("it takes ids as input_ids, integers [batch, sequence]", "no part of it is a"),
        "TokenIdsPooled": layers("encoder.0", "post-norm"),
        "Patches": layers("blocks.0"),
    },
    "cases_pool": {
        "LacksItsNetwork": Due(2, ("has no attribute 'of_text'",), ("it is attention without",)),
        "TurnedByTheirTables": right("rope θ 10000 interleaved", "[batch, sequence, d_head], each twice in a row"),
        "ExpertsAlone": Due(2, ("it chooses among experts",), ("an item of the batch changes another",)),
        "SummedBeforeTheSkip": right("pre-norm", "parallel sub-layers with two norms"),
        "ShapesLeftOut": refused("it needs mask, shapes beside x", "not iterable", "--with shapes=VALUE"),
        "BlocksLeftOut": refused("it takes no x without blocks", "must be Tensor, not NoneType", "--with blocks=VALUE"),
        "AttendsToAKey": right("pre-norm", "it is called with key: x again", masks=False),
        "PositionsBoundWhereGiven": right("post-norm", "object_queries: zeros of the shape of x", *ZEROS),
        "RowsSqueezed": right(
            "rope θ 10000 halves",
            "cos_sin: cosines and sines of theta 10000, float32 [positions of all items, d_head]",
            masks=False,
        ),
        "PReLU": beyond("its activation is none that a layer may have", "cases_pool.py:"),
        "GatedBySoftmax": beyond("a softmax is taken over the features of each position", "cases_pool.py:"),
        "AttentionAlone": beyond("it is attention without a feed-forward network behind it", "cases_plain.py:"),
        "NetworkAlone": beyond("it is a feed-forward network without attention before it", "cases_pool.py:"),
        "FilledByNothing": right(
            "rms_norm", "norm1.weight and norm2.weight hold NaN or infinity", "position_bias: a bias that adds nothing"
        ),
        "OfFewPositions": Due(0, ("This is a correct", "up to 6 positions"), ("✗",)),
        "HoldsItsAttention": beyond(
            "its activation is none that a layer may have", "language was not given, and changes the output"
        ),
        "HoldsCrossAttention": refused("it is a layer of a decoder", "encoder_hidden_states", "cases_pool.py:"),
        "ConvolvedBehindAttention": without(
            "hides no position from attention", "what it flags still reaches other positions", *CONVOLUTION[:1]
        ),
        "GatedNetworkAlone": beyond("it is a feed-forward network without attention before it", "cases_pool.py:"),
        "GroupsOfFeatures": beyond("other weights for each group of features", "weights [2, 8, 8]", "cases_pool.py:"),
        "NormsOfOneFile": right("res-post-norm"),
        "OfPairs": refused(
            "it needs pairs beside x, and with None it fails", "not enough values to unpack", "--with pairs=VALUE"
        ),
        "ConvolutionsAlone": refused("blocks.0.0 is a convolution, and no part", "encoder layer (cases_pool.py:"),
        "MaskOfAMap": right("mask is given as [batch, height, width]", "with mask (true = ignore) and without"),
        "MaskSubtracted": Due(1, ("the sign of attention_mask is flipped", "At: cases_pool.py:"), ("in a part",)),
        "MaskAddedOverQueries": Due(2, ("the softmax of the scores is over the queries",), ("is flipped", "in a part")),
        "MergedForAMapAlone": Due(
            2, ("given x as [batch, sequence, d_model] it raises", "cases_pool.py:"), ("This is a correct",)
        ),
        "MaskIgnored": Due(
            1, ("padding_mask is taken and hides no position", "]) (cases_pool.py:", "At: cases_pool.py:"), ()
        ),
        "ExpertsOfRows": without("an item of the batch changes another", *EXPERTS[:1], "cases_pool.py:"),
        "HoldsAnother": right("6 parameters, cross.query.weight,", "change nothing in the layer that was read"),
    },
    "cases_gathered": {
        "OneQuery": without("feed-forward network multiplies", "as of a class token", "cases_gathered.py:"),
        "OneQueryOfOneMap": without("feed-forward network multiplies", "as of a class token", "cases_gathered.py:"),
        "GatedSkips": without("a norm is missing", "stands in the place of a residual sum", "cases_gathered.py:"),
        "KeysForValues": Due(1, ("of the same size, is read nowhere", "At: cases_gathered.py:"), ()),
        "HeadsMergedInPlace": beyond("what heads give is put together without a transpose", "cases_plain.py:"),
        "ConvolvedAcrossPositions": without(
            "[batch, d_model, sequence]", "there is a convolution in it", "cases_gathered.py:"
        ),
        "Excited": beyond(*POOLED),
        "WithTheLargest": beyond(*POOLED),
        "NormedOverPositions": beyond(*POOLED),
        "Skewed": beyond("a column to its scores, to shift them by distance", "cases_gathered.py:"),
        "MasksOfThreeForms": right("post-norm", "self_attn_bias", "self_attn_mask", "key_padding_mask"),
        "OfValuesKeysAndQueries": right("it is called with keys: x again; queries: x again", "mask (true = attend)"),
        "AttendsToASource": right("it is called with source: x again", "source_mask (true = attend)"),
        "ReadsBothSideBySide": beyond("are put side by side (concatenated)", "cases_gathered.py:"),
        "GivesEachLayer": right("2 layers", "32 of 32 parameters", "a list of 2"),
        "HeadsSummed": right("pre-norm", "H = 2", "16 of 16 parameters"),
        "ItemByItem": right("post-norm", "16 of 16 parameters", "with padding (true = ignore) and without"),
        "NetworkInChunks": right("pre-norm", "16 of 16 parameters", "with padding (true = ignore) and without"),
        "KeysOfFewerPlaces": beyond("a linear map is taken over the positions, as in Linformer", "cases_gathered.py:"),
        "RecurrentNetwork": beyond("there is a recurrent network in it", "cases_gathered.py:"),
        "ShiftsOfZeros": right("layer_norm ε 1e-05", "14 of 14 parameters"),
        "MapOfNothing": right("post-norm")._replace(unsaid=("✗", "closest", "change nothing")),
        "MaskOfAllHeads": right("attn_mask: a mask that hides nothing, bool [batch · heads, sequence, sequence]"),
    },
    "cases_strangers": {
        "HeadByHeadOfTheNext": refused("by a pattern of its own", "1 after it", *STRANGERS),
        "NormsByLength": right("rms_norm ε 1e-24", "it has no norm1.gain"),
        "NormsByTheRootAndShifted": without(
            "is read nowhere", "an RMSNorm adds a vector to what it gives", "At: cases_strangers.py:"
        ),
        "NormsWithoutEpsilon": refused("norm1 adds an epsilon of 0 (none is added)", "gives NaN"),
        "NormsGivenNoEpsilon": Due(
            0,
            ("This is a correct", "were given no epsilon, and take that of the format", "is float32's own"),
            ("is cast", "✗"),
        ),
        "QueriesByLength": right("rms_norm of query and key over each head", "attention.scale is 1/√0.64"),
        "QueriesByLengthAlone": beyond(
            "the norms differ: query_heads_norm is rms_norm with epsilon 1e-24", "norm1 is layer_norm", "cases_strang"
        ),
        "HandNormAndRope": right("layer_norm ε 1e-12", "rope θ 10000 halves"),
        "TruthsAdded": right("attn_mask is taken as bool", "and hides nothing then: it is added"),
        "ScaleOfANumber": Due(
            2, ("(temperature changes it, and is part of no step)",), ("are multiplied by", "This layer is wrong")
        ),
        "WithoutPadding": right("post-norm", "with padding (true = ignore) and without"),
        "OfThreeItems": refused("its batch has to be a multiple of 3: it takes x [3, 5, 24], and no [4, 5, 24]"),
        "OfFivePositions": Due(0, ("This is a correct post-norm", "of 5 positions"), ("✗",)),
        "SortedByLength": right("post-norm", "with padding (true = ignore) and without"),
        "Chunked": right("post-norm", "with padding (true = ignore) and without"),
        "FilledUp": right("post-norm", "with padding (true = ignore) and without"),
        "HeadsInALoop": right("pre-norm", "16 of 16 parameters", "with padding (true = ignore) and without"),
        "HeadByHead": right("pre-norm", "13 of 13 parameters", "H = 2", "with padding (true = ignore) and without"),
        "HeadByHeadFused": right("pre-norm", "13 of 13 parameters", "with padding (true = ignore) and without"),
        "HeadByHeadExchanged": Due(
            1, ("heads.0.key.weight does the work of attention.query.weight",), ("heads.1", "unknown")
        ),
        "HeadByHeadOfKeysAlone": Due(
            1,
            ("Cause: The values are the keys", "heads.0.key.weight is read for attention.value.weight too"),
            ("heads.1",),
        ),
        "QueriesHeadByHead": right("1 head of key and value", "H = 2", "16 of 16 parameters"),
        "Pooled": refused("it takes x and gives nothing of its shape: it returns [3, 16], and x is [3, 5, 16]"),
        "BranchNorms": right("res-post-norm"),
        "ScaledSkip": beyond("a residual sum multiplies what skips the sub-layer", "by 1.5 in", *STRANGERS),
        "SkipTwice": refused("a residual sum adds twice what skips the sub-layer", "pass --layer NAME", *STRANGERS),
        "SkipsNormed": beyond("what skips is normed by norm1 and norm2", *STRANGERS),
        "FirstSkipNormed": beyond("what skips is normed by norm1,", *STRANGERS),
        "SecondSkipNormed": beyond("what skips is normed by norm2,", *STRANGERS),
        "NormedFirst": beyond("x is normed before the first layer", *STRANGERS),
        "SigmoidAttention": beyond("attention's weights are no softmax of the scores", *STRANGERS),
        "SoftmaxWithSink": beyond("attention's weights are no softmax of the scores", *STRANGERS),
        "LatentKeys": beyond("one more map before that of key and value", *STRANGERS),
        "GatedAttention": beyond("what attention gives is multiplied by a gate", *STRANGERS),
        "NoNorms": refused("a norm is missing", "no norm as norm1 and norm2", *STRANGERS),
        "CosineAttention": beyond("the scores of each head are multiplied by a number of its own", *STRANGERS),
        "NormInNetwork": beyond("a norm (layer_norm) after ffn_activation", *STRANGERS),
        "GainOfEachHead": beyond("query and key are normed with a gain for each head", *STRANGERS),
        "ParallelOfOneMap": right("pre-norm", "parallel sub-layers with one norm"),
        "Modulated": beyond("c: numbers of each item, float32", "adaptive norms", "norm1.gain", *STRANGERS),
        "InBlocks": beyond("its scores are of fewer keys than there are positions", *STRANGERS),
        "TableOfPlaces": beyond("numbers of query's and key's places are added to the scores", *STRANGERS),
        "TwoOfEach": without("stand side by side", "it has more residual sums than the two of a layer", *STRANGERS),
        "InBranches": without("residual1 is missing", "it has more products of what depends on x", *STRANGERS),
        "HiddenFromItself": beyond("each position is hidden from itself", *STRANGERS),
        "NormOfABatchInTraining": without("in training, with nothing dropped", "(BatchNorm)", *STRANGERS),
        "AddedAndConvolved": without("as positions are", "there is a convolution in it", *STRANGERS),
        "ScaleAsItShouldBe": Due(
            0,
            ("This is a correct", "scale changes the output, and is part of no step"),
            ("changes nothing", "are multiplied by", "✗"),
        ),
        "MaskWithItemsLast": Due(
            0, ("This is a correct", "with attn_mask (true = ignore) and without"), ("✗", "refused")
        ),
        "SoftmaxOverQueries": Due(
            2, ("the softmax of the scores is over the queries", *STRANGERS), ("keys on its last axis but one",)
        ),
        "MergedByReshape": Due(
            2, ("heads are put together without a transpose", *STRANGERS), ("hides no position from attention",)
        ),
    },
    "cases_mistakes": {
        "OutputTimesANumber": refused("is what the layer gives, times 1.5", "At: cases_mistakes.py:"),
        "SharedKeyTwice": Due(
            2, ("4 heads have the scores of 2", "At: cases_plain.py:"), ("of some of the positions",)
        ),
        "AttentionAddedToItself": Due(
            2, ("attention's sum adds what attention gives", "At: cases_mistakes.py:"), ("without a feed-forward",)
        ),
        "CausalOfAllPositions": Due(
            2,
            ("the scores change no weight, as where a mask hides every key", "At: cases_plain.py:"),
            ("ZeroDivision",),
        ),
        "MultipliedByCosines": Due(
            2, ("each feature is multiplied by a number of its position", "At: cases_mistakes.py:"), ("none of relu",)
        ),
        "NetworkLeftOut": Due(
            2, ("a residual sum adds a norm of x to x", "At: cases_mistakes.py:"), ("neither LayerNorm",)
        ),
        "ShiftsOfNormsForgotten": Due(
            1, ("norm1.beta is read nowhere, and norm1.gamma is (cases_mistakes.py:",), ("changes nothing",)
        ),
        "GateForgotten": Due(
            1, ("w3.weight is read nowhere, and w1.weight is (cases_mistakes.py:", "no gate multiplies"), ("unknown",)
        ),
        "ThirdMapLeftOver": right(
            "4 parameters, down3.weight, down3.bias", "change nothing in the layer that was read"
        ),
        "OneBranchHalved": refused("attention_output by 0.5 and ffn_output by 1", "At: cases_mistakes.py:"),
        "KeysAndValuesExchanged": Due(
            1, ("v.weight does the work of attention.key.weight", "At: cases_plain.py:"), ("unknown",)
        ),
        "OutputBiasForgotten": Due(
            1, ("b_o is read nowhere, and sounds like attention.output.bias", "(attention-output-bias-missing,"), ()
        ),
        "GainOfTheOtherBranch": Due(
            1, ("Cause: g1 is read for layer_scale2.gain too, and g2,", "At: cases_mistakes.py:"), ("unknown",)
        ),
        "FirstNormIsTheSecond": Due(
            1, ("Cause: norm2.weight is read for norm1.gain too, and norm1.weight,", "norm1.bias,"), ("unknown",)
        ),
        "GivesWhatItTook": refused("it returns its input as it is: nothing in it changes x"),
        "HalfOfASlope": Due(
            1,
            ("and the backward pass is not: ffn_activation = ", "detach(1 + erf", "At: cases_mistakes.py:"),
            ("unknown",),
        ),
        "SoftmaxOverflows": Due(
            1, ("Cause: The softmax does not take the largest score off first,", "softmax-without-largest"), ("Seen",)
        ),
        "HiddenBehindTheSoftmax": Due(
            1, ("(mask-after-softmax-renormalised,", "float32). First wrong stage: context_merged."), ("unknown",)
        ),
        "ABiasTwice": beyond(
            "a second bias is added to a linear map that has one", "down.bias', before a norm", *MISTAKES
        ),
        "PaddingIsKept": right(
            "self_attn_padding_mask: true = attend here, and true = ignore in most of what is written for PyTorch"
        ),
        "NeedsBothMasks": Due(
            0,
            ("with slf_attn_mask (true = ignore) and without", "mask: a mask that hides nothing, bool"),
            ("✗", "closest"),
        ),
        "AssertsItsMask": right("attn_mask: a mask that hides nothing", "with attn_mask (true = ignore)"),
        "AssertsPairs": refused(
            "it takes no x without attn_mask", "--with attn_mask=VALUE (no array) and --inputs FILE (arrays)"
        ),
        "ValueBiasForgotten": Due(
            1, ("v_bias is read nowhere, and sounds like attention.value.bias",), ("attention.key.bias, which",)
        ),
        "TwoMasksAreAdded": right("with attn_mask and pos_bias and without"),
        "SumsInAnOrderThatIsDrawn": without("an item of the batch changes another", *POOLED[:1], *MISTAKES),
        "OfOneResolution": Due(0, ("This is a correct", "72 positions"), ("✗",)),
        "RotatedThenNormed": beyond(
            "normed before their product otherwise than by qk-norm (E-27)",
            "a rotation by position",
            "cases_attention.py:",
        ),
        "RMSNormsOutside": right("norm-eps-outside-root", "1e-06"),
        "ColumnsOfABlock": without(
            "another output", "or a column to its scores", "return F.pad(scores", "At: cases_mistakes.py:"
        ),
        "EpsilonsOutside": refused("query_heads_norm is no rms_norm exactly: 4.7e-07 off, relatively", *MISTAKES),
        "BiasTwice": beyond("a second bias is added to a linear map", "the same bias again", *MISTAKES),
        "SoftmaxTwice": beyond("the weights of attention are normalised twice", "an attention sink", *MISTAKES),
        "SoftmaxForgotten": beyond("attention's weights are no softmax of the scores", *MISTAKES),
        "SoftmaxForgottenHeadByHead": without(
            "more products", "attention's weights are no softmax of the scores", *MISTAKES
        ),
        "ActivationBehindTheNetwork": beyond("an activation stands behind a map", "relu(linear(", *MISTAKES),
        "ActivatedKeys": beyond("an activation stands behind a map", "relu(linear(", "cases_plain.py:"),
        "ActivatedHeadByHead": without("more products", "an activation stands behind a map", "_mistakes.py:"),
        "FirstSumForgotten": Due(
            2, ("residual1 is missing: a residual sum was looked for", *MISTAKES), ("without a feed-forward network",)
        ),
        "ActivationBeforeTheNetwork": beyond("an activation stands behind a map or a norm", "before a map", *MISTAKES),
        "SeesLaterAlone": Due(
            2,
            ("hidden from some others by a pattern of its own", "to some queries all keys", *MISTAKES),
            ("softmax of",),
        ),
        "FirstKeyHidden": refused("constants of its own to the scores, and hides some", "At: cases_mistakes.py:"),
        "TableOf128": Due(
            1,
            ("wrong in every one of 256 or more: look for a table",),
            ("Last right stages", "At: "),
        ),
        "OtherSigmoid": refused("the activation is x * sigmoid(1.072 * x), and no silu exactly"),
        "GainsOfTwo": refused("norm1.gain is norm1.weight + 1, and that is a gain by itself"),
        "KeptWithinLimits": beyond("numbers are kept within limits", "-10 … 10", "_mistakes.py:"),
        "KeptFromTheEnds": right("pre-norm"),
        "GainsOfGains": beyond("what a norm gives is multiplied by a second vector", "At: cases_"),
        "SquaredReLU": beyond("its activation is none that a layer may have", "maximum(x, 0) ** 2", "_mistakes.py:"),
        "LowersAllScores": Due(2, ("are multiplied by -3.53553e+08 before the softmax", *MISTAKES), ("no softmax",)),
        "OfMish": beyond("its activation is none that a layer may have", "x * tanh(softplus(x))", "_mistakes.py:"),
    },
    "cases_reached": {
        "ScalesAChunk": Due(
            1,
            ("read as post-norm", "Cause: it gives no gradients: ", "is being modified inplace", "cases_reached.py:21"),
            ("overwritten", "Cause unknown"),
        ),
        "WritesOverAChunk": right("post-norm"),
        "AsksForTheFirst": without(
            "no position attends to another",
            "as of a class token that is the one query",
            line_of("# of one alone", "cases_reached.py"),
        ),
        "PastGradientsInEvaluation": Due(
            1,
            ("16 of 16 parameters found", "the forward pass is right, and the backward pass is not"),
            ("cannot be exported", "more products"),
        ),
        "WiderValues": without(
            "grouped queries", "heads of value are of another size", "(16 features of value, and 8 of query and key)"
        ),
        "ForgetsItsSoftmax": without(
            "raises scores",
            "attention's weights are no softmax of the scores",
            "mask changes the output, and what it flags still reaches other positions",
            line_of("# and no weights", "cases_reached.py"),
        ),
        "ValuesOfEachAgent": Due(
            0,
            (
                "This is a correct pre-norm",
                "it takes state of two features, and gives nothing of its shape: it returns",
            ),
            ("d_model is 1", "✗"),
        ),
        "ScaledBehindASoftmax": Due(
            2, (SCALED[0], f"At: {line_of('# behind it', 'cases_reached.py')}"), ("This is a correct",)
        ),
    },
    "cases_keras_made": {
        "TagsItsWords": layers("made with --arg num_tags=10 --arg vocab_size=100"),
        "BegunAsItIsTold": Due(
            0,
            ("This is a correct post-norm", "--arg initializer=glorot_uniform", "with keras_mask and without"),
            ("✗",),
        ),
        "NeedsTheSecondOfATuple": Due(
            0, ("This is a correct post-norm", "[batch, sequence, sequence] of 1"), ("✗", "whose default None")
        ),
        "LosesTheMaskOfKeras": right("post-norm", masks=False),
        "TakesKeysForValues": Due(
            1, ("the part v is called nowhere", f"At: {line_of('# for the values', 'cases_keras_made.py')}"), ()
        ),
        "TakesKeysForQueries": Due(
            1, ("the part q is called nowhere", f"At: {line_of('# for the queries', 'cases_keras_made.py')}"), ()
        ),
        "NeedsItsMask": Due(
            0, ("This is a correct post-norm", "a mask that hides nothing", "with mask and without"), ("✗", "padding")
        ),
        "NeedsItsMaskInAFunction": Due(
            0, ("This is a correct post-norm", "a mask that hides nothing", "with mask and without"), ("✗",)
        ),
        "NamesNothingInAFunction": Due(
            2,
            ("has no attribute 'attend_to'", f"{line_of('# which it has not', 'cases_keras_made.py')}, in call"),
            ("autograph",),
        ),
        "SkipsNoNetwork": Due(
            2, ("residual2 is missing", f"At: {line_of('# without a skip', 'cases_keras_made.py')}"), ()
        ),
        "HandsAListOn": Due(0, ("This is a correct post-norm", "mask-added-minus-1e9", "with mask"), ("✗",)),
        "AddsNumbersOfDistances": right("post-norm", "position bias by distance up to 5", masks=False),
        "LosesByDistance": right("post-norm", "ALiBi", masks=False),
        "KeyOfNoPosition": right("post-norm", KEY, masks=False),
        "DividedByItsSize": Due(
            0, (f"= 1/head_dim ({line_of('# and no root', 'cases_keras_made.py')})", "This is a correct"), ("✗",)
        ),
        "PutTogetherAsItLies": Due(
            2, ("without a transpose", f"At: {line_of('# without a transpose', 'cases_keras_made.py')}"), ()
        ),
        "NormsAgainInAGraph": Due(
            1,
            ("the part norm2 is called nowhere", f"At: {line_of('# by the first norm', 'cases_keras_made.py')}"),
            ("autograph",),
        ),
    },
    "cases_jax_given": {
        "TurnsPartByPart": right("pre-norm", "rope θ 10000 interleaved", masks=False),
        "AddsNumbersOfDistances": right("pre-norm", "position bias by distance up to 5", masks=False),
        "LosesByDistance": right("pre-norm", "ALiBi", masks=False),
        "KeyOfNoPosition": right("pre-norm", KEY, masks=False),
        "CallsWithTooMany": Due(
            2, ("that line gives what it calls more arguments than that takes",), ("name a pair of the module",)
        ),
        "ClipsByAFormerName": Due(
            2,
            ("that line gives what it calls more arguments than that takes", "unexpected keyword argument"),
            ("conform_inputs",),
        ),
        "NeedsThePaddingOfAnItem": right(
            "is_pad: a mask that hides nothing, bool [batch, sequence] of 0", "with is_pad"
        ),
        "NeedsWhichToKeep": right("keep: a mask that hides nothing", "with keep"),
        "TurnsItsKeysElsewhere": Due(
            2, ("is turned by its position otherwise", "At: cases_jax_given.py:"), ("attention without a feed-forward",)
        ),
        "DropsInANarrowFormat": Due(0, ("This is a correct pre-norm",), ("✗",)),
        "of_a_tuple_of_angles": Due(0, ("This is a correct post-norm", "fixed was not given"), ("✗",)),
        "PutsHeadsIntoTheBatch": Due(
            2,
            ("it returns [6, 5, ", "takes x [batch, sequence, d_model] and gives as much"),
            ("OtherShape", "a pair of"),
        ),
        "DrawsUnlessTold": Due(0, ("This is a correct pre-norm", "--arg rngs='nnx.Rngs(0)'"), ("say what it takes",)),
        "DrawsByAKeyUnlessTold": Due(0, ("This is a correct pre-norm", "--arg key='jax.random.PRNGKey(0)'"), ("✗",)),
    },
    "cases_jax_held": {
        "OfIds": layers("it takes ids as ids", "mask (true = attend) hides what it flags at the model's outputs"),
        "OfIdsNotHandedOn": layers("it takes ids as ids", "mask is taken, and changes nothing that the model gives"),
        "by_place_alone": Due(0, ("This is a correct pre-norm",), ("method",)),
        **dict.fromkeys(
            ("of_its_apply", "of_its_compiled_apply", "behind_its_variables", "that_is_trained"),
            Due(0, ("This is a correct pre-norm", "with attention_mask and without"), ("rngs",)),
        ),
        "behind_its_parameters": Due(0, ("This is a correct post-norm",), ("no module of",)),
        "that_drops_one_branch": Due(0, ("in training drop_of_network (p = 0.2) is never called",), ("✗",)),
        "that_hides_by_itself": Due(2, ("pattern of its own", f"At: {line_of('# its own', 'cases_jax_held.py')}"), ()),
        "that_norms_twice": Due(
            1, ("norm1.scale is read for norm2.gain too", f"At: {line_of('# by the first', 'cases_jax_held.py')}"), ()
        ),
        "that_takes_keys_for_values": Due(
            1, ("k.kernel is read for attention.value", f"At: {line_of('# for values', 'cases_jax_held.py')}"), ()
        ),
        "that_puts_heads_together": Due(
            2, ("without a transpose", f"At: {line_of('# of several positions', 'cases_jax_held.py')}"), ()
        ),
        "that_was_split": Due(0, ("This is a correct pre-norm",), ("no module of",)),
    },
    "cases_jax": {
        "ResPost": Due(0, ("This is a correct res-post-norm",), ("✗",)),
        "InAPair": Due(0, ("x is the first of a tuple of 2", "with item 1 of inputs"), ("cannot be initialised",)),
        "InABatch": Due(0, ("x is 'nodes' of a mapping", "with mask and without"), ("cannot be initialised",)),
        "of_its_parameters": Due(0, ("This is a correct post-norm",), ("no module of",)),
        "of_its_apply": Due(0, ("This is a correct pre-norm",), ("rngs",)),
        "without_its_parameters": refused("makes function, and no module", "is named with its parameters: (function,"),
        "ByItsMethods": refused("ByItsMethods", *UNCALLED),
        "LinenByItsMethods": refused("LinenByItsMethods", *UNCALLED),
        "EquinoxByItsMethods": refused("EquinoxByItsMethods", *UNCALLED),
        "OfOneByTwo": Due(
            2, ("an activation stands behind a map", "cases_jax.py:", "module _OfTwo_0", "it needs y beside x"), ()
        ),
        "InAList": layers("module layers.0", "pre-norm"),
        "NormsByACondition": without(
            "is called nowhere", "c: numbers of each item, float32 [batch, 16]", "adaptive norms"
        ),
        "turned_by_products_of_elements": right("post-norm", "rope θ 10000 halves"),
        "NamesWhatItHasNot": Due(
            2, ("no attribute", "attend", "that line names what is not there"), ("a pair of the module",)
        ),
        "made_of_a_key": right("post-norm", "rng: a key of random numbers", masks=False),
        "of_a_key_first": right("post-norm", "key: a key of random numbers", masks=False)._replace(
            unsaid=("✗", "stands behind")
        ),
        "normed_over_positions": beyond("is taken over the positions", "At: cases_jax.py:"),
        "HeadsBesidePositions": Due(
            2, ("no position attends to another: the heads of each", "At: cases_jax.py:"), ("cannot be looked at",)
        ),
        "HoldsItsAngles": Due(
            0,
            ("This is a correct pre-norm", "rope θ 10000 halves", "turned.cos and turned.sin hold numbers by position"),
            ("✗",),
        ),
        "HandsItsMaskOn": Due(0, ("This is a correct pre-norm", *OF_THE_PART), ()),
        "HandsItsMaskToAClass": Due(0, ("This is a correct pre-norm", *OF_THE_PART), ()),
        "AddsItsNormToo": beyond("it has more residual sums than the two of a layer", "At: cases_jax.py:"),
        "drops_nothing_of_a_key": Due(0, ("This is a correct post-norm", "key: a key of random numbers"), ("✗",)),
        "drops_of_a_key": beyond("it draws random numbers in evaluation, too", "(key)"),
        "pooled_under_a_mask": Due(2, ("it gives nothing of the shape of x", "[3, 16]"), ("it needs mask", "--with")),
        "EpsilonIsItsSize": Due(0, ("! norm.epsilon is 16 in a pre-norm layer_norm (cases_jax.py:",), ()),
        "OfASizeInItsConfiguration": Due(0, ("This is a correct pre-norm", "D = 24"), ("✗",)),
        "RaisesAtItsSize": refused("ValueError: no cache is kept", "cases_jax.py:"),
        "TurnsByWholeNumbers": Due(0, ("This is a correct pre-norm", "rope θ 10000 halves"), ("✗",)),
        "lies_on_a_mesh": Due(0, ("This is a correct post-norm",), ("✗",)),
        "raises_behind_its_norm": refused("no mesh is set", "cases_jax.py:"),
        "OfTenPositions": Due(0, ("This is a correct pre-norm", "of 10 positions"), ("✗",)),
        "NormsItsElevenPositions": beyond("is taken over the positions", "At: cases_jax.py:"),
        "NarrowGelu": Due(0, ("This is a correct pre-norm layer (layer_norm ε 1e-06, gelu_tanh",), ("✗",)),
        "PutsItsHeadsTogetherByHstack": Due(0, ("This is a correct pre-norm",), ("without a transpose",)),
    },
    "cases_keras_graphs": {
        "of_ids": layers("layers_in_graph", "2 layers", "with mask and without"),
        "of_three_ids": layers("layers_in_graph", "2 layers", "with mask and without"),
        "of_a_mask": layers(
            "layers_in_graph", "padding_mask (true = attend) hides what it flags at the model's outputs"
        ),
        "of_a_series": layers("layers_in_graph", "of 24 positions"),
        "of_an_image": layers("layers_in_graph", "2 layers, final norm", "of 16 positions"),
        "of_columns": layers("layers_in_graph", "of 5 positions"),
        "of_many_patches": layers("layers_in_graph", "of 70 positions"),
        "of_one_feature": refused("d_model is 1, and a norm over one feature gives its shift"),
        "of_no_sum": refused("layers_in_graph", "residual1 is missing"),
    },
    "cases_keras": {
        "Parallel": Due(0, ("This is a correct pre-norm", "parallel sub-layers with two norms"), ("✗",)),
        "OfIds": layers("it takes ids as ids", "mask (true = attend) hides what it flags at the model's outputs"),
        "OfIdsNotHandedOn": layers("it takes ids as ids", "mask is taken, and changes nothing that the model gives"),
        "DropsOneBranchAlone": Due(
            0, ("in training drop_of_network (p = 0.2) is never called", "without what it drops in training"), ("✗",)
        ),
        "TwoMadeOfOneQuery": Due(1, ("k_proj.kernel is read for attention.query.weight too",), ("does the work of",)),
        "DropsItsWeights": Due(0, ("This is a correct post-norm", "mask-filled-and-zeroed"), ("✗",)),
        "of_a_graph_of_one_length": Due(0, ("This is a correct post-norm", "keras.Input((32, 64))"), ("✗",)),
        "of_a_graph": Due(
            0, ("This is a correct post-norm", "it was made with --arg inputs='keras.Input((None, 64))'"), ("✗",)
        ),
        "OfTwoSequences": refused("it is a layer of a decoder, or of two sequences: it needs others beside x"),
        "OfAnEncoding": refused("it is a layer of a decoder: OfAnEncoding.call needs encoding_outputs beside x"),
        "NamesWhatKerasHadOnce": Due(
            2, ("no attribute 'batch_dot'", "that line names what is not there"), ("name a function that builds it",)
        ),
        "heads_of_all_features": Due(0, ("This is a correct post-norm", "heads of 16"), ("cannot be built",)),
        "InAListByPlaces": Due(
            0, ("x is the first of a tuple of 2", "with item 1 of inputs (true = attend)"), ("cannot be built", "✗")
        ),
        "SaysNoSizes": Due(0, ("This is a correct pre-norm",), ("cannot be built",)),
        "configured_wrong": Due(0, ("This is a correct post-norm",), ("has no attribute",)),
        "ExchangedPrivately": Due(1, ("_wk.kernel does the work of attention.query.weight", "At: cases_keras.py:"), ()),
        "NeedsNumbers": refused("no position sees a later one", "it cannot be exported to ONNX", "pass --layer NAME"),
        "InALoop": refused("there are branches or loops in it"),
        "of_maps_alone": Due(0, ("This is a correct post-norm",), ("cannot be built",)),
        "of_angles": Due(0, ("This is a correct post-norm", "rope θ 10000 halves"), ("cannot be built",)),
        "raises_behind_its_maps": refused("ValueError: no rate", "cases_keras.py:"),
        "norms_by_variables": Due(
            1, ("weights that it does not register: norm1.gain, norm1.shift, norm2.gain, norm2.shift", "add_weight"), ()
        ),
        "of_two_epsilons": refused("the two norms differ", "At: cases_keras.py:"),
        "maps_each_position": Due(0, ("This is a correct post-norm",), ("side by side",)),
        "HandsAFunctionOn": Due(2, ("Only input tensors", "whatever it is given"), ("name a function that builds it",)),
        "NamesItsPartsByPaths": Due(
            2, ("cannot contain character `/`", "whatever it is given"), ("name a function that builds it",)
        ),
        "NeverTrained": Due(1, ("in training it drops nothing, and it has",), ("At: ",)),
        "RaisesInAPart": Due(2, ("Invalid value in tensor used for shape: -48", "cases_keras.py:"), ("[0m",)),
    },
    "cases_branches": {
        "AssertsNoNaN": right("pre-norm", *BRANCHES, "false at cases_branches.py:", "assert not torch.isnan(x).any()"),
        "KeepsFromInfinity": right("post-norm", *BRANCHES, "false at cases_branches.py:", "if torch.isinf(y).any()"),
        "HalvesWhatIsFarOut": right("pre-norm"),
        "NothingOfZeros": right("post-norm", *BRANCHES, "if torch.allclose(x, torch.zeros_like(x))"),
        "BranchesOnItsPositions": right("pre-norm")._replace(unsaid=("it branches on numbers", "✗")),
        "AnotherFarOut": Due(
            1, ("This layer is wrong, read as post-norm", *BRANCHES, "else y", "First wrong stage: output"), ()
        ),
    },
    "cases_skips": {
        "ParallelSummedByItsOwner": without(
            "otherwise than a gated one", "attention and the feed-forward network stand side by side", "cases_skips.py:"
        ),
        "GatedWithoutItsFirstSkip": Due(
            2, ("residual1 is missing", "cases_skips.py:"), ("side by side", "than a gated one")
        ),
        "NeedsMoreThanItsTime": refused(
            "it needs timestep, span beside x", "timestep numbers of each item, float32 [batch, 16]", "cases_skips.py:"
        ),
        "NormsItsFirstBranchToo": without(
            "what skips is normed",
            "attention reads a norm of what skips it, and a norm stands behind",
            "cases_skips.py:",
        ),
        "WeighsByElement": Due(
            2, ("a product by element of scores or weights of attention", "pass --layer NAME"), ("a sum of scores",)
        ),
        "SkipsItsSecondAttention": right(
            "pre-norm", "encoder_hidden_states was not given, and changes the output", "with attention_mask and without"
        )._replace(unsaid=("✗", "a layer of a decoder")),
    },
    "cases_items": {
        "OfWindowsOfAll": right("pre-norm", masks=False),
        "OfOneItem": right("x is given as [sequence, d_model], item by item", "pre-norm", masks=False),
        "OfOneItemWithItsMask": right("[sequence, d_model], item by item", "with padding (true = ignore)"),
        "OfOneVector": without(
            "the heads of each", "the scores are of one query and one key each", "At: cases_items.py:"
        ),
        "OfOneItemOverQueries": refused("the softmax of the scores is over the queries", "At: cases_items.py:"),
    },
    "cases_masks": {
        **dict.fromkeys(
            ("RaisesWhatItAdds", "RaisesWhatItFills"),
            Due(
                1,
                ("padding raises scores, and lowers none", "At: cases_", "27 of 27 checks"),
                ("unknown", "Closest"),
            ),
        ),
        "ComparesItsMask": right("post-norm", "it is called with attention_mask: a mask that hides nothing"),
        "AddsNumbersOfTwoPositions": right("post-norm", "rel_2d_pos: a bias that adds nothing", *ZEROS),
        "MaskOfAClass": right("mask takes a Hidden, and no array: it was not given", masks=False),
        "MaskOnCuda": right("padding needs CUDA, and is given on the CPU", "it was asked without padding", masks=False),
        "ViewsWhatIsTransposed": Due(
            2,
            ("it takes no x; given pad_mask", "view size is not compatible", "cases_masks.py:"),
            ("without a transpose", "conform_inputs"),
        ),
        "MaskOfQueriesNeeded": right("source_mask: x_mask again", "with x_mask (true = attend) and without"),
        "MaskOfPatches": right("mask is given without the first position", "with mask (true = attend) and without"),
        "MaskOfPatchesForOneItem": Due(
            1,
            ("mask is given without the first position", "The size of tensor", "it is taken at batch 1 and 2 alone"),
            ("incorrect dimensions",),
        ),
        "CastBesideAMask": right("with its masks it is not asked in float64: RuntimeError", "in float32, with padding"),
        "ThrownAwayBatchLast": right("masked_fill gives a new tensor, which is thrown away", masks=False),
        "BothMasksOrNone": right("key_mask: query_mask again", "with query_mask (true = attend) and without"),
    },
    "cases_written": {
        "MaskOfAClass": Due(0, ("This is a correct post-norm", "attn_mask takes a WholeMask, and no array"), ("✗",)),
        "CausalByIndices": Due(0, ("This is a correct pre-norm", "no position sees a later one"), ("✗",)),
        "BucketsOfADecoder": Due(
            0, ("This is a correct post-norm", "a choice of its own, buckets-one-way"), ("is wrong", "✗")
        ),
        "BucketsOneWay": Due(1, ("read as post-norm", "(buckets-one-way,"), ("Cause unknown",)),
        "BucketsByGroups": right("post-norm", "position bias in 32 buckets", masks=False),
        "SlopesByGroups": beyond(*DISTANCE, "by slopes 0.5, 0.25, 0.125, 0.0625 of its heads", "cases_written.py:"),
        "OverTimeToo": without("Linear.forward()", "cases_written.py:"),
        "KeepsGradientsOfWeights": refused(
            "it fails where no gradients are computed", "weights.register_hook(self._keep)"
        ),
        "HalvesInside": refused("its parameters are in float16 and float32, and a copy in one of these fails"),
        "TurnedBySinusoids": right("rope θ 10000 interleaved", "sines and cosines of theta 10000", masks=False),
        "TurnedBySinusoidsInOne": right("interleaved", "sines, then cosines of theta 10000", masks=False),
        "MaskBesideWhatIsUnread": right("pre-norm", "mask: a mask that hides nothing", "with mask (true = attend)"),
        "OfRowsWithAMask": right("x is given as [batch, 1, sequence, d_model]", "with attention_mask"),
        "OfPatchesAlone": Due(0, ("This is a correct post-norm", "of 196 positions"), ("✗",)),
        "MaskThrownAwayInATuple": right(
            "x is the first of a tuple of 2", "masked_fill gives a new tensor, which is thrown away", masks=False
        ),
        "MaskInATuple": right("x is the first of a tuple of 2", "with item 1 of given (true = attend) and without"),
        "MaskAmongBiases": right("pre-norm", "with mask (true = attend)"),
        "NormedByDeviation": Due(
            2, ("norm1 adds an epsilon of 0", "norm1 is no layer_norm exactly"), ("multiplied by",)
        ),
        "precision_told_twice": right("pre-norm"),
    },
    "cases_tried": {
        "NormsAPartOfAMap": beyond("a norm, a mean or a softmax takes some of the features of a position alone"),
        "SetByItsModel": Due(
            2, ("'multipliers'", "reads what another class of its file sets"), ("names what is not there",)
        ),
        "OfASiblingsNorm": Due(2, ("'norm3'", "that line names what is not there"), ("sets, as a model does",)),
        "FlagsByTruthAndByNumber": Due(
            0,
            (
                "attention_mask: true = ignore as int64 [batch, sequence], and true = attend as bool [batch, sequence] "
                "and wherever it is known",
            ),
            ("true = ignore here", "and true = ignore as int64", "✗"),
        ),
        "LowersByTenThousandMillion": right("pre-norm", "a choice of its own, mask-added-minus-1e10"),
    },
    "cases_wrapped": {
        "OverriddenByAnother": Due(2, ("under torch.device and without differ",), ("with nothing dropped",)),
        "compiled": right(*COMPILED),
        "compiled_in_place": right(*COMPILED),
        "compiled_part": right(*COMPILED),
        "traced_to_a_graph": right("pre-norm", masks=False)._replace(unsaid=("✗", "closest", "is changed")),
        "in_sequence": right("post-norm", masks=False),
        "data_parallel": right("pre-norm"),
        "InAWrapper": right("pre-norm", masks=False),
        "weight_normed": right("pre-norm"),
        "weight_normed_by_hooks": right("post-norm"),
        "spectral_normed": right("pre-norm"),
        "lora": right("an adapter beside it (LoRA), folded"),
        "lora_of_the_network": right("an adapter beside it (LoRA), folded"),
        "lora_of_magnitudes": right("an adapter beside it (LoRA), folded"),
        "bf16": right("pre-norm"),
        "half": right("its parameters are in float16: it is not asked as it was given"),
        "Mixed": right("its parameters are in float32", "it is not asked as it was given"),
        "adapter": beyond("it has more residual sums than the two of a layer", "cases_wrapped.py:"),
        "adapter_of_attention": beyond("it has more residual sums than the two of a layer", "cases_wrapped.py:"),
        "AdapterBeside": refused("ffn_output is missing: a linear map was looked for", "cases_wrapped.py:"),
        "scripted": refused("torch.jit has made it a graph of its own: check the module before that"),
        "scripted_pre": refused("torch.jit has made it a graph of its own: check the module before that"),
        "traced": refused("torch.jit has made it a graph of its own: check the module before that"),
        "quantised": refused("a quantised module holds integers, of which σ says nothing", "check the module before"),
        "quantised_post": refused("a quantised module holds integers, of which σ says nothing"),
        "quantised_by_hand": refused("is computed of its parameters, and is none of them"),
    },
}
"""File → what is in it → what is due."""


@pytest.mark.parametrize(
    ("file", "name"),
    [
        pytest.param(file, name, marks=pytest.mark.needs(*NEEDED.get(file, ("torch", "onnxscript"))))
        for file in DUE
        for name in DUE[file]
    ],
)
def test_what_is_due_is_said(conform: Callable, tmp_path: Path, file: str, name: str) -> None:
    due = DUE[file][name]
    told = ("--dtype", "float32", "--jobs", "1", "--out", tmp_path / "out")
    ended = conform("check", HERE / f"{file}.py:{name}", *told)
    printed = " ".join((ended.stdout + ended.stderr).split())
    assert ended.status == due.status, printed
    assert [words for words in due.said if words not in printed] == [], printed
    assert [words for words in due.unsaid if words in printed] == [], printed


@pytest.mark.parametrize(
    ("target", "layer", "said"),
    [
        ("cases_repositories.py:LeakyOfPackedHeads", "post-relu", "(activation-leaky-relu"),
        ("cases_blocks.py:CausalOfTurnedMaps", "pre-gelu-tanh", "but attention.qkv_bias is True in the module"),
        ("cases_blocks.py:ScaleTurnedOver", "post-gelu", "(scale-multiplied"),
        ("cases_blocks.py:SoftmaxOverNrHeads", "post-relu", "(softmax-over-heads"),
        ("cases_strangers.py:MergedByReshapeOfEachHeadsThree", "pre-gelu", "(heads-by-reshape-at-merge"),
        ("cases_steps.py:Annotated", "pre-gelu", "(norm-unbiased-eps-outside-root)"),
        ("cases_arranged.py:ParallelHeadsNotTransposed", "pre-parallel", "(heads-by-reshape-at-merge"),
        ("cases_arranged.py:ParallelNetworkOfX", "pre-parallel", "(norm2-skipped"),
        ("cases_arranged.py:ResPostWithoutItsSecondNorm", "res-post", "(sandwich-after-ffn-missing"),
        ("cases_steps.py:Parallel", "pre-gelu", "(network-beside-attention"),
        ("cases_plain.py:Plain", "pre-parallel", "(network-after-attention"),
        ("cases_blocks.py:OneSumAndAnotherEpsilon", "post-relu", "comes near with residual2-missing"),
        ("cases_blocks.py:OneSumAndAnotherEpsilon", "post-relu", "stands alone (residual2-missing)"),
    ],
)
def test_a_map_is_found_for_the_layer_that_is_stated_and_a_cause_named(
    conform: Callable, tmp_path: Path, target: str, layer: str, said: str
) -> None:
    ended = conform("check", HERE / target, "--layer", layer, "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert said in printed, printed
    assert "Cause unknown" not in printed, printed
    assert "none matches" not in printed, printed


def test_of_a_map_by_names_alone_no_parameter_is_said_to_be_lacking(conform: Callable, tmp_path: Path) -> None:
    target = HERE / "cases_mistakes.py:NotTurnedBack"
    ended = conform("check", target, "--layer", "post-relu", "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "the map is by names and shapes alone" in printed, printed
    assert "! no parameter was found for norm" in printed, printed
    assert "it has no" not in printed, printed


def test_a_parameter_of_no_step_of_a_stated_layer_is_in_no_layer_that_was_read(
    conform: Callable, tmp_path: Path
) -> None:
    target = HERE / "cases_series.py:MapsTheQueryTwice"
    ended = conform("check", target, "--layer", "post-gelu", "--dtype", "float32", "-v", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "change the output, and have no place in the layer that is stated" in printed, printed
    assert "that was read" not in printed, printed
    assert "it is right with" not in printed, printed


@pytest.mark.needs(*NEEDED["cases_jax"])
def test_a_variance_that_cancels_is_one_cause_in_both_formats(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", HERE / "bare_jax.py:NnxFast", "--layer", "pre-gelu", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "(norm-fast-variance)" in printed, printed
    assert "[float32 and float64]" in printed, printed
    assert "Cause unknown" not in printed, printed


@pytest.mark.needs(*NEEDED["cases_jax"])
def test_a_map_that_was_read_is_tried_where_the_module_lacks_biases(conform: Callable, tmp_path: Path) -> None:
    target = HERE / "cases_jax.py:without_biases_of_attention"
    ended = conform("check", target, "--layer", "pre-gelu", "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "(gelu-tanh" in printed, printed
    assert "it has no feed_forward.output.bias" not in printed, printed
    assert "Cause unknown" not in printed, printed


def test_numbers_of_heads_that_contradict_the_stated_heads_of_keys_are_not_tried(
    conform: Callable, tmp_path: Path
) -> None:
    """Where the graph does not tell how many there are."""
    target = HERE / "cases_skips.py:SharedInTurns"
    ended = conform("check", target, "--layer", "pre-rope-gated", "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join((ended.stdout + ended.stderr).split())
    assert "could not be examined" not in printed, printed
    assert "share keys and values otherwise" in printed, printed
    assert "read nowhere" not in printed, printed


def test_a_bias_of_keys_that_the_stated_layer_lacks_is_not_said_to_be_unread(conform: Callable, tmp_path: Path) -> None:
    """A softmax is the same with it and without."""
    target = HERE / "cases_plain.py:Plain"
    ended = conform("check", target, "--layer", "pre-gelu-tanh", "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "attention.qkv_bias is True in the module" in printed, printed
    assert "read nowhere" not in printed, printed


def test_heads_that_are_wider_than_is_stated_are_said(conform: Callable, tmp_path: Path) -> None:
    """Their own parameters fit no case of the stated layer, which has biases that they lack, of other sizes. No number
    can be asked, and what is other says enough."""
    target = HERE / "cases_written.py:WideHeads"
    ended = conform("check", target, "--layer", "post-gelu", "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join((ended.stdout + ended.stderr).split())
    assert ended.status == 1, printed
    assert "attention.head_dim is 12 in the module (cases_plain.py:" in printed, printed
    assert "failed" not in printed, printed
    assert "shape mismatch" not in printed, printed
    assert "This is not post-gelu: attention.head_dim is 12 in the module" in printed, printed
    assert "It was not asked: see above." in printed, printed


def test_a_bias_that_the_stated_layer_lacks_is_not_said_to_be_read_nowhere(conform: Callable, tmp_path: Path) -> None:
    """Nothing was read off it, and its map is by names: what it does with its biases is not known."""
    target = HERE / "cases_mistakes.py:SeesLaterAlone"
    ended = conform("check", target, "--layer", "pre-gelu-tanh", "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "is read nowhere" not in printed, printed
    assert "the parameter k.bias has no place in the layer that is stated" in printed, printed


def test_scores_that_nothing_divides_are_the_cause_where_one_norm_stands_for_two(
    conform: Callable, tmp_path: Path
) -> None:
    target = HERE / "cases_drawn.py:OneNormUnscaled"
    ended = conform("check", target, "--layer", "post-gelu", "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "Cause: The scores are not scaled (scale-missing" in printed, printed
    assert "Cause unknown" not in printed, printed


def test_the_line_of_a_mask_is_of_the_part_that_reads_it_in_another_folder(conform: Callable, tmp_path: Path) -> None:
    """The part is one of a list, and asserts something of its mask before it reads it."""
    parts, blocks = tmp_path / "of_parts", tmp_path / "of_blocks"
    parts.mkdir()
    blocks.mkdir()
    (parts / "attending.py").write_text(
        "from torch import nn\n"
        "class Attending(nn.Module):\n"
        "    def forward(self, q, k, v, mask=None):\n"
        "        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5\n"
        "        if mask is not None:\n"
        "            assert mask.ndim == 3\n"
        "            scores = scores.masked_fill(mask == 0, -1e9)\n"
        "        return scores.softmax(-1) @ v\n"
    )
    (blocks / "block.py").write_text(
        "import sys\n"
        "from pathlib import Path\n"
        "import torch\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "sys.path.insert(0, str(Path(__file__).parents[1]))\n"
        "from cases_plain import Plain\n"
        "from of_parts.attending import Attending\n"
        "class Block(Plain):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.heads = torch.nn.ModuleList(Attending() for _ in range(self.H))\n"
        "    def forward(self, x, mask=None):\n"
        "        y = self.norm1(x)\n"
        "        q, k, v = (self.split(each(y)) for each in (self.q, self.k, self.v))\n"
        "        made = []\n"
        "        for i in range(self.H):\n"
        "            made.append(self.heads[i](q[:, i], k[:, i], v[:, i], mask))\n"
        "        x = x + self.o(torch.cat(made, -1))\n"
        "        return x + self.ffn(self.norm2(x))\n"
    )
    ended = conform("check", blocks / "block.py:Block", "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 0, printed
    assert "mask-filled-minus-1e9" in printed, printed
    assert "hides as much (attending.py:7)" in printed, printed


def test_a_stack_without_the_last_norm_of_the_stated_one_is_not_that(conform: Callable, tmp_path: Path) -> None:
    target = HERE / "cases_planted.py:WithoutALastNorm"
    told = ("--layer", "stack-pre-gelu", "--dtype", "float32", "--out", tmp_path / "out")
    ended = conform("check", target, *told)
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "stack.final_norm is False in the module" in printed, printed


def test_maps_and_a_deviation_that_undo_each_other_are_no_cause(conform: Callable, tmp_path: Path) -> None:
    """No layer is read off a module whose norms have two epsilons. Its map by its names comes as near as one with query
    and key exchanged does that are swapped once more."""
    target = HERE / "cases_planted.py:OneNormOfAnotherEpsilon"
    ended = conform("check", target, "--layer", "pre-gelu", "--dtype", "float32", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "Cause: The epsilon of norm2 is 1.00e-03" in printed, printed
    assert "does the work of" not in printed, printed
    assert "comes near with" not in printed, printed


def test_a_bias_that_is_not_there_has_the_line_of_its_map(conform: Callable, tmp_path: Path) -> None:
    """Before another error that has a line, too: that of a mask which everybody knows the other way round."""
    told = ("--layer", "pre-gelu", "--dtype", "float32", "--out", tmp_path / "out")
    ended = conform("check", HERE / "cases_lines.py:NoLastBias", *told)
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "it has no feed_forward.output.bias" in printed, printed
    assert "key_padding_mask: true = attend here" in printed, printed
    assert f"At: {line_of('# without a bias', 'cases_lines.py')}" in printed, printed


def test_of_numbers_that_hide_alike_the_same_is_named_with_a_layer_and_without(
    conform: Callable, tmp_path: Path
) -> None:
    target = HERE / "cases_drawn.py:FilledBeforeASoftmax"
    for layer in ((), ("--layer", "pre-gelu")):
        ended = conform("check", target, *layer, "--dtype", "float32", "--out", tmp_path / f"out{len(layer)}")
        printed = " ".join(ended.stdout.split())
        assert ended.status == (1 if layer else 0), printed
        assert "Masked scores are filled with −1e9" in printed, printed
        assert not layer or "At: cases_drawn.py:" in printed, printed


def test_a_number_that_hides_and_depends_on_the_format_is_a_choice_in_each(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", HERE / "cases_domains.py:FillsByItsFormat", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 0, printed
    assert "mask-filled-minus-1e9 in float32" in printed, printed
    assert "mask-filled-minus-1e4 in float64" in printed, printed


def test_what_is_cast_beside_its_masks_alone_is_not_judged_in_float64(conform: Callable, tmp_path: Path) -> None:
    ended = conform("check", HERE / "cases_tutorials.py:CastsToFill", "--out", tmp_path / "out")
    printed = " ".join(ended.stdout.split())
    assert ended.status == 0, printed
    assert "beside its masks it is no more exact in float64 than in float32" in printed, printed


def test_what_nothing_explains_has_the_line_of_what_is_no_layers(conform: Callable, tmp_path: Path) -> None:
    """And not that of a mask that hides nothing for the same reason."""
    told = ("--layer", "pre-gelu", "--dtype", "float32", "--out", tmp_path / "out")
    ended = conform("check", HERE / "cases_manners.py:SumsItsValuesApart", *told)
    printed = " ".join(ended.stdout.split())
    assert ended.status == 1, printed
    assert "Cause unknown" in printed, printed
    assert f"At: {line_of('# of two letters', 'cases_manners.py')}" in printed, printed


def test_a_stated_layer_whose_angles_are_kept_in_float32_is_judged_in_that(conform: Callable, tmp_path: Path) -> None:
    """Where it was not read off its graph, too: it was wrong in float64, of no cause."""
    layer = tmp_path / "own16.yaml"
    layer.write_text(_OWN16)
    told = ("--layer", layer, "--out", tmp_path / "out")
    ended = conform("check", HERE / "cases_reached.py:KeepsAnglesInFloat32", *told)
    printed = " ".join(ended.stdout.split())
    assert ended.status == 0, printed
    assert "This is own16" in printed, printed
    assert "judged in float32" in printed, printed
    assert "Cause unknown" not in printed, printed

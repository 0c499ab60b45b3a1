"""How a module is called is part of the verdict: its masks, what they mean, and the arguments that were not given."""

import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from calling import called, said
from products import daily
from torch import Tensor, nn

from encoder_conformance.commands.check.arguments import argument_findings, reference_findings
from encoder_conformance.readers.module_target.errors import BadTarget
from encoder_conformance.spec.load import load
from encoder_conformance.subjects.interfaces import compared

HERE = Path(__file__).parent
BARE: dict[str, Any] = runpy.run_path(str(HERE / "bare_modules.py"))
D, H = BARE["D"], BARE["H"]


class Padded(BARE["Fused"]):
    """`attend` is given what shall be seen, [B, S] true = attend; subclasses say how they are asked for it."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        return (scores if mask is None else self.hidden(scores, mask)).softmax(-1) @ v

    def hidden(self, scores: Tensor, seen: Tensor) -> Tensor:
        return scores.masked_fill(~seen[:, None, None, :], -torch.inf)


def taking(name: str, seen: str, *, before: str = "", base: type = Padded, after: str = "") -> nn.Module:
    """A layer whose forward takes `before`, a mask of this name and `after`; `seen`: what is seen, of mask `m`."""
    made: dict[str, Any] = {"base": base, "seen": eval(f"lambda m: {seen}")}
    seen_of = f"None if {name} is None else seen({name})"
    exec(f"def forward(self, x, {before}{name}=None{after}): return base.forward(self, x, {seen_of})", made)
    torch.manual_seed(0)
    return type("Layer", (base,), {"forward": made["forward"]})()


ATTEND, IGNORE = "m != 0", "m == 0"
MULTIPLIED = "y * (m != 0)[..., None]"


def of_a_release(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.release)  # one of its kind is tried every day


@pytest.mark.parametrize("name", daily(["attention_mask"], ["attention_mask", "mask"]))
@pytest.mark.parametrize("exchanged", daily([False], [False, True]))
def test_one_name_with_two_meanings_is_an_error_that_says_both(name: str, exchanged: bool) -> None:
    sides = [called(taking(name, seen)) for seen in (ATTEND, IGNORE)][:: -1 if exchanged else 1]
    first, second = ("ignore", "attend") if exchanged else ("attend", "ignore")
    assert said(compared(*sides, ("A", "B")), "error") == [f"{name}: true = {first} in A, true = {second} in B"]


@pytest.mark.release
def test_two_names_called_by_place_that_mean_opposite_things_are_an_error() -> None:
    ours, theirs = called(taking("padding", IGNORE)), called(taking("keep_mask", ATTEND))
    due = "padding of A and keep_mask of B: true = ignore in A, true = attend in B"
    assert said(compared(ours, theirs, ("A", "B")), "error") == [due]
    by_name = called(taking("keep_mask", ATTEND, before="*, "))
    assert said(compared(ours, by_name, ("A", "B")), "error") == []
    assert said(compared(ours, by_name, ("A", "B")), "warning") == [due]


def test_names_that_everybody_knows_mean_what_they_say() -> None:
    ours, theirs = called(taking("key_padding_mask", IGNORE)), called(taking("attention_mask", ATTEND))
    assert said(compared(ours, theirs, ("A", "B")), "error") == []
    due = "key_padding_mask of A and attention_mask of B: true = ignore in A, true = attend in B"
    assert said(compared(ours, theirs, ("A", "B")), "warning") == [due], "a call by place would not show it"


@pytest.mark.release
@pytest.mark.parametrize(
    ("names", "framework", "severity"),
    [
        of_a_release(("padding_mask", "mask"), "Keras", "note"),
        (("padding_mask", "mask"), "PyTorch", "error"),
        (("padding", "mask"), "Keras", "warning"),
        of_a_release(("mask", "mask"), "Keras", "error"),
    ],
)
def test_each_framework_has_names_of_its_own(names: tuple[str, str], framework: str, severity: str) -> None:
    """In one place: true = ignore in PyTorch's padding mask, true = attend in Keras' mask."""
    ours, theirs = called(taking(names[0], IGNORE)), called(taking(names[1], ATTEND))
    there = theirs.model_copy(update={"framework": framework})
    [message] = said(compared(ours, there, ("A", "B")), severity)
    assert message.endswith("true = ignore in A, true = attend in B")


@pytest.mark.parametrize(
    ("second", "note"),
    [
        (("padding", IGNORE), ""),
        (("mask", IGNORE), "padding of A and mask of B are the same mask"),
        of_a_release(("padding", "~m.bool()"), ""),
    ],
)
def test_the_same_meaning_is_no_difference(second: tuple[str, str], note: str) -> None:
    found = list(compared(called(taking("padding", IGNORE)), called(taking(*second)), ("A", "B")))
    assert said(found) == []
    assert said(found, "note") == [note] * bool(note)


@pytest.mark.release
def test_forms_that_one_alone_takes_are_said() -> None:
    ours = called(taking("mask", "m.bool()"))
    by_flags = called(taking("mask", "m & (m == m)"))  # refuses floats
    assert said(compared(ours, by_flags, ("A", "B"))) == []
    assert said(compared(ours, by_flags, ("A", "B")), "note") == [
        "mask: A alone takes float32 [batch, sequence], int64 [batch, sequence]"
    ]
    wide = called(BARE["Fused"]())  # [B, 1, 1, S] and wider ones
    [message] = said(compared(ours, wide, ("A", "B")))
    assert message.endswith("no form is taken by both")


def test_a_mask_that_one_alone_has_is_said_to_be_not_compared() -> None:
    ours, theirs = called(BARE["torch_layer"](batch_first=True)), called(taking("padding", IGNORE))
    found = list(compared(ours, theirs, ("A", "B")))
    assert said(found) == ["src_mask of A (true = ignore) is like no argument of B: it was not compared"]


@pytest.mark.release
def test_the_layout_of_x_and_a_missing_mask_mean_the_same() -> None:
    class Causal(Padded):
        def hidden(self, scores: Tensor, seen: Tensor) -> Tensor:
            return scores.masked_fill(~seen[:, None, None, :], -torch.inf)

        def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
            if mask is None:
                return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return super().attend(q, k, v, mask)

    plain = called(Padded())
    [message] = said(compared(plain, called(BARE["torch_layer"]()), ("A", "B")), "error")
    assert message == "x: [batch, sequence, d_model] in A, [sequence, batch, d_model] in B"
    [message] = said(compared(plain, called(Causal()), ("A", "B")), "error")
    assert message == "without a mask: no position sees a later one in B, each sees all others in A"


@pytest.mark.parametrize(
    ("name", "seen", "due"),
    [
        ("attention_mask", IGNORE, "attention_mask: true = ignore here, and true = attend wherever it is known"),
        ("src_key_padding_mask", ATTEND, "src_key_padding_mask: true = attend here, and true = ignore wherever"),
        of_a_release("key_padding_mask", ATTEND, "key_padding_mask: true = attend here"),
        ("attention_mask", ATTEND, ""),
        of_a_release("key_padding_mask", IGNORE, ""),
        of_a_release("padding_mask", ATTEND, "padding_mask: true = attend here"),
        of_a_release("padding_mask", IGNORE, ""),
        *(of_a_release(name, seen, "") for name in ("attn_mask", "mask") for seen in (ATTEND, IGNORE)),
    ],
)
def test_a_known_name_used_the_other_way_is_a_warning_by_itself(name: str, seen: str, due: str) -> None:
    found = said(argument_findings(called(taking(name, seen))))
    assert [message[: len(due)] for message in found] == [due] * bool(due)


@pytest.mark.release
def test_a_known_name_used_the_other_way_is_an_error_where_a_layer_is_stated() -> None:
    found = called(taking("src_key_padding_mask", ATTEND)).model_copy(update={"stated": load().layers["pre-gelu"]})
    assert said(argument_findings(found), "error") == [
        "src_key_padding_mask: true = attend here, and true = ignore wherever it is known"
    ]
    for ours, theirs in (
        (("key_padding_mask", ATTEND), ("padding", IGNORE)),
        (("mask", ATTEND), ("attention_mask", IGNORE)),
    ):
        sides = called(taking(*ours)), called(taking(*theirs, before="*, "))
        [message] = said(compared(*sides, ("A", "B")), "error")
        assert message.endswith("true = attend in A, true = ignore in B"), "no call reaches both, and a name misleads"


class Both(Padded):
    """Two masks, of queries and keys [S, S] and of padding [B, S], true = ignore, in this order."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Any) -> Tensor:
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        by_query, padding = mask
        scores = scores if by_query is None else scores.masked_fill(by_query.bool(), -1e30)
        return (scores if padding is None else scores.masked_fill(padding[:, None, None].bool(), -1e30)).softmax(-1) @ v

    def forward(self, x: Tensor, src_mask: Tensor | None = None, padding: Tensor | None = None) -> Tensor:
        return super().forward(x, (src_mask, padding))


class Exchanged(Both):
    def forward(self, x: Tensor, padding: Tensor | None = None, src_mask: Tensor | None = None) -> Tensor:
        return super().forward(x, src_mask, padding)


class ByName(Both):
    def forward(self, x: Tensor, *, padding: Tensor | None = None, src_mask: Tensor | None = None) -> Tensor:
        return super().forward(x, src_mask, padding)


@pytest.mark.release
def test_masks_in_one_anothers_places_are_an_error() -> None:
    plain = called(Both())
    [message] = said(compared(plain, called(Exchanged()), ("A", "B")))
    assert message == "masks are in another order: src_mask, padding in A, padding, src_mask in B"
    assert said(compared(plain, called(ByName()), ("A", "B"))) == [], "no call by place reaches them"


def both(forward: str, by_query: str, padding: str) -> nn.Module:
    """A layer of two masks whose forward takes the arguments `forward`, and these as what they are."""
    made: dict[str, Any] = {"base": Both}
    exec(f"def forward(self, x, {forward}): return base.forward(self, x, {by_query}, {padding})", made)
    torch.manual_seed(0)
    return type("Layer", (Both,), {"forward": made["forward"]})()


@pytest.mark.release
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("attn_mask", "key_padding_mask"),
        of_a_release("mask", "src_key_padding_mask"),
    ],
)
def test_masks_that_do_one_anothers_work_are_an_error_that_names_both(first: str, second: str) -> None:
    found = called(both(f"{first}=None, {second}=None", second, first))
    [message] = said(argument_findings(found))
    assert message.startswith(f"{second} is taken for queries and keys, [sequence, sequence], and not as [batch, seq")
    assert f"; {first} is taken as [batch, sequence] alone: a call by these names gives each as the other" in message
    stated = found.model_copy(update={"stated": load().layers["pre-gelu"]})
    assert said(argument_findings(stated), "error") == [message]
    right = called(both(f"{first}=None, {second}=None", first, second))
    assert said(argument_findings(right.model_copy(update={"stated": load().layers["pre-gelu"]}))) == []


@pytest.mark.release
def test_a_mask_of_padding_that_tells_queries_apart_is_an_error() -> None:
    stated = {"stated": load().layers["pre-gelu"]}
    found = called(taking("key_padding_mask", "m[None, None].expand(2, -1, -1, -1)[:1]", base=ByQuery))
    [message] = said(argument_findings(found.model_copy(update=stated)), "error")
    assert message.endswith("and not as [batch, sequence], as a mask of this name is everywhere else")
    wide = called(taking("padding_mask", "m", base=ByQuery))  # [B, 1, 1, S] is usual, and takes [S, S] by chance
    assert said(argument_findings(wide.model_copy(update=stated))) == []


@pytest.mark.release
def test_masks_in_other_places_than_those_of_torch_are_a_warning() -> None:
    names = ["src_mask", "src_key_padding_mask"]
    right, other, by_name = (
        called(both(taken, *names))
        for taken in (
            "src_mask=None, src_key_padding_mask=None",
            "src_key_padding_mask=None, src_mask=None",
            "*, src_key_padding_mask=None, src_mask=None",
        )
    )
    [message] = said(argument_findings(other))
    assert message.startswith("src_key_padding_mask stands before src_mask: a call by place")
    assert said(argument_findings(right)) == said(argument_findings(by_name)) == []


class ByQuery(Padded):
    def hidden(self, scores: Tensor, hidden: Tensor) -> Tensor:
        return scores.masked_fill(hidden.bool(), -1e30)


class Behind(Padded):
    def forward(self, mask: Tensor, x: Tensor) -> Tensor:
        return super().forward(x, mask)


class BehindAnOption(Padded):
    def forward(self, attention_mask: Tensor | None = None, hidden_states: Tensor | None = None) -> Tensor:
        return super().forward(hidden_states, attention_mask)


@pytest.mark.parametrize(
    ("base", "x", "mask"), [of_a_release(Behind, "x", "mask"), (BehindAnOption, "hidden_states", "attention_mask")]
)
def test_an_x_that_stands_behind_a_mask_is_given_by_name_and_said(base: type, x: str, mask: str) -> None:
    found = called(base())
    assert [each.argument for each in found.masks] == [mask]
    assert said(argument_findings(found)) == [f"{x} stands behind {mask}, and was given by its name"]
    stated = found.model_copy(update={"stated": load().layers["pre-gelu"]})
    assert said(argument_findings(stated), "error") == [f"{x} stands behind {mask}: a call by place gives x as {mask}"]
    [message] = said(compared(found, called(Padded()), ("A", "B")), "error")
    assert message == f"x: behind {mask} in A, the first argument in B"


@pytest.mark.release
@pytest.mark.parametrize("name", daily(["mask"], ["padding_mask", "attention_mask", "mask"]))
@pytest.mark.parametrize("use", daily([MULTIPLIED], [MULTIPLIED, "y.masked_fill((m != 0)[..., None], 0)"]))
def test_a_mask_of_the_output_alone_hides_nothing_from_attention(name: str, use: str) -> None:
    made: dict[str, Any] = {"base": Padded, "use": eval(f"lambda y, m: {use}")}
    body = f"y = base.forward(self, x); return y if {name} is None else use(y, {name})"
    exec(f"def forward(self, x, {name}=None): {body}", made)
    found = called(type("Layer", (Padded,), {"forward": made["forward"]})())
    severity = "warning" if name == "mask" else "error"
    [message] = said(argument_findings(found), severity)
    assert message.startswith(
        f"{name} changes the output, and hides no position from attention (bool [batch, sequence])"
    )
    assert found.judged_without == (name,)
    stated = found.model_copy(update={"stated": load().layers["pre-gelu"]})
    assert said(argument_findings(stated), "error") == [message]


_ALONG_QUERIES = "scores.masked_fill(~m[:, None, :, None], FILL)"
_IN_A_HEAD = "torch.cat([scores[:, :1].masked_fill(~m[:, None, None, :], -torch.inf), scores[:, 1:]], 1)"
_NEXT = "scores.masked_fill(~m.roll(1, 1)[:, None, None, :], -torch.inf)"


@pytest.mark.parametrize(
    ("does", "said_of_it"),
    [
        (_ALONG_QUERIES.replace("FILL", "-1e9"), "hides queries, not keys: what it flags is still attended to"),
        of_a_release(_ALONG_QUERIES.replace("FILL", "-torch.inf"), "hides queries, not keys"),
        (_IN_A_HEAD, "hides what it flags in a part of attention alone (bool [batch, sequence])"),
        of_a_release(_NEXT, "hides another position than it flags: that +1 further"),
    ],
)
def test_a_mask_along_another_axis_or_shifted_is_wrong_whatever_its_name(does: str, said_of_it: str) -> None:
    hidden = eval(f"lambda self, scores, m: {does}", {"torch": torch})
    found = called(taking("mask", ATTEND, base=type("Wrong", (Padded,), {"hidden": hidden})))
    [message] = said(argument_findings(found), "error")
    assert message.startswith(f"mask {said_of_it}")
    assert found.judged_without == ("mask",)


@pytest.mark.release
def test_an_added_mask_of_a_known_name_is_as_known() -> None:
    class Added(Padded):
        def hidden(self, scores: Tensor, seen: Tensor) -> Tensor:
            return scores + seen[:, None, None, :]

    for name in ("attention_mask", "key_padding_mask"):
        found = called(taking(name, "m", base=Added))
        assert found.masks[0].meaning == "additive"
        assert said(argument_findings(found)) == []
    assert called(nn.TransformerEncoderLayer(D, H, 24)).masks
    assert said(argument_findings(called(nn.TransformerEncoderLayer(D, H, 24)))) == []


class OnHeads(Padded):
    """Its mask's batch axis falls on the heads."""

    def hidden(self, scores: Tensor, seen: Tensor) -> Tensor:
        return scores.masked_fill(~seen[:, None, :].expand(-1, seen.shape[1], -1), -torch.inf)


class Heads3(OnHeads):
    """As many heads as the probe has items, so that it is taken there."""

    def __init__(self) -> None:
        super().__init__(d=24, h=3)


class OneItem(Padded):
    """It works for a batch of one."""

    def hidden(self, scores: Tensor, seen: Tensor) -> Tensor:
        return scores.masked_fill(~seen.view(1, 1, 1, -1), -torch.inf)


class Cut(Padded):
    """With a mask its output is of another shape."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x, mask)[:, 1 if mask is not None else 0 :]


class Undefined(Padded):
    def hidden(self, scores: Tensor, seen: Tensor) -> Tensor:
        return scores / (seen.sum() * 0)


@pytest.mark.parametrize(
    ("base", "parts"),
    [
        (OnHeads, ("bool [batch, sequence] at batch 3, 4 and 7: RuntimeError: ", "taken at batch 1 and 2 alone")),
        of_a_release(
            OneItem, ("bool [batch, sequence] at batch 2, 3, 4 and 7: RuntimeError: ", "taken at batch 1 alone")
        ),
        (Cut, (": it returns [3, 4, 16], and x is [3, 5, 16]",)),
        of_a_release(Undefined, (": its output is not finite",)),
    ],
)
def test_a_mask_that_is_refused_is_an_error(base: type, parts: tuple[str, ...]) -> None:
    module = taking("padding_mask", "m == 0", base=base)
    found = called(module)
    [message] = said(argument_findings(found), "error")
    forms = "" if "is taken at batch" in message else " in every form that was tried"
    assert message.startswith(f"padding_mask is refused{forms}: bool [batch, sequence]")
    assert all(part in message for part in parts), message
    assert found.judged_without == ("padding_mask",)
    assert not any("no argument of it" in message for message in said(argument_findings(found), "note"))


@pytest.mark.release
def test_a_mask_that_is_refused_for_some_batches_is_an_error() -> None:
    class Odd(Padded):
        def hidden(self, scores: Tensor, seen: Tensor) -> Tensor:
            assert len(seen) % 2, "an even batch"
            return super().hidden(scores, seen)

    found = called(taking("padding_mask", "m == 0", base=Odd))
    [message] = said(argument_findings(found), "error")
    assert message.startswith(
        "padding_mask is refused: bool [batch, sequence] at batch 2: AssertionError: an even batch"
    )
    assert message.endswith("taken at batch 3 and 7 alone")
    [message] = said(argument_findings(called(taking("mask", "m == 0", base=Heads3), 3)), "error")
    assert message.startswith("mask is refused: bool [batch, sequence] at batch 2 and 7: RuntimeError")


@pytest.mark.parametrize(
    "seen",
    [of_a_release("m & (m == m)"), "(m.is_floating_point() or 1 / 0) and m != 0", of_a_release("m.to(torch.bool)")],
)
def test_one_form_that_is_taken_is_enough(seen: str) -> None:
    found = called(taking("mask", seen))
    assert [mask.meaning for mask in found.masks] == ["attend"]
    assert said(argument_findings(found)) == []


@pytest.mark.release
def test_rare_axes_are_found_where_no_others_are_taken() -> None:
    for seen, axes in (("(m != 0).T", "SB"), ("(m != 0).squeeze(2)", "BS1")):
        found = called(taking("mask", seen))
        assert [(mask.axes, mask.meaning) for mask in found.masks] == [(axes, "attend")]
        assert said(argument_findings(found)) == []
        assert said(compared(found, found, ("A", "B"))) == []


@pytest.mark.release
def test_masks_that_hide_nothing_or_in_part_are_said() -> None:
    class Weak(Padded):
        def hidden(self, scores: Tensor, seen: Tensor) -> Tensor:
            return scores - 3.0 * ~seen[:, None, None, :]

    [message] = said(argument_findings(called(taking("mask", IGNORE, base=Weak))))
    assert message.startswith("mask hides in part: ")
    found = called(taking("mask", "None"))
    assert said(argument_findings(found))[0].startswith("mask is taken and hides no position")


def test_a_mask_that_can_be_nothing_but_padding_and_hides_nothing_is_an_error() -> None:
    [message] = said(argument_findings(called(taking("src_key_padding_mask", "None"))), "error")
    assert message.startswith("src_key_padding_mask is taken and hides no position")


OTHERWISE = {
    "m if m.dtype == torch.bool else m == m": "is taken as int64 [batch, sequence], too, and does not hide so",
    "m if m.dtype == torch.bool else m == 0": "true = attend as bool [batch, sequence], and true = ignore as int64",
}


@pytest.mark.parametrize("seen", daily([*OTHERWISE][:1], OTHERWISE))
def test_a_mask_that_means_another_thing_as_integers_is_a_warning(seen: str) -> None:
    [message] = said(argument_findings(called(taking("mask", seen))), "warning")
    assert OTHERWISE[seen] in message


@pytest.mark.parametrize(
    "more",
    [
        of_a_release(", head_mask=None, token_type_ids=None, output_attentions=None, return_dict=None"),
        ", *, need_weights: bool | None = None, is_causal: bool = False, mask_type: str = 'x', block_mask=None",
        of_a_release(", use_cache=None, layer_idx: int | None = None, past_key_values=None"),
    ],
)
def test_arguments_that_are_no_masks_are_no_error(more: str) -> None:
    found = called(taking("padding", IGNORE, after=more))
    assert said(argument_findings(found)) == []
    assert found.judged_without == ()


class Positioned(Padded):
    """`given`, where it is, is used as `use` says."""

    use: Callable[[Any, Tensor, Tensor], Tensor]

    def forward(self, x: Tensor, mask: Tensor | None = None, given: Tensor | None = None) -> Tensor:
        return super().forward(x if given is None else self.use(x, given), mask)


USES: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "positions": lambda self, x, g: x + torch.sin(g[..., None].to(x.dtype)),
    "an embedding of positions": lambda self, x, g: x + torch.eye(512, x.shape[-1])[g.long()],
    "a table of positions": lambda self, x, g: x + g.view(1, *x.shape[1:]),
    "lengths": lambda self, x, g: x * (torch.arange(x.shape[1])[None] < g.view(x.shape[0], 1))[..., None],
    "a second sequence": lambda self, x, g: x + g.mean(1, keepdim=True).expand(x.shape[0], 1, x.shape[2]),
    "angles": lambda self, x, g: x * torch.cat(list(g.chunk(2, -1)) * H, -1).reshape(1, x.shape[1], x.shape[2]).cos(),
    "a pair": lambda self, x, g: x + sum(part.mean() for part in _pair(g)),
}


def _pair(given: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = given
    return cos, sin


@pytest.mark.parametrize("seen", daily([ATTEND], [ATTEND, IGNORE]))
def test_what_hides_what_it_flags_is_a_mask_whatever_its_name(seen: str) -> None:
    found = called(taking("m", seen.replace("m != 0", "m").replace("m == 0", "~m")))
    assert [(mask.argument, mask.meaning) for mask in found.masks] == [("m", "attend" if seen == ATTEND else "ignore")]
    assert not found.judged_without


@pytest.mark.release
@pytest.mark.parametrize("use", daily(["a table of positions"], USES))
def test_an_argument_that_changes_the_output_and_was_not_given_is_named(use: str) -> None:
    torch.manual_seed(0)
    found = called(type("Layer", (Positioned,), {"use": USES[use]})())
    assert found.judged_without == ("given",)
    [message] = said(argument_findings(found))
    assert message.startswith("given was not given, and changes the output where it is (")
    assert said(reference_findings(called(Padded()), found, "other"), "warning")[-1].endswith("its argument given")


@pytest.mark.release
def test_an_argument_that_changes_nothing_is_no_more_than_listed() -> None:
    found = called(type("Layer", (Positioned,), {"use": lambda self, x, given: x})())
    doubled = called(type("Layer", (Positioned,), {"use": lambda self, x, given: 2 * x})())
    assert doubled.judged_without == ("given",)
    assert [(each.argument, each.changes) for each in found.ungiven_arguments] == [("given", False)]
    assert found.judged_without == ()


def test_what_is_needed_and_not_given_is_named() -> None:
    class Needing(Padded):
        def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
            return super().forward(x, torch.arange(x.shape[1])[None] < lengths[:, None])

    class Unguarded(Padded):
        def forward(self, x: Tensor, mask: Tensor | None = None, *, positions: Tensor | None = None) -> Tensor:
            return super().forward(x + positions[..., None], mask)  # type: ignore[index]

    with pytest.raises(BadTarget, match="it needs lengths beside x, and None is refused: TypeError"):
        called(Needing())
    with pytest.raises(BadTarget) as raised:
        called(Unguarded())
    assert "it takes no x without positions, whose default None it cannot do with" in raised.value.problem
    assert "--with positions=VALUE" in raised.value.hint


def test_a_module_that_nothing_compiles_is_called_without_the_compiler() -> None:
    """PyTorch's takes as long to import as PyTorch itself."""
    reader = "encoder_conformance.readers.module_target.frameworks.pytorch_compiled"
    called = f"import sys, torch, {reader} as it; it.inside(torch.nn.Linear(2, 2))"
    program = f"{called}; print('torch._dynamo' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "False\n"

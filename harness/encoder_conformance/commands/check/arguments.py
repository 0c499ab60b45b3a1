"""The findings on a module's arguments: masks by which none can be given, names used otherwise, what was not given."""

import re
from collections.abc import Collection, Iterator
from pathlib import PurePath

from encoder_conformance.protocol.arguments import MEANINGS, MaskArgument, UngivenArgument, UnusableMask
from encoder_conformance.protocol.finding_kinds import FindingKind
from encoder_conformance.protocol.findings import Finding, Severity, SourceLine, said_at, source_of
from encoder_conformance.protocol.module_description import ModuleDescription
from encoder_conformance.spec.words import listed
from encoder_conformance.subjects.interfaces import compared, conventional_meaning, is_of_padding, usual_meaning


def argument_findings(described: ModuleDescription, reference: ModuleDescription | None = None) -> Iterator[Finding]:
    """What its arguments show by themselves. `reference`: the module that states its layer: what hides nothing there is
    due to hide nothing."""
    idle = {each.argument for each in reference.unusable_masks if each.kind in _HIDE_NOTHING} if reference else set()
    is_stated = described.stated is not None
    yield from _of_place(described)
    for unusable in described.unusable_masks:
        stated = is_stated and unusable.argument not in idle
        line = _line_of(unusable, described)
        found = _of_unusable(unusable, described, line, stated=stated)
        yield found.model_copy(update={"about": {**found.about, **source_of(line)}})
    not_taken = [each for each in described.ungiven_arguments if each.matters and not each.changes and not each.given]
    if not described.masks and not described.unusable_masks:
        which = "that took an array" if not_taken else "of it"  # the others may hide
        yield _finding("note", "no-mask", f"no argument {which} hides a position: it is judged without masks")
    turned = described.not_read is not None and "softmax_over_queries" in described.not_read.features
    for mask in described.masks:
        yield from () if turned else _of_axes(mask)  # a softmax over the queries turns what a mask hides
        yield from (reversed_ones := [*_of_name(mask, described, stated=is_stated)])
        yield from _of_forms(mask, {each.about["form"] for each in reversed_ones})
    yield from _of_exchanged(described, stated=is_stated)
    if not_taken:
        names = [each.argument for each in not_taken]
        verb, them = ("were", "them") if names[1:] else ("was", names[0])
        message = f"{listed(names)} {verb} not given: no array that was tried is taken. It is judged without {them}"
        yield _finding("note", "argument-not-taken", message, arguments=names)
    for argument in described.ungiven_arguments:
        yield from () if argument in not_taken else _of_ungiven(argument)


def reference_findings(described: ModuleDescription, reference: ModuleDescription, name: str) -> Iterator[Finding]:
    """What is called otherwise than in `reference`, the module of this name whose layer it should be."""
    yield from compared(described, reference, ("the module", name))
    for argument in reference.judged_without:
        message = f"the layer of {name} is stated without its argument {argument}"
        yield _finding("warning", "reference-without-argument", message, argument=argument)


def _of_place(described: ModuleDescription) -> Iterator[Finding]:
    """x behind another argument: every call by place gives it as that."""
    if not (before := described.x.before):
        return
    about = {"argument": described.x.argument, "before": before}
    if described.stated is not None:
        message = f"{described.x.argument} stands behind {before}: a call by place gives x as {before}"
        hint = "x is the first argument of every layer that is known; it was given by name"
        yield _finding("error", "x-behind-argument", message, hint, **about)
    else:
        message = f"{described.x.argument} stands behind {before}, and was given by its name"
        hint = f"a call by place, as every layer that is known takes, gives x as {before}"
        yield _finding("warning", "x-behind-argument", message, hint, **about)


_HIDE_NOTHING = ("idle", "elsewhere")
_FRAME = re.compile(r"(.+):(\d+), in ")
"""The place of a line in a call that raised."""
_WITHOUT = "it is judged without"
_OTHER_SOFTMAX = frozenset(("softmax_over_queries", "softmax_over_heads", "softmax_over_items"))


def _line_of(mask: UnusableMask, described: ModuleDescription) -> str:
    """The line that reads the argument; of one that is refused, that which raises; where it hides nothing, that of the
    fill which is thrown away, if there is one."""
    if raising := _FRAME.match(mask.where):
        return f"{PurePath(raising[1]).name}:{raising[2]}"
    sources = (each.about.get("source") for each in described.notes if each.kind == "fill-thrown-away")
    thrown_away = (str(SourceLine.model_validate(each)) for each in sources if each) if mask.kind == "idle" else ()
    return next(iter(thrown_away), described.line_of_argument(mask.argument))


def _kind_of(mask: UnusableMask, described: ModuleDescription) -> str:
    """What is wrong with it: beside a softmax that is not over the keys what lowers a key's scores raises others."""
    features = described.not_read.features if described.not_read is not None else ()
    return "elsewhere" if mask.kind == "raises" and _OTHER_SOFTMAX.intersection(features) else mask.kind


def _of_unusable(mask: UnusableMask, described: ModuleDescription, line: str, *, stated: bool) -> Finding:
    """An error where a call raises, where a layer's mask leaves something of what it hides, and where one that can be
    nothing but a mask of padding hides nothing, or one of attention does something else."""
    name, at = mask.argument, said_at(line)
    about = {"argument": name, "form": mask.form}
    match _kind_of(mask, described):
        case "refused" | "sized" | "cuda":
            return _of_refused(mask)
        case "object":
            message = f"{name} takes a {mask.form}, and no array: it was not given"
            hint = f"what a {mask.form} hides is not asked"
            return _finding("warning", "mask-of-a-class", message, hint, **about)
        case "switch":
            message, hint = f"{name} is true or false{at}, and no array: {_WITHOUT}", f"--with {name}=True has it so"
            return _finding("note", "argument-not-taken", message, hint, arguments=[name])
        case "leaks":
            message = f"{name} hides in part: {mask.form} leaves {mask.leakage:.2g} of a position's influence"
            weak = stated or (described.not_read is None and mask.form.startswith("bool"))
            severity: Severity = "error" if weak else "warning"
            message, hint = f"{message}{at}: {_WITHOUT}", "what hides a position makes its scores −∞ before the softmax"
            return _finding(severity, "mask-hides-in-part", message, hint, **about, leakage=mask.leakage)
        case "flipped" | "raises":
            return _of_the_sign(mask, at)
        case "idle":
            message = f"{name} is taken and hides no position ({mask.form}){at}: {_WITHOUT}"
            severity = "error" if stated or name.endswith("padding_mask") else "warning"
            return _finding(severity, "mask-hides-nothing", message, **about)
        case "elsewhere":
            return _of_elsewhere(mask, described, stated=stated)
        case "replaces":
            message = f"{name} given as {mask.form} replaces the window: it is judged in a form that leaves the window"
            hint = f"a {name} of this form has to hide what lies beyond the window itself"
            return _finding("warning", "mask-replaces-window", message, hint, **about)
        case "overridden":
            others = " and ".join(mask.argument for mask in described.masks)
            message = f"{name} is ignored where {others} is given: it is judged without {name}"
            hint = f"who gives both has what {name} flags attended to: {others} has to hide it, too"
            return _finding("warning", "mask-ignored-beside-others", message, hint, argument=name)
    message = f"{name} is refused beside the other masks: it is judged without"
    return _finding("warning", "mask-refused-beside-others", message, argument=name)


def _of_the_sign(mask: UnusableMask, at: str) -> Finding:
    """An error: a number of the wrong sign is added to the scores, or stands in their place; by the module, of a mask
    that is no number itself."""
    name, about = mask.argument, {"argument": mask.argument, "form": mask.form}
    if mask.kind == "flipped":
        message = f"the sign of {name} is flipped: it hides a position at +1e9, and raises it at −1e9 ({mask.form})"
        hint = "what is added to the scores hides with −∞: is it subtracted?"
    else:
        message = f"{name} raises scores, and lowers none, as a number of the wrong sign does ({mask.form}){at}: "
        message, hint = f"{message}{_WITHOUT}", "what hides a key makes its score −∞ before the softmax"
    return _finding("error", "mask-sign-flipped", message, hint, **about)


def _of_refused(mask: UnusableMask) -> Finding:
    """An error, but where what is refused needs what this machine lacks."""
    if mask.kind == "cuda":
        message = f"{mask.argument} needs CUDA, and is given on the CPU: {mask.problem}: {_WITHOUT}"
        return _finding("warning", "mask-refused", message, mask.where, argument=mask.argument, form=mask.form)
    some = mask.raising and mask.taken
    at, only = (f" at batch {_listed(sizes)}" if some else "" for sizes in (mask.raising, mask.taken))
    taken = f"; it is taken{only} alone" if some else ""
    forms = " in every form that was tried" if mask.kind == "refused" and not some else ""
    message = f"{mask.argument} is refused{forms}: {mask.form}{at}: {mask.problem}{taken}"
    about = {"argument": mask.argument, "form": mask.form, "raising": mask.raising, "taken": mask.taken}
    kind: FindingKind = "mask-refused" if mask.kind == "refused" else "mask-refused-at-sizes"
    return _finding("error", kind, message, mask.where, **about)


def _of_elsewhere(mask: UnusableMask, described: ModuleDescription, *, stated: bool) -> Finding:
    """An error where what it does is a mistake whatever it is called, or where its name says that it hides keys: one
    of another name may be for rows of the output. In what is no layer, more than attention may mix positions."""
    name, about = mask.argument, {"argument": mask.argument, "form": mask.form}
    hint = "what it flags is still attended to: a mask hides keys, the scores' last axis, before their softmax"
    known = stated or name.endswith("padding_mask") or conventional_meaning(name, described.framework) is not None
    message = f"{name} changes the output, and hides no position from attention ({mask.form})"
    if described.not_read is not None and mask.does != "queries":
        known, hint = False, "attention, or whatever else mixes positions, still takes it"
        message = f"{name} changes the output, and what it flags still reaches other positions ({mask.form})"
    match mask.does:
        case "queries":
            known = True
            message = f"{name} hides queries, not keys: what it flags is still attended to ({mask.form})"
            hint = "a mask hides keys, the scores' last axis, as [batch, 1, 1, sequence] does"
        case "shifted" if described.not_read is None:
            known = True
            hint = "a mask hides the key that it flags: is one position taken off, or put before the others?"
            message = f"{name} hides another position than it flags: that {mask.shift:+d} further ({mask.form})"
        case "part" if described.not_read is None:
            known = True
            message = f"{name} hides what it flags in a part of attention alone ({mask.form})"
            hint = "is a head, or a layer, left without it, is it added as 0 and 1, or does it come behind the softmax?"
        case "attended" if described.not_read is None:
            known = True
            message = f"{name} changes what other positions get of what it flags, and does not hide it ({mask.form})"
            hint = "it is still attended to: what hides a position makes its scores −∞ before the softmax"
    severity: Severity = "error" if known else "warning"
    message = f"{message}{said_at(described.line_of_argument(name))}: {_WITHOUT}"
    return _finding(severity, "mask-not-of-scores", message, hint, **about)


def _listed(sizes: tuple[int, ...]) -> str:
    *most, last = map(str, sizes)
    return " and ".join(filter(None, (", ".join(most), last)))


def _of_axes(mask: MaskArgument) -> Iterator[Finding]:
    if mask.keys_first:
        message = f"{mask.argument} {mask.shape} has keys on its last axis but one, and queries on its last"
        hint = "everywhere else it is [query, key]; it is judged with masks that lie turned"
        yield _finding("error", "mask-keys-first", message, hint, argument=mask.argument, axes=mask.axes)


def _of_name(mask: MaskArgument, described: ModuleDescription, *, stated: bool) -> Iterator[Finding]:
    """A name that everybody knows, or its framework has a meaning for, used the other way round: what is stated is
    called by what names mean."""
    known, framework = usual_meaning(mask.argument), described.framework
    line = described.line_of_fill(mask.argument)
    usual = known or conventional_meaning(mask.argument, framework)
    for form in mask.forms:
        if usual and form.meanings and not {usual, "additive"} & {*form.meanings}:
            where = "wherever it is known" if known else f"in most of what is written for {framework}"
            here = "here"
            if mask.meaning in (usual, "additive"):  # in another form alone
                here, where = f"as {form.text}", f"as {mask.dtype} {mask.shape} and {where}"
            message = (
                f"{mask.argument}: {MEANINGS[form.meanings[0]]} {here}, and {MEANINGS[usual]} {where}{said_at(line)}"
            )
            severity: Severity = "error" if stated and known else "warning"
            said = {"argument": mask.argument, "meaning": form.meanings[0], "usual": usual, "form": form.text}
            about = {**said, **source_of(line)}
            hint = f"given as {form.text}; name it otherwise, or turn it round"
            yield _finding(severity, "mask-name-reversed", message, hint, **about)
            return


def _of_exchanged(described: ModuleDescription, *, stated: bool) -> Iterator[Finding]:
    """Masks that do one another's work, by what everybody knows of their names: numbers cannot tell, as each was given
    what it wants. And two whose places are the other way round than in the framework's own layers."""
    severity: Severity = "error" if stated else "warning"
    of_keys = next((mask for mask in described.masks if not is_of_padding(mask.argument) and _is_of_keys(mask)), None)
    for mask in (mask for mask in described.masks if is_of_padding(mask.argument) and _is_of_queries(mask)):
        name = f"{mask.argument} is taken for queries and keys, [sequence, sequence], and not as [batch, sequence]"
        if of_keys is not None:
            other = f"{of_keys.argument} is taken as {of_keys.shape} alone"
            message = f"{name}; {other}: a call by these names gives each as the other"
            hint = "are the two exchanged? Each was given what it wants, by its name"
            about = {"arguments": [mask.argument, of_keys.argument]}
            yield _finding(severity, "masks-exchanged", message, hint, **about)
        elif mask.by_query:
            message = f"{name}, as a mask of this name is everywhere else"
            yield _finding(severity, "padding-mask-by-query", message, argument=mask.argument)
    places = {mask.argument: mask.place for mask in described.masks if mask.place is not None}
    for first, second in _TORCH_ORDER if described.framework == "PyTorch" else ():
        if first in places and second in places and places[first] > places[second]:
            message = (
                f"{second} stands before {first}: a call by place, as of torch's own layer, gives each as the other"
            )
            hint = "both were given by their names, and so the numbers do not show it"
            yield _finding("warning", "masks-order-unusual", message, hint, arguments=[second, first])


def _is_of_keys(mask: MaskArgument) -> bool:
    """Whether it is taken as one of padding, and in no form that tells queries apart."""
    forms = {form.axes for form in mask.forms if form.meanings}
    return "BS" in forms and not any(axes.count("S") == 2 for axes in forms)


def _is_of_queries(mask: MaskArgument) -> bool:
    """Whether it is taken in forms that tell queries apart, and not as one of padding: what takes [batch, 1, 1,
    sequence] is either."""
    forms = {form.axes for form in mask.forms if form.meanings}
    return "BS" not in forms and any(axes.count("S") == 2 for axes in forms)


_TORCH_ORDER = (("src_mask", "src_key_padding_mask"),)
"""Masks in the places that they have in torch's own encoder layer."""


_TRUTH = ("bool", "int64")
"""Formats of a mask that says of each key whether it is there."""


def _of_forms(mask: MaskArgument, told: Collection[object]) -> Iterator[Finding]:
    """Forms in which it is taken, too, and hides nothing, or the opposite of what it hides in its own. `told`: those of
    which the latter was said."""
    of_same_axes = [form for form in mask.forms if form.axes == mask.axes]
    others = [form for form in of_same_axes if {form.dtype, mask.dtype} == {*_TRUTH}]
    own = f"{mask.dtype} {mask.shape}"
    for form in of_same_axes:
        if form.dtype == "bool" and not form.meanings and mask.meaning == "additive":
            message = f"{mask.argument} is taken as {form.text}, too, and hides nothing then: it is added, as {own} is"
            about = {"argument": mask.argument, "form": form.text, "own": own}
            yield _finding("note", "mask-form-hides-nothing", message, "give it as numbers, 0 and −∞", **about)
    for form in others:
        about = {"argument": mask.argument, "form": form.text, "own": own}
        if not form.meanings:
            message = f"{mask.argument} is taken as {form.text}, too, and does not hide so what it hides as {own}"
            hint = "a call with that goes on with another mask, or without any"
            yield _finding("warning", "mask-form-hides-nothing", message, hint, **about)
        elif mask.meaning not in form.meanings and form.text not in told:
            message = (
                f"{mask.argument}: {MEANINGS[mask.meaning]} as {own}, and {MEANINGS[form.meanings[0]]} as {form.text}"
            )
            yield _finding("warning", "mask-forms-disagree", message, **about)


def _of_ungiven(argument: UngivenArgument) -> Iterator[Finding]:
    name = argument.argument
    if argument.changes and argument.given:
        message = f"{name} was given as {argument.given}, and other values of it change the output ({argument.form})"
        hint = "the layer without it is judged"
        yield _finding("warning", "argument-not-given", message, hint, argument=name, form=argument.form)
    elif argument.changes:
        message = f"{name} was not given, and changes the output where it is ({argument.form})"
        hint, about = f"it is judged without {name}", {"argument": name, "form": argument.form}
        yield _finding("warning", "argument-not-given", message, hint, **about)
    elif argument.matters:
        message = f"{name} was given as {argument.given}: no other array that was tried is taken"
        yield _finding("note", "argument-not-taken", message, arguments=[name])


def _finding(severity: Severity, kind: FindingKind, message: str, hint: str = "", **about: object) -> Finding:
    return Finding(severity=severity, kind=kind, message=message, hint=hint, about=about)

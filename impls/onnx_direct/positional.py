"""What a layer and an embedding know of positions: angles, buckets, a window, and rows that are added to x.

Shapes: S sequence, n the features that are rotated, H num_heads, R buckets.
"""

from encoder_conformance.impls.onnx_direct.form import Form, Lines
from encoder_conformance.spec.plan import Step

SHARED = ("places", "apart", "buckets", "distance_number")
"""Values that are the same for each layer of a stack."""


def places(form: Form) -> Lines:
    """places [S], apart [S, S], key less query, and the bucket of each (E-23, E-42), or
    distance_number [S, S] (E-43)."""
    if not form.reads_positions:
        return []
    lines = [
        "size_of_sequence = Shape <start = 1, end = 2> (x)",
        "length_of_sequence = Squeeze(size_of_sequence)",
        "places = Range(first, length_of_sequence, next)",
        "query_places = Unsqueeze(places, last_axis)",
        "apart = Sub(places, query_places)",
    ]
    if not (bias := form.attention.get("position_bias")):
        return lines
    if bias.get("distances") == "linear":
        lines += ["distance = Abs(apart)", "distance_number = CastLike(distance, nought)"]
    elif bias.get("distances") == "clipped":
        lines += [
            "clipped_before = Max(apart, farthest_before)",
            "clipped = Min(clipped_before, farthest_after)",
            "buckets = Sub(clipped, farthest_before)",
        ]
    else:
        lines += [
            "distance = Abs(apart)",
            "distances = Unsqueeze(distance, last_axis)",
            "is_past = GreaterOrEqual(distances, bucket_starts)",  # [S, S, R / 2 - 1]
            "past = Cast <to = 7> (is_past)",
            "bucket_of_distance = ReduceSum <keepdims = 0> (past, last_axis)",
            "is_after = Greater(apart, first)",
            "of_half = Where(is_after, half_of_buckets, first)",
            "buckets = Add(bucket_of_distance, of_half)",
        ]
    return lines


def angles(form: Form) -> Lines:
    """cosine and sine [S, n / 2] of this layer's angles (E-22), at least in float32."""
    if form.theta is None:
        return []
    wide = 11 if form.dtype == "float64" else 1
    return [
        f"place = Cast <to = {wide}> (places)",
        "column = Unsqueeze(place, last_axis)",
        f"angles = Mul(column, {rates(form)})",
        "wide_cosine = Cos(angles)",
        "wide_sine = Sin(angles)",
        "cosine = CastLike(wide_cosine, nought)",
        "sine = CastLike(wide_sine, nought)",
    ]


def rates(form: Form) -> str:
    """The constant that holds the frequencies of this layer."""
    return "rates_of_heads" if form.theta == form.attention["rope"]["theta"] else "rates_of_global_heads"


def rotation(form: Form, step: Step, x: str) -> Lines:
    """The first n features of each head turned: x [B, H, S, d], or [B, K, S, d]."""
    y, interleaved = step.makes, step.right == "interleaved"
    lines, turned, rest, cosine, sine = [], x, "", "cosine", "sine"
    if form.attention["rope"].get("rotated"):
        turned, rest = f"{y}_given", f"{y}_rest"
        lines.append(f"{turned}, {rest} = Split <axis = -1> ({x}, rotated_sizes)")
    if interleaved:
        lines += [
            f"{y}_pairs = Reshape({turned}, pairs_of_neighbours)",
            f"{y}_one, {y}_other = Split <axis = -1> ({y}_pairs, pair_sizes)",
            f"{y}_cosine = Unsqueeze(cosine, last_axis)",
            f"{y}_sine = Unsqueeze(sine, last_axis)",
        ]
        cosine, sine = f"{y}_cosine", f"{y}_sine"
    else:
        lines.append(f"{y}_one, {y}_other = Split <axis = -1> ({turned}, half_sizes)")
    lines += [
        f"{y}_one_cosine = Mul({y}_one, {cosine})",
        f"{y}_other_sine = Mul({y}_other, {sine})",
        f"{y}_first = Sub({y}_one_cosine, {y}_other_sine)",
        f"{y}_other_cosine = Mul({y}_other, {cosine})",
        f"{y}_one_sine = Mul({y}_one, {sine})",
        f"{y}_second = Add({y}_other_cosine, {y}_one_sine)",
    ]
    parts = [f"{y}_first", f"{y}_second"]
    if interleaved:
        lines += [
            f"{y}_beside = Concat <axis = -1> ({y}_first, {y}_second)",
            f"{y}_in_order = Reshape({y}_beside, features_of_heads)",
        ]
        parts = [f"{y}_in_order"]
    return [*lines, f"{y} = Concat <axis = -1> ({', '.join(filter(None, (*parts, rest)))})"]


def position_bias(form: Form, step: Step, x: str) -> Lines:
    """Scores x [B, H, S, S] with the row of each distance's bucket added (E-23)."""
    return [*position_numbers(step), f"{step.makes} = Add({x}, position_numbers)"]


def position_numbers(step: Step) -> Lines:
    """position_numbers [H, S, S], what is added to scores; nothing where they are those of layer 0, which all share."""
    if step.right == "linear":
        return ["lost_by_distance = Mul(slopes, distance_number)", "position_numbers = Neg(lost_by_distance)"]
    if "table" not in step.parameters:
        return []
    return [
        f"{step.makes}_rows = Gather <axis = 0> ({step.owner}.table, buckets)",
        f"position_numbers = Transpose <perm = [2, 0, 1]> ({step.makes}_rows)",
    ]


def seen(form: Form) -> Lines:
    """seen [B, H, S, S], the mask within this layer's window (E-26), and has_seen [B, H, S, 1], for queries that have a
    key there."""
    if form.window is None:
        return []
    return [
        "not_before = GreaterOrEqual(apart, keys_before)",
        "not_after = LessOrEqual(apart, keys_after)",
        "near = And(not_before, not_after)",
        "seen = And(mask, near)",
        "seen_number = Cast <to = 1> (seen)",
        _most(form, "most_seen", "seen_number"),
        "has_seen = Cast <to = 9> (most_seen)",
    ]


def _most(form: Form, y: str, x: str) -> str:
    if form.opset >= 18:
        return f"{y} = ReduceMax <keepdims = 1> ({x}, last_axis)"
    return f"{y} = ReduceMax <keepdims = 1, axes = [-1]> ({x})"


def sinusoidal(form: Form, step: Step, x: str) -> Lines:
    """x [B, S, D] and sines and cosines of each position (E-16)."""
    return [
        "sequence_size = Shape <start = 1, end = 2> (x)",
        "sequence_length = Squeeze(sequence_size)",
        "positions_of_x = Range(first, sequence_length, next)",
        "place = CastLike(positions_of_x, nought)",
        "column = Unsqueeze(place, last_axis)",
        "angles = Mul(column, rates)",  # [S, D / 2, rounded up]
        "sine = Sin(angles)",
        "cosine = Cos(angles)",
        "sine_last = Unsqueeze(sine, last_axis)",
        "cosine_last = Unsqueeze(cosine, last_axis)",
        "waves = Concat <axis = -1> (sine_last, cosine_last)",
        "features = Reshape(waves, pairs)",
        "added_positions = Slice(features, nothing, width, second_axis)",
        f"{step.makes} = Add({x}, added_positions)",
    ]


def learned_positions(form: Form, step: Step, x: str) -> Lines:
    """x [B, S, D] and the row of each position, or of each that is none of padding's (E-37)."""
    if step.choices["counted"] == "valid":
        at = [
            "valid_number = Cast <to = 7> (valid)",
            "valid_count = CumSum(valid_number, next)",
            "place_of_valid = Sub(valid_count, next)",
        ]
        counted = "place_of_valid"
    else:
        at = [
            "sequence_size = Shape <start = 1, end = 2> (x)",
            "sequence_length = Squeeze(sequence_size)",
            "place_of_any = Range(first, sequence_length, next)",
        ]
        counted = "place_of_any"
    return [
        *at,
        f"row_of_place = Add({counted}, first_row)",
        # What is padding has any row: where it counts for nothing, -1 would be before the table.
        "row = Max(row_of_place, first)",
        f"position_rows = Gather <axis = 0> ({step.owner}.weight, row)",
        f"{step.makes} = Add({x}, position_rows)",
    ]

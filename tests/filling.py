"""The blanks that `conform new` leaves, filled as somebody would who reads what each asks for."""

import ast
from pathlib import Path
from textwrap import dedent, indent

_FEED_FORWARD = """
h = linear(x, p, "feed_forward.hidden")
{activation}
return linear(h, p, "feed_forward.output")
"""
_ATTENTION = """
B, S, D = x.shape

def heads(name):
    return linear(x, p, f"attention.{{name}}").reshape(B, S, H, D // H).transpose(0, 2, 1, 3)

q, k, v = heads("query"), heads("key"), heads("value")
scores = q @ k.transpose(0, 1, 3, 2) * scale
if bias is not None:
    scores = scores + bias
if mask is not None:
    scores = {np}.where(mask, scores, masked_score)
weights = {softmax}
merged = (weights @ v).transpose(0, 2, 1, 3).reshape(B, S, D)
return linear(merged, p, "attention.output")
"""

FILLS: dict[str, dict[str, str]] = {
    "numpy": {
        "layer_norm": """
            centred = x - x.mean(-1, keepdims=True)
            return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + x.dtype.type(epsilon)) * gain + shift
            """,
        "attention": _ATTENTION.format(np="np", softmax="softmax(scores)").replace(
            "B, S, D = x.shape\n",
            "B, S, D = x.shape\nscale, masked_score = x.dtype.type(scale), x.dtype.type(masked_score)\n\n"
            "def softmax(scores):\n    e = np.exp(scores - scores.max(-1, keepdims=True))\n"
            "    return e / e.sum(-1, keepdims=True)\n",
            1,
        ),
        "feed_forward": _FEED_FORWARD.format(
            activation=dedent(
                """
                from scipy.special import erf
                t = h.dtype.type
                if activation == "relu":
                    h = np.maximum(h, t(0))
                elif activation == "silu":
                    h = h / (t(1) + np.exp(-h))
                elif activation == "gelu":
                    h = h * (t(1) + erf(h / t(2**0.5))) / t(2)
                else:
                    h = h * (t(1) + np.tanh(t((2 / np.pi) ** 0.5) * (h + t(0.044715) * h**3))) / t(2)
                """
            )
        ),
    },
    "jax": {
        "layer_norm": """
            centred = x - x.mean(-1, keepdims=True)
            return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gain + shift
            """,
        "attention": _ATTENTION.format(np="jnp", softmax="jax.nn.softmax(scores)"),
        "feed_forward": _FEED_FORWARD.format(
            activation=dedent(
                """
                known = {
                    "relu": jax.nn.relu,
                    "silu": jax.nn.silu,
                    "gelu": lambda h: jax.nn.gelu(h, approximate=False),
                    "gelu_tanh": lambda h: jax.nn.gelu(h, approximate=True),
                }
                h = known[activation](h)
                """
            )
        ),
    },
    "pytorch": {
        "attention": """
            projected = (of(x) for of in (self.query, self.key, self.value))
            q, k, v = (each.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for each in projected)
            scores = q @ k.transpose(-2, -1) * self.scale
            if bias is not None:
                scores = scores + bias
            if mask is not None:
                scores = scores.masked_fill(~mask, self.masked_score)
            return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
            """,
        "feed_forward": "return self.output(self.activation(self.hidden(x)))",
    },
    "keras": {
        "attention": """
            B, S = ops.shape(x)[:2]
            H, d = self.num_heads, self.d_model // self.num_heads
            q, k, v = (
                ops.transpose(ops.reshape(of(x), (B, S, H, d)), (0, 2, 1, 3))
                for of in (self.query, self.key, self.value)
            )
            scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) * self.scale
            if bias is not None:
                scores = scores + bias
            if mask is not None:
                scores = ops.where(mask, scores, ops.cast(self.masked_score, scores.dtype))
            context = ops.matmul(ops.softmax(scores), v)
            return self.out(ops.reshape(ops.transpose(context, (0, 2, 1, 3)), (B, S, self.d_model)))
            """,
        "feed_forward": "return self.shrink(self.activation(self.hidden(x)))",
    },
    "onnx": {
        "model_of": '''
            D, H, norm = layer["d_model"], layer["attention"]["num_heads"], layer["norm"]
            if D % H:
                raise ValueError(f"d_model = {D} is not divisible by num_heads = {H}")
            activations = {
                "relu": "a = Relu(h)",
                "gelu": "a = Gelu(h)",
                "gelu_tanh": 'a = Gelu<approximate = "tanh">(h)',
                "silu": "g = Sigmoid(h)  a = Mul(h, g)",
            }
            activation = layer["feed_forward"]["activation"]
            if activation not in activations:
                raise ValueError(f"activation {activation!r} is none of {', '.join(activations)}")
            tensors = {**own, "scale": np.array((D // H) ** -0.5, dtype)}
            tensors |= {"split": np.array([0, 0, H, D // H]), "merge": np.array([0, 0, D])}

            def linear(x, y, name):
                bias = f"{y} = Add({y}m, {name}.bias)" if f"{name}.bias" in own else f"{y} = Identity({y}m)"
                return f"{y}m = MatMul({x}, {name}.weight)  {bias}"

            def normed(x, y, name):
                return f"{y} = LayerNormalization<epsilon = {norm['epsilon']:.9g}>({x}, {name}.gain, {name}.shift)"

            pre = norm["placement"] == "pre"
            lines = [normed("x", "n1", "norm1") if pre else "n1 = Identity(x)"]
            for y, name in (("q", "query"), ("k", "key"), ("v", "value")):
                lines += [linear("n1", f"{y}0", f"attention.{name}"), f"{y}1 = Reshape({y}0, split)"]
                turned = "[0, 2, 3, 1]" if y == "k" else "[0, 2, 1, 3]"
                lines += [f"{y} = Transpose<perm = {turned}>({y}1)"]
            lines += ["s0 = MatMul(q, k)  s1 = Mul(s0, scale)  s = Add(s1, mask)  w = Softmax<axis = -1>(s)"]
            lines += ["c0 = MatMul(w, v)  c1 = Transpose<perm = [0, 2, 1, 3]>(c0)  c = Reshape(c1, merge)"]
            lines += [linear("c", "o", "attention.output"), "r1 = Add(x, o)"]
            lines += [normed("r1", "n2", "norm2") if pre else normed("r1", "n2", "norm1")]
            lines += [linear("n2", "h", "feed_forward.hidden"), activations[activation]]
            lines += [linear("a", "f", "feed_forward.output")]
            lines += ["output = Add(r1, f)"] if pre else ["r2 = Add(n2, f)", normed("r2", "output", "norm2")]
            text = f"""<ir_version: 10, opset_import: ["": 20]>
            layer (float[batch, sequence, {D}] x, float[batch, {H}, sequence, sequence] mask)
            => (float[batch, sequence, {D}] output) {{
            {" ".join(lines)}
            }}"""
            for name in sorted(tensors, key=len, reverse=True):
                text = text.replace(name, name.replace(".", "_"))
            model = onnx.parser.parse_model(text)
            named = {name.replace(".", "_"): name for name in tensors}
            for node in model.graph.node:
                node.input[:] = [named.get(given, given) for given in node.input]
            model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in tensors.items())
            return model
            ''',
    },
}
"""Framework → what a blank's text begins with → the lines in its place."""


def fill(folder: Path, framework: str) -> int:
    """Write these into a new folder; how many blanks it had."""
    filled = 0
    for path in folder.glob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [node for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.Raise)]
        for node in sorted(found, key=lambda node: -node.lineno):
            said = ast.unparse(node)
            if "BLANK: " not in said:
                continue
            name = said.split("BLANK: ")[1].split(",")[0].split(":")[0]
            code = indent(dedent(FILLS[framework][name]).strip("\n"), " " * node.col_offset)
            lines[node.lineno - 1 : node.end_lineno] = code.splitlines()
            filled += 1
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return filled

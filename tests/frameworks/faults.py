"""Right files, written by hand, and the faults that are planted into them: each a few lines of what is to be wrong.

A fault has the phase that must find it, words that must be said of it, and the exit status that it comes to.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

Array = np.ndarray[Any, Any]
D, H, F = 24, 3, 40

PRE = """
 n1 = LayerNormalization<axis=-1, epsilon=0.00001>(x, g1, s1)
 q = MatMul(n1, Wq)  qb = Add(q, bq)  k = MatMul(n1, Wk)  kb = Add(k, bk)  v = MatMul(n1, Wv)  vb = Add(v, bv)
 qr = Reshape(qb, split)  kr = Reshape(kb, split)  vr = Reshape(vb, split)
 qh = Transpose<perm=[0,2,1,3]>(qr)  kh = Transpose<perm=[0,2,3,1]>(kr)  vh = Transpose<perm=[0,2,1,3]>(vr)
 raw = MatMul(qh, kh)  scores = Div(raw, root)
 keys = Unsqueeze(mask, middle)  masked = Where(keys, scores, low)  w = Softmax<axis=-1>(masked)
 c = MatMul(w, vh)  ct = Transpose<perm=[0,2,1,3]>(c)  cm = Reshape(ct, join)
 o = MatMul(cm, Wo)  ob = Add(o, bo)  r1 = Add(x, ob)
 n2 = LayerNormalization<axis=-1, epsilon=0.00001>(r1, g2, s2)
 h = MatMul(n2, W1)  hb = Add(h, c1)
 hd = Div(hb, root2)  he = Erf(hd)  hs = Add(he, one)  hm = Mul(hb, hs)  a = Mul(hm, half)
 f = MatMul(a, W2)  fb = Add(f, c2)  output = Add(r1, fb)"""
ATTENTION = """
 q = MatMul(x, Wq)  qb = Add(q, bq)  k = MatMul(x, Wk)  kb = Add(k, bk)  v = MatMul(x, Wv)  vb = Add(v, bv)
 c = Attention<q_num_heads=3, kv_num_heads=3>(qb, kb, vb, mask)
 o = MatMul(c, Wo)  ob = Add(o, bo)  r1 = Add(x, ob)  n1 = RMSNormalization<axis=-1, epsilon=0.00001>(r1, g1)
 h = MatMul(n1, W1)  hb = Add(h, c1)  a = Gelu(hb)  f = MatMul(a, W2)  fb = Add(f, c2)  r2 = Add(n1, fb)
 output = RMSNormalization<axis=-1, epsilon=0.00001>(r2, g2)"""
"""Post-norm, with the operators of opset 23; its mask is [batch, 1, sequence, sequence]."""
SIGNATURE = "(float[batch, sequence, 24] x, bool[batch, sequence] mask) => (float[batch, sequence, 24] output)"

SIZES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Wq", "Wk", "Wv", "Wo", "Wm"), (D, D)),
    **dict.fromkeys(("bq", "bk", "bv", "bo", "g1", "s1", "g2", "s2", "c2"), (D,)),
    **{"W1": (D, F), "W2": (F, D), "c1": (F,), "table": (7, D), "Wp": (D, 5)},
}
CONSTANTS: dict[str, Any] = {
    "split": np.array([0, 0, H, D // H]), "join": np.array([0, 0, D]), "middle": np.array([1, 2]),
    "root": np.float32((D // H) ** 0.5), "root2": np.float32(2**0.5), "low": np.float32(-1e9),
    "one": np.float32(1), "half": np.float32(0.5),
}  # fmt: skip
NAMES = {
    **{f"attention.{name}.weight": f"W{name[0]}" for name in ("query", "key", "value", "output")},
    **{f"attention.{name}.bias": f"b{name[0]}" for name in ("query", "key", "value", "output")},
    **{"norm1.gain": "g1", "norm1.shift": "s1", "norm2.gain": "g2", "norm2.shift": "s2"},
    **{"feed_forward.hidden.weight": "W1", "feed_forward.hidden.bias": "c1"},
    **{"feed_forward.output.weight": "W2", "feed_forward.output.bias": "c2"},
}
"""The specification's name of a parameter → the initializer's here."""


def model_of(body: str, signature: str = SIGNATURE, opset: int = 18, **constants: Any) -> onnx.ModelProto:
    """The graph of this text, with drawn weights, and with those constants that it uses."""
    graph = parser.parse_graph(f"layer {signature} {{ {body} }}")
    draw = np.random.default_rng(3)
    drawn = {name: draw.normal(size=size, scale=0.3).astype(np.float32) for name, size in SIZES.items()}
    used = {name for node in graph.node for name in node.input}
    for name, value in {**drawn, **CONSTANTS, **constants}.items():
        if name in used:
            graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def parameters_of(model: onnx.ModelProto) -> dict[str, Array]:
    """What the model was made from, in the specification's names."""
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    return {name: held[own] for name, own in NAMES.items() if own in held}


@dataclass(frozen=True)
class Fault:
    """`text` edits the graph's text, `model` what was made of it, `file` what was saved of that, or writes what else
    is to be asked for and gives its path. `told` is what the user says beside: layer, parameters, mask, limit."""

    name: str
    phase: str
    says: str
    status: int
    text: tuple[tuple[str, str], ...] = ()
    signature: tuple[str, str] = ("", "")
    constants: dict[str, Any] = field(default_factory=dict)
    model: Callable[[onnx.ModelProto], None] | None = None
    file: Callable[[Path], Path | None] | None = None
    told: tuple[str, ...] = ()
    mask: str | None = None
    limit: float | None = None
    severity: str = "error"
    runtimes: int = 1
    right: str = PRE
    opset: int = 18

    def planted(self, folder: Path) -> Path:
        """The faulty file, in a folder of its own below this one."""
        body = self.right
        for old, new in self.text:
            assert old in body, old
            body = body.replace(old, new)
        assert self.signature[0] in SIGNATURE
        model = model_of(body, SIGNATURE.replace(*self.signature), self.opset, **self.constants)
        if self.model:
            self.model(model)
        path = folder / "model" / "model.onnx"
        path.parent.mkdir()
        path.write_bytes(model.SerializeToString())
        return (self.file and self.file(path)) or path


# What is done to a model


def tensor(model: onnx.ModelProto, name: str) -> TensorProto:
    return next(tensor for tensor in model.graph.initializer if tensor.name == name)


def swapped(model: onnx.ModelProto) -> None:
    tensor(model, "Wq").name, tensor(model, "Wk").name = "Wk'", "Wq"
    tensor(model, "Wk'").name = "Wk"


def transposed(model: onnx.ModelProto) -> None:
    held = tensor(model, "Wo")
    held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held).T.copy(), "Wo"))


def changed(name: str, change: Callable[[Array], Array]) -> Callable[[onnx.ModelProto], None]:
    """The initializer of this name holds what `change` makes of it."""

    def edit(model: onnx.ModelProto) -> None:
        held = tensor(model, name)
        held.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(held)).astype(np.float32), name))

    return edit


def with_one(number: float) -> Callable[[Array], Array]:
    def change(value: Array) -> Array:
        value = value.copy()
        value[3, 5] = number
        return value

    return change


def opset(version: int) -> Callable[[onnx.ModelProto], None]:
    def edit(model: onnx.ModelProto) -> None:
        model.opset_import[0].version = version

    return edit


def custom_domain(model: onnx.ModelProto) -> None:
    model.opset_import.append(helper.make_opsetid("my.own", 1))


def stale_value_info(model: onnx.ModelProto) -> None:
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["batch", "sequence", 17]))


def output_of_rank_2(model: onnx.ModelProto) -> None:
    del model.graph.output[0].type.tensor_type.shape.dim[0]


def made_twice(model: onnx.ModelProto) -> None:
    model.graph.node.append(model.graph.node[0])


def absurd_dims(model: onnx.ModelProto) -> None:
    tensor(model, "W1").dims[:] = [1 << 40, 1 << 20]


def float16(model: onnx.ModelProto) -> None:
    """As converters do: every float32 that is stored becomes a float16."""
    for held in model.graph.initializer:
        if held.data_type == TensorProto.FLOAT:
            value = numpy_helper.to_array(held)
            with np.errstate(over="ignore"):
                held.CopyFrom(numpy_helper.from_array(value.astype(np.float16), held.name))
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type == TensorProto.FLOAT:
            info.type.tensor_type.elem_type = TensorProto.FLOAT16


def stored_in_float16(model: onnx.ModelProto) -> None:
    """As tools that shrink files do: every weight is stored as a float16, and cast to float32 where it is used."""
    widened = []
    for held in model.graph.initializer:
        if held.data_type == TensorProto.FLOAT and held.dims:
            value, name = numpy_helper.to_array(held).astype(np.float16), held.name
            held.CopyFrom(numpy_helper.from_array(value, f"{name}_narrow"))
            widened.append(helper.make_node("Cast", [held.name], [name], f"widen_{name}", to=TensorProto.FLOAT))
    nodes = [*widened, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def float16_inside(model: onnx.ModelProto) -> None:
    """As float16's converter does with keep_io_types=True, but in order: float32 goes in and out."""
    float16(model)
    narrow, wide = model.graph.input[0], model.graph.output[0]
    for info in (narrow, wide):
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in model.graph.node:
        renamed = [f"{name}_16" if name == narrow.name else name for name in node.input]
        node.input[:] = renamed
        node.output[:] = [f"{name}_16" if name == wide.name else name for name in node.output]
    first = helper.make_node("Cast", [narrow.name], [f"{narrow.name}_16"], "narrow", to=TensorProto.FLOAT16)
    model.graph.node.insert(0, first)
    model.graph.node.append(helper.make_node("Cast", [f"{wide.name}_16"], [wide.name], "wide", to=TensorProto.FLOAT))


def out_of_order(model: onnx.ModelProto) -> None:
    """As float16's converter leaves it with keep_io_types=True: what casts x stands last."""
    float16_inside(model)
    first = model.graph.node.pop(0)
    model.graph.node.append(first)


def in_a_circle(model: onnx.ModelProto) -> None:
    model.graph.node[0].input[1] = "output"


def calling(*calls: tuple[str, int]) -> Callable[[onnx.ModelProto], None]:
    """Functions f0, f1, … each of which calls what it is told to, so often; the graph calls f0."""

    def edit(model: onnx.ModelProto) -> None:
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
        for number, (called, times) in enumerate(calls):
            names = ["x", *(f"v{n}" for n in range(times))]
            nodes = [helper.make_node(called, [a], [b], domain="own") for a, b in pairwise(names)]
            function = helper.make_function("own", f"f{number}", ["x"], names[-1:], nodes, imports)
            model.functions.append(function)
        model.functions.append(
            helper.make_function("own", "end", ["x"], ["y"], [helper.make_node("Identity", ["x"], ["y"])], imports)
        )
        model.opset_import.append(imports[1])
        model.graph.node.append(helper.make_node("f0", ["output"], ["more"], domain="own"))

    return edit


def long_chain(model: onnx.ModelProto) -> None:
    """More nodes in a row than Python calls functions within functions."""
    names = ["Wq", *(f"link{n}" for n in range(3000))]
    chain = [helper.make_node("Identity", [a], [b]) for a, b in pairwise(names)]
    nodes = [*chain, *model.graph.node]
    for node in nodes[len(chain) :]:
        node.input[:] = [names[-1] if name == "Wq" else name for name in node.input]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


# What is done to a file


def bytes_of(content: bytes | Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        path.write_bytes(content(path.read_bytes()) if callable(content) else content)

    return edit


def outside(location: str, make: Callable[[Path], None] = lambda folder: None) -> Callable[[Path], None]:
    """The weight W1 lies at this location; `make` is given the model's folder. A file outside it shows who reads it."""

    def edit(path: Path) -> None:
        model = onnx.load(path)
        held = tensor(model, "W1")
        os.mkfifo(path.parent.parent / "secret.bin")  # whoever reads it waits for ever
        held.ClearField("raw_data")
        held.data_location = TensorProto.EXTERNAL
        held.external_data.add(key="location", value=location.format(folder=path.parent.parent))
        make(path.parent)
        path.write_bytes(model.SerializeToString())

    return edit


def link(folder: Path) -> None:
    (folder / "weights.bin").symlink_to(folder.parent / "secret.bin")


def folder_link(folder: Path) -> None:
    (folder / "data").symlink_to(folder.parent)


def short(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(bytes(16))


def large(folder: Path) -> None:
    with (folder / "weights.bin").open("wb") as file:
        file.truncate(2**31)


def huge_beside(path: Path) -> None:
    """W1 asks for 2 GiB, which are there, and are holes on the disk."""
    outside("weights.bin", large)(path)
    model = onnx.load(path, load_external_data=False)
    tensor(model, "W1").dims[:] = [2**14, 2**15]
    path.write_bytes(model.SerializeToString())


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**31 + 1)


def looping_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def deep(path: Path) -> None:
    """Graphs in attributes of nodes of graphs, 300 of them."""

    def field(number: int, content: bytes) -> bytes:
        size, length = b"", len(content)
        while length > 127:
            size, length = size + bytes([length % 128 + 128]), length // 128
        return bytes([number * 8 + 2]) + size + bytes([length]) + content

    graph = b""
    for _ in range(300):
        graph = field(1, field(5, field(6, graph)))
    path.write_bytes(field(7, graph))


def not_a_folder(path: Path) -> Path:
    return path / "inner.onnx"


def quantised(path: Path, **options: bool) -> None:
    """As ONNX Runtime's own tool does: weights of 8 bits, and what they are multiplied with rounded as it comes. In a
    range that no processor's sums overflow."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    wide = path.with_name("wide.onnx")
    path.rename(wide)
    quantize_dynamic(wide, path, weight_type=QuantType.QInt8, reduce_range=True, **options)
    wide.unlink()


def quantised_by_column(path: Path) -> None:
    quantised(path, per_channel=True)


def statically(*operators: str) -> Callable[[Path], None]:
    """As ONNX Runtime's own tool does: Q and DQ around these operators, or all; ranges are those of ordinary input."""

    def edit(path: Path) -> None:
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

        class Ordinary(CalibrationDataReader):
            def __init__(self) -> None:
                draw = np.random.default_rng(0)
                masks = {"mask": np.ones((4, 9), np.bool_)}
                self.given = iter([{"x": draw.normal(size=(4, 9, D)).astype(np.float32), **masks} for _ in range(4)])

            def get_next(self) -> dict[str, Array] | None:
                return next(self.given, None)

        wide = path.with_name("wide.onnx")
        path.rename(wide)
        quantize_static(
            wide, path, Ordinary(), quant_format=QuantFormat.QDQ, op_types_to_quantize=list(operators) or None
        )
        wide.unlink()

    return edit


def in_4_bits(path: Path) -> None:
    """As ONNX Runtime's own tool does: weights alone, in blocks of 16."""
    from onnxruntime.quantization import QuantFormat
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    model = onnx.load(path)
    model.opset_import[0].version = 21
    made = MatMulNBitsQuantizer(model, block_size=16, is_symmetric=True, quant_format=QuantFormat.QDQ)
    made.process()
    made.model.save_model_to_file(str(path))


def edited(make: Callable[[Path], None], edit: Callable[[onnx.ModelProto], None]) -> Callable[[Path], None]:
    """What a tool made of a file, edited."""

    def both(path: Path) -> None:
        make(path)
        model = onnx.load(path)
        edit(model)
        path.write_bytes(model.SerializeToString())

    return both


def another_zero_point(model: onnx.ModelProto) -> None:
    """The first integer product takes another zero point of its activation than the one it was rounded with."""
    product = next(node for node in model.graph.node if node.op_type == "MatMulInteger")
    model.graph.initializer.append(numpy_helper.from_array(np.array(100, np.uint8), "another"))
    product.input[2] = "another"


def read_back_by_another_scale(model: onnx.ModelProto) -> None:
    """What is rounded after the first norm is read back 2 % larger."""
    rounded = {node.output[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}
    back = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.input[0] in rounded)
    scale = numpy_helper.to_array(tensor(model, back.input[1])) * np.float32(1.02)
    model.graph.initializer.append(numpy_helper.from_array(scale, "another"))
    back.input[1] = "another"


def weights_of_another_scale(model: onnx.ModelProto) -> None:
    held = tensor(model, "Wq_scale")
    held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held) * np.float32(1.02), "Wq_scale"))


MLP = "h = MatMul(x, W1)  a = Relu(h)  output = MatMul(a, W2)"
NO_MASK = (", bool[batch, sequence] mask", "")
UNMASKED = ("masked = Where(keys, scores, low)", "masked = Identity(scores)")
WITHOUT_MASK = (("keys = Unsqueeze(mask, middle)", ""), UNMASKED)
GELU = "hd = Div(hb, root2)  he = Erf(hd)  hs = Add(he, one)  hm = Mul(hb, hs)  a = Mul(hm, half)"
TANH = """p3 = Mul(hb, hb)  p4 = Mul(p3, hb)  p5 = Mul(p4, cubic)  p6 = Add(hb, p5)  p7 = Mul(p6, inner)  he = Tanh(p7)
 hs = Add(he, one)  hm = Mul(hb, hs)  a = Mul(hm, half)"""
NORMS = {n: f"n{n} = LayerNormalization<axis=-1, epsilon=0.00001>({of}, g{n}, s{n})" for n, of in ((1, "x"), (2, "r1"))}
PLAIN_NORM = """mean{n} = ReduceMean<keepdims=1>({of}, last)  off{n} = Sub({of}, mean{n})  sq{n} = Mul(off{n}, off{n})
 total{n} = ReduceSum<keepdims=1>(sq{n}, last)  var{n} = Div(total{n}, size)  ve{n} = Add(var{n}, eps)
 sd{n} = Sqrt(ve{n})  nn{n} = Div(off{n}, sd{n})  ng{n} = Mul(nn{n}, g{n})  n{n} = Add(ng{n}, s{n})"""
BOTH_PLAIN = tuple((NORMS[n], PLAIN_NORM.format(n=n, of=of)) for n, of in ((1, "x"), (2, "r1")))
MIXED = tuple(
    (f"{n}h = Transpose<perm=[0,2,{a}]>", f"{n}h = Transpose<perm=[1,2,{b}]>")
    for n, a, b in (("q", "1,3", "0,3"), ("k", "3,1", "3,0"), ("v", "1,3", "0,3"))
)
MIXED += (("ct = Transpose<perm=[0,2,1,3]>", "ct = Transpose<perm=[2,0,1,3]>"),)
CAUSAL = """ss = Shape(scores)  ones = ConstantOfShape<value=float[1]{1}>(ss)  below = Trilu<upper=0>(ones)
 sees = Cast<to=9>(below)  past = Where(sees, masked, low)  w = Softmax<axis=-1>(past)"""
SOFTMAX = "w = Softmax<axis=-1>(masked)"

FILE = (
    Fault("not-a-protobuf", "file", "does not parse", 2, file=bytes_of(b"a page of HTML, say")),
    Fault("empty", "file", "is empty", 2, file=bytes_of(b"")),
    Fault("truncated", "file", "does not parse", 2, file=bytes_of(lambda data: data[:3000])),
    Fault("no-graph", "file", "holds no graph", 2, file=bytes_of(onnx.ModelProto(ir_version=10).SerializeToString())),
    Fault("deep-nesting", "file", "does not parse", 2, file=deep),
    Fault("out-of-order", "file", "LayerNormalization 'n1' takes 'x_16', which Cast 'narrow' makes after it", 0,
          severity="warning", model=out_of_order, constants={"low": np.float32(-6e4)}),
    Fault("in-a-circle", "file", "nodes are in a circle", 2, model=in_a_circle),
    Fault("over-2-GiB", "file", "more than a protobuf message can (2 GiB)", 2, file=sparse),
    Fault("external-data-over-2-GiB", "file", "with its external data has more than 2 GiB", 2, file=huge_beside),
    Fault("function-that-calls-itself", "file", "the function 'f0' calls itself", 2,
          model=calling(("f1", 1), ("f0", 1))),
    Fault("functions-without-measure", "file", "with its functions it has 1.1e+12 nodes, and 1,000,000 are", 2,
          model=calling(*((f"f{n}" if n < 40 else "end", 2) for n in range(1, 41)))),
    Fault("a-folder", "file", "is a folder", 2, file=lambda path: path.parent),
    Fault("no-such-file", "file", "other.onnx cannot be opened: No such", 2, file=lambda p: p.with_name("other.onnx")),
    Fault("below-a-file", "file", "inner.onnx cannot be opened: Not a directory", 2, file=not_a_folder),
    Fault("looping-link", "file", "cannot be opened: Too many levels", 2, file=looping_link),
    Fault("external-data-missing", "file", "'W1' is missing: 'weights.bin'", 2, file=outside("weights.bin")),
    Fault("external-data-cut-short", "file", "'weights.bin', which has 16", 2, file=outside("weights.bin", short)),
    Fault("external-data-above", "file", "outside the model's folder", 2, file=outside("../secret.bin")),
    Fault("external-data-absolute", "file", "outside the model's folder", 2, file=outside("{folder}/secret.bin")),
    Fault("external-data-linked", "file", "outside the model's folder, by a link", 2,
          file=outside("weights.bin", link)),
    Fault("external-data-below-a-link", "file", "outside the model's folder, by a link", 2,
          file=outside("data/secret.bin", folder_link)),
)  # fmt: skip

STRUCTURE = (
    Fault("stale-value-info", "checker", "'h' is stated as [None, None, 17], and [None, None, 40] follows", 1,
          severity="warning", model=stale_value_info),
    Fault("a-value-made-twice", "checker", "'n1' has been used as output names multiple times", 1, model=made_twice),
    Fault("output-of-another-rank", "checker", "differ in rank: (3) vs (2)", 1, model=output_of_rank_2),
    Fault("absurd-dims", "checker", "W1", 1, model=absurd_dims),
    Fault("wrong-opset-import", "operators", "Gelu is no operator of opset 18; it came with opset 20", 1,
          text=((GELU, "a = Gelu(hb)"),), opset=20, model=opset(18)),
    Fault("unknown-opset", "operators", "opset 999 is newer than", 2, model=opset(999)),
    Fault("custom-operator", "operators", "1 of Gelu from 'my.own', which is not ONNX's own: a custom operator", 2,
          text=((GELU, "a = my.own.Gelu(hb)"),), model=custom_domain),
    Fault("no-float-input", "interface",
          "judged from 'x', what the embedding over 7 ids, Gather 'x' makes of ids, to 'output'", 0, severity="note",
          signature=("float[batch, sequence, 24] x", "int64[batch, sequence] ids"),
          text=(("n1 = ", "x = Gather<axis=0>(table, ids)  n1 = "),)),
    Fault("pooled-output", "interface", "no output has the shape of x", 2, signature=("24] output", "5] output"),
          text=(("output = Add(r1, fb)", "r2 = Add(r1, fb)  output = MatMul(r2, Wp)"),)),
    Fault("output-of-nothing", "interface", "no output depends on 'x'", 2,
          text=(("output = Add(r1, fb)", "sx = Shape(x)  output = ConstantOfShape(sx)"),)),
    Fault("cross-attention", "interface", "x may be 'x' float32 [batch, sequence, 24] or 'memory'", 2,
          signature=("bool[batch, sequence] mask", "float[batch, sequence, 24] memory, bool[batch, sequence] mask"),
          text=(("k = MatMul(n1", "k = MatMul(memory"), ("v = MatMul(n1", "v = MatMul(memory"))),
    Fault("baked-reshape", "dimensions", "sequence is declared free, and the file runs at sequence 7 alone", 1,
          constants={"split": np.array([-1, 7, H, D // H]), "join": np.array([-1, 7, D])}),
    Fault("fixed-sequence", "dimensions", "sequence is fixed to 7", 0, severity="warning",
          signature=("sequence", "7")),
    Fault("wrong-axis-name", "dimensions", "named 'batch', as the batch of x is", 1,
          signature=("bool[batch, sequence]", "bool[batch, batch]")),
    Fault("one-symbol-for-two", "dimensions", "batch and sequence are one symbol", 1,
          signature=("[batch, sequence, 24] x", "[batch, batch, 24] x")),
    Fault("attention-along-the-batch", "dimensions", "attention goes along the first axis, which is named 'batch'", 1,
          signature=NO_MASK, text=(*MIXED, *WITHOUT_MASK)),
    Fault("attention-along-an-axis-without-a-name", "dimensions", "x is [sequence, batch, features], and no name", 0,
          severity="warning", signature=("[batch, sequence, 24] x, bool[batch, sequence] mask", "[a, b, 24] x"),
          text=(*MIXED, *WITHOUT_MASK)),
    Fault("huge-intermediate", "loads", "as a layer it runs at no batch and sequence that was tried", 2,
          text=((UNMASKED[0], "z = ConstantOfShape(huge)  zs = ReduceSum<keepdims=0>(z) masked = Add(scores, zs)"),),
          constants={"huge": np.array([1 << 20, 1 << 20])}),
    Fault("what-one-runtime-cannot", "loads", "ONNX Runtime does not run it: ", 1, right=ATTENTION, opset=23,
          signature=("bool[batch, sequence] mask", "bool[batch, 1, 1, sequence] mask")),
)  # fmt: skip

ROTARY = """qp = Transpose<perm=[0,2,1,3]>(qr)  one_half, other = Split<axis=-1, num_outputs=2>(qp)  turned = Neg(other)
 swapped = Concat<axis=-1>(turned, one_half)  qc = Mul(qp, cos)  qs = Mul(swapped, sin)  qh = Add(qc, qs)"""
ROTARY_BY_PARTS = """qp = Transpose<perm=[0,2,1,3]>(qr)  u, v_ = Split<axis=-1, num_outputs=2>(qp)
 uc = Mul(u, cos4)  vs = Mul(v_, sin4)  us = Mul(u, sin4)  vc = Mul(v_, cos4)  first = Sub(uc, vs)  last4 = Add(us, vc)
 qh = Concat<axis=-1>(first, last4)"""
_ANGLE = np.arange(5.0)[:, None] * 10.0 ** -np.arange(4.0)
ANGLES = {
    "cos4": np.cos(_ANGLE).astype(np.float32), "sin4": np.sin(_ANGLE).astype(np.float32),
    "cos": np.tile(np.cos(_ANGLE), 2).astype(np.float32), "sin": np.tile(np.sin(_ANGLE), 2).astype(np.float32),
}  # fmt: skip
LAYER = (
    Fault("a-chain-of-3000-nodes", "layer", "more nodes in a row lead to it than are followed", 2, model=long_chain),
    Fault("no-encoder-layer", "layer", "not an encoder layer", 2, right=MLP, signature=NO_MASK),
    Fault("output-of-the-wrong-name", "layer", "not an encoder layer as the specification knows it", 2,
          signature=("24] output)", "24] output, float[batch, sequence, 24] y)"),
          text=(("r1 = Add(x, ob)", "output = Add(x, ob)  r1 = Identity(output)"),
                ("output = Add(r1, fb)", "y = Add(r1, fb)"))),
    Fault("no-residual", "layer", "residual1 is missing: a residual sum was looked for", 2,
          text=(("r1 = Add(x, ob)", "r1 = Identity(ob)"),)),
    Fault("no-output-projection", "layer", "attention_output is missing: a linear map was looked for", 2,
          text=(("o = MatMul(cm, Wo)  ob = Add(o, bo)  r1 = Add(x, ob)", "r1 = Add(x, cm)"),)),
    Fault("softmax-over-heads", "layer", "over something else than the scores of one row (Softmax 'w')", 2,
          text=((SOFTMAX, "w = Softmax<axis=1>(masked)"),)),
    Fault("one-norm-of-another-epsilon", "layer", "norm1 is layer_norm with epsilon 0.01 and norm2", 1,
          text=(("epsilon=0.00001>(x", "epsilon=0.01>(x"),)),
    Fault("float16-epsilon-0", "layer", "norm1 adds an epsilon of 0 (constant 'eps'", 1, model=float16,
          text=BOTH_PLAIN, constants={"last": np.array([-1]), "size": np.float32(D), "eps": np.float32(1e-12),
                                      "low": np.float32(-6e4)}),
    Fault("wrong-epsilon", "layer", "norm.epsilon is 0.0010", 1, told=("layer",),
          text=(("epsilon=0.00001", "epsilon=0.001"),)),
    Fault("tanh-gelu", "layer", "feed_forward.activation is gelu_tanh in the file ('a', by its", 1, told=("layer",),
          text=((GELU, TANH),), constants={"cubic": np.float32(0.044715), "inner": np.float32((2 / np.pi) ** 0.5)}),
    Fault("heads-of-another-number", "layer", "attention.num_heads is 4 in the file", 2, told=("layer",),
          constants={"split": np.array([0, 0, 4, 6]), "root": np.float32(6**0.5)}),
    Fault("swapped-initializers", "layer", "attention.query.weight holds attention.key.weight", 1,
          told=("layer", "parameters"), model=swapped),
    Fault("transposed-initializer", "layer", "attention.output.weight is transposed", 1,
          told=("layer", "parameters"), model=transposed),
    Fault("rotary-positions", "layer", "query or key is turned by its position otherwise than rotary", 2,
          signature=("[batch, sequence, 24] x, bool[batch, sequence] mask", "[batch, 5, 24] x"),
          text=(("qh = Transpose<perm=[0,2,1,3]>(qr)", ROTARY), *WITHOUT_MASK), constants=ANGLES),
    Fault("rotary-positions-by-parts", "layer", "query or key is turned by its position otherwise than rotary", 2,
          signature=("[batch, sequence, 24] x, bool[batch, sequence] mask", "[batch, 5, 24] x"),
          text=(("qh = Transpose<perm=[0,2,1,3]>(qr)", ROTARY_BY_PARTS), *WITHOUT_MASK), constants=ANGLES),
    Fault("layer-scale", "layer", "parameters are not those of right: layer_scale1.gain too many", 2, told=("layer",),
          text=(("r1 = Add(x, ob)", "scaled = Mul(ob, s2)  r1 = Add(x, scaled)"),)),
    Fault("gated-feed-forward", "layer", "parameters are not those of right: feed_forward.hidden.bias missing", 2,
          told=("layer",),
          text=(("f = MatMul(a, W2)", "gate = MatMul(n2, W1)  gated = Mul(a, gate)  f = MatMul(gated, W2)"),)),
    Fault("gated-by-two-activations", "layer", "the feed-forward network multiplies two maps otherwise than", 2,
          text=(("f = MatMul(a, W2)",
                 "gate = MatMul(n2, W1)  on = Relu(gate)  gated = Mul(a, on)  f = MatMul(gated, W2)"),)),
    Fault("normed-query", "layer", "query alone is normed, and E-27 norms both or none", 2,
          text=(("qr = Reshape(qb, split)", "qn = LayerNormalization<axis=-1>(qb, g2, s2)  qr = Reshape(qn, split)"),)),
    Fault("capped-scores", "layer", "attention.softcap is 2.82843 in the file", 1, told=("layer",),
          text=(("scores = Div(raw, root)", "small = Div(raw, root)  flat = Tanh(small)  scores = Mul(flat, root)"),)),
    Fault("norm-before-the-sum", "layer", "a norm stands after a sub-layer, and not before and after each", 2,
          text=(("r1 = Add(x, ob)", "on = LayerNormalization<axis=-1>(ob, g2, s2)  r1 = Add(x, on)"),)),
    Fault("weighed-residual", "layer", "the two residual sums weigh their branches otherwise", 1,
          text=(("r1 = Add(x, ob)", "oh = Mul(ob, half)  r1 = Add(x, oh)"),)),
    Fault("side-by-side", "layer", "parameters are not those of right: norm2.gain", 2, told=("layer",),
          text=(("h = MatMul(n2, W1)", "h = MatMul(n1, W1)"),)),
    Fault("a-NaN-among-the-weights", "layer", "the weight 'W1' [24, 40] holds NaN in 1 of 960 places: [3, 5]", 2,
          model=changed("W1", with_one(np.nan))),
    Fault("an-infinite-weight", "layer", "the weight 'Wq' [24, 24] holds infinity in 1 of 576 places: [3, 5]", 2,
          model=changed("Wq", with_one(np.inf))),
    Fault("a-bias-that-nothing-takes", "layer", "'bq' [24] is stored, and no output depends on it", 0,
          severity="warning", text=(("qb = Add(q, bq)", "qb = Identity(q)  lost = Identity(bq)"),)),
    Fault("keys-of-the-query", "layer", "attention.key.weight and attention.query.weight are one tensor, 'Wq'", 0,
          severity="warning", text=(("k = MatMul(n1, Wk)", "k = MatMul(n1, Wq)"),)),
    Fault("values-of-the-key", "layer", "attention.key.weight and attention.value.weight are one tensor, 'Wk'", 0,
          severity="warning", text=(("v = MatMul(n1, Wv)", "v = MatMul(n1, Wk)"),)),
    Fault("a-weight-transposed-of-another", "layer",
          "attention.key.weight and attention.query.weight hold the same values, the one transposed", 0,
          severity="warning", text=(("k = MatMul(n1, Wk)", "Wt = Transpose<perm=[1,0]>(Wq)  k = MatMul(n1, Wt)"),)),
    Fault("a-projection-of-zeros", "layer", "feed_forward.output.weight is 0 everywhere", 0, severity="warning",
          model=changed("W2", np.zeros_like)),
    Fault("scores-over-the-root-of-d-model", "layer", "attention.scale is 1/√d_model = 1/√24, which no published", 0,
          severity="warning", constants={"root": np.float32(D**0.5)}),
    Fault("an-epsilon-of-keras", "layer", "norm.epsilon is 0.001 in a pre-norm layer_norm, which no published", 0,
          severity="warning", text=(("epsilon=0.00001", "epsilon=0.001"),)),
    Fault("relu-and-the-epsilon-of-bert", "layer", "feed_forward.activation relu, which no published", 0,
          severity="warning", text=((GELU, "a = Relu(hb)"), ("epsilon=0.00001", "epsilon=1e-12"))),
    Fault("heads-interleaved", "layer", "attention.query.weight holds its columns in another order", 1,
          text=(("qr = Reshape(qb, split)", "qi = Reshape(qb, woven)  qr = Transpose<perm=[0,1,3,2]>(qi)"),),
          constants={"woven": np.array([0, 0, D // H, H])}, told=("layer", "parameters")),
)  # fmt: skip

ADDED = ("bool[batch, sequence] mask", "float[batch, 1, 1, sequence] mask")
MASKING = "keys = Unsqueeze(mask, middle)  masked = Where(keys, scores, low)"
AFTER = (MASKING, "masked = Identity(scores)")
MASKS = (
    Fault("mask-added-after-the-softmax", "masks", "'mask' does not hide positions: it is not applied to the scores", 1,
          signature=ADDED, text=(AFTER, (SOFTMAX, "soft = Softmax<axis=-1>(masked)  w = Add(soft, mask)")),
          told=("layer",), mask="additive"),
    Fault("mask-after-the-softmax", "masks", "'mask' does not hide positions: it is not applied to the scores", 1,
          text=(AFTER, (SOFTMAX, """soft = Softmax<axis=-1>(masked)  keys = Unsqueeze(mask, middle)
 w = Where(keys, soft, nothing)""")), constants={"nothing": np.float32(0)}, told=("layer",), mask="attend"),
    Fault("mask-of-the-other-sign", "masks", "the sign of 'mask' is flipped: it hides a position at +1e9", 1,
          signature=ADDED, text=((MASKING, "masked = Sub(scores, mask)"),), told=("layer",), mask="additive"),
    Fault("mask-that-is-too-weak", "masks", "flagging a position in 'mask' hides it from no other", 1,
          signature=("bool[batch, sequence] mask", "float[batch, 1, 1, sequence] mask"),
          text=((MASKING, "weak = Mul(mask, nearly)  masked = Add(scores, weak)"),),
          constants={"nearly": np.float32(1e-12)}),
    Fault("mask-polarity", "masks", "'mask' means ignore, shown by what it hides, and attend is expected", 1,
          text=(("Where(keys, scores, low)", "Where(keys, low, scores)"),), mask="attend"),
    Fault("mask-ignored", "masks", "the output does not depend on 'mask'", 1, text=(UNMASKED,)),
    Fault("mask-folded-away", "masks", "masks that mean attend are expected, and the file takes none", 1,
          mask="attend", signature=NO_MASK, text=WITHOUT_MASK),
    Fault("two-masks-and-one-works", "masks", "the output does not depend on 'other'", 1,
          signature=("sequence] mask", "sequence] mask, bool[batch, sequence] other"),
          text=(("n1 = ", "unused = Not(other)  n1 = "),)),
    Fault("causal", "masks", "a causal mask is built into the file", 1, text=((SOFTMAX, CAUSAL),)),
    Fault("padding-shows-through", "masks", "'mask' hides a position in part", 1, constants={"low": np.float32(-4)}),
    Fault("NaN-for-a-padded-item", "masks", "an item that is padding alone gives NaN", 0, severity="warning",
          constants={"low": np.float32(-np.inf)}),
    Fault("NaN-where-another-is-due", "masks", "attention.fully_masked_row is nan in the file", 1, told=("layer",),
          constants={"low": np.float32(-np.inf)}),
)  # fmt: skip

BY_SIGMOID = GELU, "hq = Mul(hb, by)  hs = Sigmoid(hq)  a = Mul(hb, hs)"
NUMBERS = (
    Fault("scale-missing", "numbers", "attention_scores", 1,
          text=(("scores = Div(raw, root)", "scores = Identity(raw)"),)),
    Fault("sigmoid-gelu", "numbers", "ffn_activation", 1, text=(BY_SIGMOID,), constants={"by": np.float32(1.6)}),
    Fault("quick-gelu", "layer", "feed_forward.activation is quick_gelu, as in clip", 0, severity="warning",
          text=(BY_SIGMOID,), constants={"by": np.float32(1.702)}),
    Fault("quick-gelu-for-gelu", "layer", "feed_forward.activation is quick_gelu in the file ('a', by its", 1,
          told=("layer",), text=(BY_SIGMOID,), constants={"by": np.float32(1.702)}),
    Fault("variance-of-n-less-1", "numbers", "norm1", 1, text=BOTH_PLAIN,
          constants={"last": np.array([-1]), "size": np.float32(D - 1), "eps": np.float32(1e-5)}),
    Fault("softmax-in-float16", "levels", "reference and onnxruntime all differ in", 1, runtimes=2,
          text=((SOFTMAX, "narrow = Cast<to=10>(masked)  soft = Softmax<axis=-1>(narrow)  w = Cast<to=1>(soft)"),),
          constants={"low": np.float32(-6e4)}),
    Fault("padding-content-shows", "properties", "invariant-padding-content", 1, constants={"low": np.float32(-4)}),
    Fault("gelu-off-by-one-percent-in-float16", "reduction", "ffn_activation, from its own operands, is out of what", 1,
          model=float16_inside, constants={"root2": np.float32(2**0.5 * 1.01), "low": np.float32(-6e4)}),
    Fault("a-wrong-zero-point-in-int8", "reduction", "each feature is off by a constant: a wrong zero point", 1,
          file=edited(quantised, another_zero_point)),
    Fault("a-wrong-scale-in-int8", "reduction", "it is 1.02 times what it should be: a wrong scale", 1,
          file=edited(statically("MatMul"), read_back_by_another_scale)),
    Fault("a-wrong-gelu-in-int8", "numbers", "integers as numbers: fail: ffn_activation", 1, file=quantised,
          constants={"root2": np.float32(2**0.5 * 1.02)}),
    Fault("a-wrong-attention-scale-in-int8", "numbers", "integers as numbers: fail: attention_scores", 1,
          file=quantised, constants={"root": np.float32((D // H) ** 0.5 * 1.02)}),
    Fault("weights-of-a-wrong-scale-in-int8", "layer", "attention.query.weight is 1.02 times what it was made from", 1,
          file=edited(quantised, weights_of_another_scale), told=("layer", "parameters")),
    Fault("int4-over-the-limit", "reduction", "over the limit of 0.0001", 1, file=in_4_bits, limit=1e-4),
    Fault("integers-over-the-limit", "reduction", "over the limit of 0.0001", 1, file=quantised, limit=1e-4),
)  # fmt: skip

FAULTS = FILE + STRUCTURE + LAYER + MASKS + NUMBERS

// The encoder of specs/README.md: what its session is fed, and its graph, an ONNX model of plain operators.
import proto from "onnx-proto";

/** By its name on the wire, each number format's name elsewhere, its number in ONNX, and the array that holds it. */
export const FORMATS = {
  F64: { name: "float64", onnx: 11, array: Float64Array },
  F32: { name: "float32", onnx: 1, array: Float32Array },
  I64: { name: "int64", onnx: 7, array: BigInt64Array },
  I32: { name: "int32", onnx: 6, array: Int32Array },
  BOOL: { name: "bool", onnx: 9, array: Uint8Array },
};
const tensor = (dtype, dims, values) => ({ dtype, dims, bytes: new Uint8Array(FORMATS[dtype].array.from(values).buffer) });

/** Unless it fits, throws what is answered with the category of what is wrong. */
function refuseUnless(fits, refused, message) {
  if (!fits) throw Object.assign(new Error(message), { refused });
}

/** x (or ids) with the batch first; masks of four axes, true where a key may be attended to (M-9); what scores have added. */
export function inputsOf({ layer, dtype }, { layout, masks: form, causal_flag: flag }, { x, ids, ...masks }) {
  const { d_model: D, embedding, attention: { num_heads: H } } = layer;
  const given = embedding ? ids : x;
  const dims = layout === "unbatched" ? [1, ...given.dims] : given.dims;
  const fits = embedding ? dims.length === 2 : dims.length === 3 && dims[2] === D;
  refuseUnless(fits, "shape", `the input is [${given.dims}], and d_model ${D}`);
  const [B, S] = layout === "sequence_first" ? [dims[1], dims[0]] : dims;
  refuseUnless(given.dtype === (embedding ? "I64" : dtype), "dtype", `the input is ${given.dtype}, and the layer ${dtype}`);
  const inputs = { x: { ...given, dims } };
  if (embedding?.positions === "sinusoidal") {
    const angle = (i) => Math.floor(i / D) / 10000 ** ((2 * Math.floor((i % D) / 2)) / D);
    const waves = Array.from(Array(S * D), (_, i) => ((i % D) % 2 ? Math.cos : Math.sin)(angle(i)));
    inputs.positions = tensor(dtype, [1, S, D], waves);
  }
  if (flag) inputs.causal = tensor("BOOL", [1, 1, S, S], Array.from(Array(S * S), (_, i) => i % S <= Math.floor(i / S)));
  const format = { attend: "BOOL", ignore: "BOOL", integer: "I32", additive: dtype, additive_float32: "F32" }[form];
  for (const [name, mask] of Object.entries(masks)) {
    const numbers = name === "attention_bias" || form.startsWith("additive");
    const axes = [...mask.dims];
    if (name === "attention_mask" && axes.length === 3) axes.splice(0, 1, axes[0] / H, H);
    while (axes.length < 4) axes.splice(name === "padding_mask" && axes.length > 1 ? 1 : 0, 0, 1);
    const fits = axes.every((size, axis) => size === 1 || size === [B, H, S, S][axis]);
    refuseUnless(fits, "shape", `${name} is [${mask.dims}], and the scores [${[B, H, S, S]}]`);
    const wanted = name === "attention_bias" ? dtype : format;
    refuseUnless(mask.dtype === wanted, "dtype", `${name} is ${mask.dtype}, and not ${wanted}`);
    const values = new FORMATS[mask.dtype].array(mask.bytes.buffer);
    const may = numbers ? (value) => value > -Infinity : form === "ignore" ? (value) => !value : Boolean;
    inputs[name] = tensor("BOOL", axes, Array.from(values, may));
    if (numbers) inputs[`${name}_added`] = tensor(dtype, axes, values.map((value) => (may(value) ? value : 0)));
  }
  return inputs;
}

class Graph {
  nodes = [];
  initializers = [];
  stages = {};

  constructor(parameters, dtype) {
    Object.assign(this, { parameters, dtype });
  }
  /** Adds a node of these inputs and, after them, attributes; gives the name of what it computes. */
  op(opType, ...input) {
    const attributes = typeof input.at(-1) === "object" ? Object.entries(input.pop()) : [];
    const attribute = attributes.map(([name, ints]) => ({ name, ints, type: proto.onnx.AttributeProto.AttributeType.INTS }));
    this.nodes.push({ opType, input, output: [`${opType}_${this.nodes.length}`], attribute });
    return this.nodes.at(-1).output[0];
  }
  hold(name, { dtype, dims, bytes }) {
    this.initializers.push({ name, dims, dataType: FORMATS[dtype].onnx, rawData: bytes });
    return name;
  }
  parameter(name, ...shape) {
    const { dtype, dims } = this.parameters[name] ?? {};
    refuseUnless(`${dims}` === `${shape}`, "shape", `${name} is [${dims}], and not [${shape}]`);
    refuseUnless(dtype === this.dtype, "dtype", `${name} is ${dtype}, and not ${this.dtype}`);
    return this.hold(name, this.parameters[name]);
  }
  linear(x, name, from, to, biased) {
    const product = this.op("MatMul", x, this.parameter(`${name}.weight`, from, to));
    return biased ? this.op("Add", product, this.parameter(`${name}.bias`, to)) : product;
  }
  constant = (dtype, dims, values) => this.hold(`constant_${this.initializers.length}`, tensor(dtype, dims, values));
  real = (value) => this.constant(this.dtype, [], [value]);
  reshape = (x, ...sizes) => this.op("Reshape", x, this.constant("I64", [sizes.length], sizes.map(BigInt)));
  transpose = (x, ...perm) => this.op("Transpose", x, { perm });
  mean = (x) => this.op("ReduceMean", x, { axes: [-1] });
}

function norm(g, x, name, { d_model: D, norm: { kind, epsilon } }) {
  const centred = kind === "layer_norm" ? g.op("Sub", x, g.mean(x)) : x;
  const variance = g.op("Add", g.mean(g.op("Mul", centred, centred)), g.real(Math.fround(epsilon)));
  const scaled = g.op("Mul", g.op("Div", centred, g.op("Sqrt", variance)), g.parameter(`${name}.gain`, D));
  return kind === "layer_norm" ? g.op("Add", scaled, g.parameter(`${name}.shift`, D)) : scaled;
}

const half = (g, x, odd) => g.op("Mul", g.op("Mul", x, g.op("Add", odd, g.real(1))), g.real(0.5));
const ACTIVATIONS = {
  relu: (g, x) => g.op("Relu", x),
  gelu: (g, x) => half(g, x, g.op("Erf", g.op("Div", x, g.real(Math.SQRT2)))),
  gelu_tanh: (g, x) => {
    const sum = g.op("Add", x, g.op("Mul", g.op("Mul", g.op("Mul", x, x), x), g.real(0.044715)));
    return half(g, x, g.op("Tanh", g.op("Mul", sum, g.real(Math.sqrt(2 / Math.PI)))));
  },
  silu: (g, x) => g.op("Div", x, g.op("Add", g.op("Exp", g.op("Neg", x)), g.real(1))),
};

function attention(g, x, at, layer, { all, padding, added }) {
  const { d_model: D, attention: { num_heads: H, fully_masked_row: row, ...of } } = layer;
  const [d, s] = [D / H, g.stages];
  for (const role of ["query", "key", "value"]) {
    const [P, from] = of.projections === "full" ? [D, x] : [d, g.reshape(x, 0, 0, H, d)];
    s[role] = g.reshape(g.linear(from, `${at}attention.${role}`, P, P, of.qkv_bias), 0, 0, D);
    s[`${role}_heads`] = g.transpose(g.reshape(s[role], 0, 0, H, d), 0, 2, 1, 3);
  }
  const products = g.op("MatMul", s.query_heads, g.transpose(s.key_heads, 0, 1, 3, 2));
  s.attention_scores = g.op("Div", products, g.real(Math.sqrt(of.scale === "d_model" ? D : d)));
  let scores = added.reduce((sum, numbers) => g.op("Add", sum, numbers), s.attention_scores);
  const key = all && g.op("ReduceMax", g.op("Where", all, g.real(1), g.real(0)), { axes: [-1] });
  const ifKey = (value, other) => g.op("Where", g.op("Greater", key, g.real(0)), value, other); // in rows with a key
  const low = g.real(of.masked_score === "minus_infinity" ? -Infinity : of.masked_score);
  if (all) scores = g.op("Where", all, scores, row === "uniform" ? ifKey(low, g.real(0)) : low);
  const weights = g.op("Softmax", scores);
  s.attention_weights = all && row === "zero" ? ifKey(weights, g.real(0)) : weights;
  s.context = g.op("MatMul", s.attention_weights, s.value_heads);
  if (padding && layer.padding_content === "any") { // M-8: NaN weighed by 0 is NaN
    const data = g.op("Where", g.transpose(padding, 0, 1, 3, 2), s.value_heads, g.real(0));
    const clean = g.op("MatMul", s.attention_weights, data);
    s.context = row === "uniform" ? ifKey(clean, s.context) : clean;
  }
  s.context_merged = g.reshape(g.transpose(s.context, 0, 2, 1, 3), 0, 0, D);
  return (s.attention_output = g.linear(s.context_merged, `${at}attention.output`, D, D, of.output_bias));
}

function encoderLayer(g, x, at, layer, masks) {
  const { d_model: D, norm: { placement }, feed_forward: { d_ff: F, activation, bias } } = layer;
  const [pre, s] = [placement === "pre", g.stages];
  const normed = (name, value) => (s[name] = norm(g, value, at + name, layer));
  s.residual1 = g.op("Add", x, attention(g, pre ? normed("norm1", x) : x, at, layer, masks));
  const middle = pre ? s.residual1 : normed("norm1", s.residual1);
  s.ffn_hidden = g.linear(pre ? normed("norm2", middle) : middle, `${at}feed_forward.hidden`, D, F, bias);
  s.ffn_activation = ACTIVATIONS[activation](g, s.ffn_hidden);
  s.ffn_output = g.linear(s.ffn_activation, `${at}feed_forward.output`, F, D, bias);
  s.residual2 = g.op("Add", middle, s.ffn_output);
  return pre ? s.residual2 : normed("norm2", s.residual2);
}

/** The model of one way of asking: its inputs are what it is fed, its outputs what is asked for. */
export function modelOf({ layer, dtype, parameters }, { check, given }, inputs) {
  const { d_model: D, attention: { num_heads: H }, feed_forward: { activation }, stack, embedding } = layer;
  refuseUnless(D % H === 0, "configuration", `num_heads ${H} does not divide d_model ${D}`);
  refuseUnless(activation in ACTIVATIONS, "configuration", `there is no activation ${activation}`);
  const g = new Graph(parameters, dtype);
  const turned = (value) => (given.layout === "sequence_first" ? g.transpose(value, 1, 0, 2) : value);
  const fed = Object.keys(inputs);
  const all = fed.filter((name) => inputs[name].dtype === "BOOL").reduce((a, b) => (a ? g.op("And", a, b) : b), null);
  const masks = { all, padding: inputs.padding_mask && "padding_mask", added: fed.filter((name) => name.endsWith("_added")) };
  const stacked = stack.layers > 1 || stack.final_norm || embedding !== null;
  let x = embedding ? g.op("Gather", g.parameter("embedding.weight", embedding.vocabulary, D), "x") : turned("x");
  if (inputs.positions) x = g.op("Add", x, "positions");
  const around = embedding ? { embedded: x } : {};
  for (let k = 0; k < stack.layers; k++) {
    x = around[`layer_${k}`] = encoderLayer(g, x, stacked ? `layers.${k}.` : "", layer, masks);
  }
  if (stack.final_norm) x = around.final_norm = norm(g, x, "final_norm", layer);
  const left = Object.keys(parameters).filter((name) => !g.initializers.some((held) => held.name === name));
  refuseUnless(left.length === 0, "configuration", `the layer has no ${left}`);
  const shown = { ...(stacked ? around : g.stages), output: turned(x) };
  const asked = { output: ["output"], weights: ["attention_weights", "output"], stages: Object.keys(shown) }[check];
  if (!asked) throw new Error(`unsupported: the check ${check}`);
  for (const name of asked) g.nodes.push({ opType: "Identity", input: [shown[name]], output: [name] });
  const typed = (name, format, rank) =>
    ({ name, type: { tensorType: { elemType: FORMATS[format].onnx, shape: rank && { dim: Array(rank).fill({}) } } } });
  const input = fed.map((name) => typed(name, inputs[name].dtype, inputs[name].dims.length));
  const output = asked.map((name) => typed(name, dtype));
  const graph = { name: "encoder", node: g.nodes, initializer: g.initializers, input, output };
  return proto.onnx.ModelProto.encode({ irVersion: 8, opsetImport: [{ domain: "", version: 17 }], graph }).finish();
}

/** The parameters that a model holds, of these names. */
export function parametersIn(model, names) {
  const held = proto.onnx.ModelProto.decode(model).graph.initializer.filter(({ name }) => names.includes(name));
  const format = (number) => Object.keys(FORMATS).find((dtype) => FORMATS[dtype].onnx === number);
  return Object.fromEntries(held.map(({ name, dims, dataType, rawData }) => [name, { dtype: format(dataType), dims: dims.map(Number), bytes: rawData }]));
}

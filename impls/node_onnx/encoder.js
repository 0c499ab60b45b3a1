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
const tensor = (dtype, dims, values) =>
  ({ dtype, dims, bytes: new Uint8Array(FORMATS[dtype].array.from(values).buffer) });

/** Unless it fits, throws what is answered with the category of what is wrong. */
function refuseUnless(fits, refused, message) {
  if (!fits) throw Object.assign(new Error(message), { refused });
}

/** x or ids, batch first, masks of four axes, and what a flag and sinusoidal positions stand for. */
export function inputsOf({ layer, dtype }, { layout, masks: form, causal_flag: flag }, { x, ids, ...masks }) {
  const { d_model: D, embedding, attention: { num_heads: H } } = layer;
  const [given, wanted] = embedding ? [ids, "I64"] : [x, dtype];
  const dims = layout === "unbatched" ? [1, ...given.dims] : given.dims;
  const [B, S] = layout === "sequence_first" ? [dims[1], dims[0]] : dims;
  const fits = embedding ? dims.length === 2 : dims.length === 3 && dims[2] === D;
  refuseUnless(fits, "shape", `the input is [${given.dims}], and d_model ${D}`);
  refuseUnless(given.dtype === wanted, "dtype", `the input is ${given.dtype}, and not ${wanted}`);
  const inputs = { x: { ...given, dims } };
  const formats = { attend: "BOOL", ignore: "BOOL", integer: "I32", additive: dtype, additive_float32: "F32" };
  for (const [name, mask] of Object.entries(masks)) {
    const axes = [...mask.dims];
    if (name === "attention_mask" && axes.length === 3) axes.splice(0, 1, axes[0] / H, H);
    while (axes.length < 4) axes.splice(name === "padding_mask" && axes.length > 1 ? 1 : 0, 0, 1);
    const fits = axes.every((size, axis) => size === 1 || size === [B, H, S, S][axis]);
    refuseUnless(fits, "shape", `${name} is [${mask.dims}], and the scores [${[B, H, S, S]}]`);
    const wanted = name === "attention_bias" ? dtype : formats[form];
    refuseUnless(mask.dtype === wanted, "dtype", `${name} is ${mask.dtype}, and not ${wanted}`);
    inputs[name] = { ...mask, dims: axes };
  }
  const table = (columns, of) => Array.from(Array(S * columns), (_, i) => of(Math.floor(i / columns), i % columns));
  if (flag) inputs.causal = tensor("BOOL", [1, 1, S, S], table(S, (query, key) => key <= query));
  if (embedding?.positions === "sinusoidal") {
    const wave = (s, f) => (f % 2 ? Math.cos : Math.sin)(s / 10000 ** ((f - (f % 2)) / D));
    inputs.positions = tensor(dtype, [1, S, D], table(D, wave));
  }
  return inputs;
}

// What is computed is a tree: a string is an input or a parameter, a number a constant, a list of them int64.
const operator = new Proxy({}, { get: (_, opType) => (...inputs) => ({ opType, inputs }) });
const { Add, And, Div, Erf, Exp, Gather, Greater, Identity, MatMul, Mul, Neg, Not, Relu, Softmax, Sqrt, Sub, Tanh, Where } =
  operator;
const reshape = (x, ...sizes) => operator.Reshape(x, sizes);
const transpose = (x, ...perm) => ({ ...operator.Transpose(x), perm });
const last = (opType, x) => ({ ...operator[opType](x), axes: [-1] });
const cast = (x, dtype) => ({ ...operator.Cast(x), to: FORMATS[dtype].onnx });

function linear(x, name, biased) {
  const product = MatMul(x, `${name}.weight`);
  return biased ? Add(product, `${name}.bias`) : product;
}

function norm(x, name, { kind, epsilon }) {
  const centred = kind === "layer_norm" ? Sub(x, last("ReduceMean", x)) : x;
  const variance = last("ReduceMean", Mul(centred, centred));
  const scaled = Mul(Div(centred, Sqrt(Add(variance, Math.fround(epsilon)))), `${name}.gain`);
  return kind === "layer_norm" ? Add(scaled, `${name}.shift`) : scaled;
}

const gelu = (x, odd) => Mul(Mul(x, Add(odd, 1)), 0.5);
const ACTIVATIONS = {
  relu: (x) => Relu(x),
  gelu: (x) => gelu(x, Erf(Div(x, Math.SQRT2))),
  gelu_tanh: (x) => gelu(x, Tanh(Mul(Add(x, Mul(Mul(Mul(x, x), x), 0.044715)), Math.sqrt(2 / Math.PI)))),
  silu: (x) => Div(x, Add(Exp(Neg(x)), 1)),
};

function attention(s, x, at, layer, { may, padding, added }) {
  const { d_model: D, attention: { num_heads: H, fully_masked_row: row, ...of } } = layer;
  for (const role of ["query", "key", "value"]) {
    const from = of.projections === "full" ? x : reshape(x, 0, 0, H, D / H);
    s[role] = reshape(linear(from, `${at}.${role}`, of.qkv_bias), 0, 0, D);
    s[`${role}_heads`] = transpose(reshape(s[role], 0, 0, H, D / H), 0, 2, 1, 3);
  }
  const products = MatMul(s.query_heads, transpose(s.key_heads, 0, 1, 3, 2));
  s.attention_scores = Div(products, Math.sqrt(of.scale === "d_model" ? D : D / H));
  const scores = added.reduce((sum, numbers) => Add(sum, numbers), s.attention_scores);
  const ifKey = (value, other) => Where(Greater(last("ReduceMax", Where(may, 1, 0)), 0), value, other); // a key to attend to
  const low = of.masked_score === "minus_infinity" ? -Infinity : of.masked_score;
  const masked = may ? Where(may, scores, row === "uniform" ? ifKey(low, 0) : low) : scores;
  s.attention_weights = may && row === "zero" ? ifKey(Softmax(masked), 0) : Softmax(masked);
  s.context = MatMul(s.attention_weights, s.value_heads);
  if (padding && layer.padding_content === "any") { // a NaN weighed by 0 is NaN (M-8)
    const clean = MatMul(s.attention_weights, Where(transpose(padding, 0, 1, 3, 2), s.value_heads, 0));
    s.context = row === "uniform" ? ifKey(clean, s.context) : clean;
  }
  s.context_merged = reshape(transpose(s.context, 0, 2, 1, 3), 0, 0, D);
  return (s.attention_output = linear(s.context_merged, `${at}.output`, of.output_bias));
}

function encoderLayer(s, x, at, layer, masks) {
  const { norm: choices, feed_forward: { activation, bias } } = layer;
  const pre = choices.placement === "pre";
  const normed = (name, value) => (s[name] = norm(value, at + name, choices));
  s.residual1 = Add(x, attention(s, pre ? normed("norm1", x) : x, `${at}attention`, layer, masks));
  const middle = pre ? s.residual1 : normed("norm1", s.residual1);
  s.ffn_hidden = linear(pre ? normed("norm2", middle) : middle, `${at}feed_forward.hidden`, bias);
  s.ffn_activation = ACTIVATIONS[activation](s.ffn_hidden);
  s.ffn_output = linear(s.ffn_activation, `${at}feed_forward.output`, bias);
  s.residual2 = Add(middle, s.ffn_output);
  return pre ? s.residual2 : normed("norm2", s.residual2);
}

/** The stages of a layer, or of a stack (T-3), over what it is fed. */
function stagesOf(layer, dtype, { layout, masks: form }, fed) {
  const { stack, embedding, norm: choices } = layer;
  const numbers = (mask) => Greater(cast(mask, dtype), -Infinity);
  const may = { attend: Identity, ignore: Not, integer: (mask) => cast(mask, "BOOL") }[form] ?? numbers;
  const given = fed.filter((name) => name.endsWith("_mask"));
  const both = [...given.map((mask) => may(mask)), ...fed.filter((name) => name === "causal")];
  const added = fed.filter((name) => name === "attention_bias" || (form.startsWith("additive") && given.includes(name)));
  const masks = {
    may: both.reduce((a, b) => (a ? And(a, b) : b), null),
    padding: fed.includes("padding_mask") && may("padding_mask"),
    added: added.map((name) => cast(name, dtype)),
  };
  const turned = (value) => (layout === "sequence_first" ? transpose(value, 1, 0, 2) : value);
  const tokens = embedding && Gather("embedding.weight", "x");
  let x = !embedding ? turned("x") : fed.includes("positions") ? Add(tokens, "positions") : tokens;
  const [inner, outer] = [{}, embedding ? { embedded: x } : {}];
  const stacked = stack.layers > 1 || stack.final_norm || embedding;
  for (let k = 0; k < stack.layers; k++) {
    x = outer[`layer_${k}`] = encoderLayer(inner, x, stacked ? `layers.${k}.` : "", layer, masks);
  }
  if (stack.final_norm) x = outer.final_norm = norm(x, "final_norm", choices);
  return { ...(stacked ? outer : inner), output: turned(x) };
}

/** The model of one way of asking: its inputs are what it is fed, its outputs what is asked for. */
export function modelOf({ layer, dtype, parameters }, { check, given }, inputs) {
  const { d_model: D, attention: { num_heads: H }, feed_forward: { activation } } = layer;
  refuseUnless(D % H === 0, "configuration", `num_heads ${H} does not divide d_model ${D}`);
  refuseUnless(activation in ACTIVATIONS, "configuration", `there is no activation ${activation}`);
  const shown = stagesOf(layer, dtype, given, Object.keys(inputs));
  const asked = { output: ["output"], weights: ["attention_weights", "output"], stages: Object.keys(shown) }[check];
  if (!asked) throw new Error(`unsupported: the check ${check}`);

  const [node, initializer, names] = [[], [], new Map()];
  const nameOf = (value) => names.get(value) ?? names.set(value, written(value)).get(value);
  function hold(name, { dtype: format, dims, bytes }) {
    initializer.push({ name, dims, dataType: FORMATS[format].onnx, rawData: bytes });
    return name;
  }
  function written(value) {
    if (value in parameters) return hold(value, parameters[value]);
    if (typeof value === "string") return value;
    const constant = `constant_${initializer.length}`;
    if (typeof value === "number") return hold(constant, tensor(dtype, [], [value]));
    if (Array.isArray(value)) return hold(constant, tensor("I64", [value.length], value.map(BigInt)));
    const { opType, inputs, ...attributes } = value;
    const attribute = Object.entries(attributes).map(([name, is]) =>
      ({ name, ...(is.length ? { ints: is, type: 7 } : { i: is, type: 2 }) }));
    node.push({ opType, input: inputs.map(nameOf), output: [`${opType}_${node.length}`], attribute });
    return node.at(-1).output[0];
  }
  for (const name of asked) node.push({ opType: "Identity", input: [nameOf(shown[name])], output: [name] });
  const left = Object.keys(parameters).filter((name) => !names.has(name));
  refuseUnless(left.length === 0, "configuration", `the layer has no ${left}`);

  const typed = (name, format, shape) => ({ name, type: { tensorType: { elemType: FORMATS[format].onnx, shape } } });
  const input = Object.entries(inputs).map(([name, { dtype: format, dims }]) =>
    typed(name, format, { dim: dims.map(() => ({})) }));
  const output = asked.map((name) => typed(name, dtype));
  const graph = { name: "encoder", node, initializer, input, output };
  return proto.onnx.ModelProto.encode({ irVersion: 8, opsetImport: [{ domain: "", version: 17 }], graph }).finish();
}

/** The parameters of these names, as a model holds them. */
export function parametersIn(model, names) {
  const held = proto.onnx.ModelProto.decode(model).graph.initializer.filter(({ name }) => names.includes(name));
  const formatOf = (number) => Object.keys(FORMATS).find((format) => FORMATS[format].onnx === number);
  return Object.fromEntries(held.map(({ name, dims, dataType, rawData: bytes }) =>
    [name, { dtype: formatOf(dataType), dims: dims.map(Number), bytes }]));
}

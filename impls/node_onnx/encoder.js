// The encoder of specs/README.md as an ONNX model of plain operators, and what a session of it is fed.
import proto from "onnx-proto";

/** Number formats by their names on the wire: the name elsewhere, ONNX's number, and the array that holds one. */
export const FORMATS = {
  F64: ["float64", 11, Float64Array], F32: ["float32", 1, Float32Array], BOOL: ["bool", 9, Uint8Array],
  I64: ["int64", 7, BigInt64Array], I32: ["int32", 6, Int32Array],
};
export const formatOf = (at, value) => Object.keys(FORMATS).find((dtype) => FORMATS[dtype][at] === value);
const tensor = (dtype, dims, values) => ({ dtype, dims, bytes: new Uint8Array(FORMATS[dtype][2].from(values).buffer) });

/** Unless it fits, throws what is answered with the category of what is wrong. */
function refuseUnless(fits, refused, message) {
  if (!fits) throw Object.assign(new Error(message), { refused });
}

/** The batch first, masks of four axes, and as tensors what a flag and sinusoidal positions stand for. */
export function inputsOf({ layer, dtype }, { layout, masks: form, causal_flag: flag }, tensors) {
  const { d_model: D, embedding, attention: { num_heads: H } } = layer;
  const main = embedding ? "ids" : "x";
  const shape = layout === "unbatched" ? [1, ...tensors[main].dims] : tensors[main].dims;
  const [B, S] = layout === "sequence_first" ? [shape[1], shape[0]] : shape;
  const mask = { attend: "BOOL", ignore: "BOOL", integer: "I32", additive_float32: "F32" }[form] ?? dtype;
  const expected = { x: dtype, ids: "I64", attention_bias: dtype, padding_mask: mask, attention_mask: mask };
  const inputs = {};
  for (const [name, given] of Object.entries(tensors)) {
    const dims = name === main ? shape : [...given.dims];
    if (name === "attention_mask" && dims.length === 3) dims.splice(0, 1, dims[0] / H, H);
    while (name !== main && dims.length < 4) dims.splice(name === "padding_mask" && dims.length > 1 ? 1 : 0, 0, 1);
    // A mask is broadcast to the scores.
    const to = { x: [...shape.slice(0, 2), D], ids: [B, S] }[name] ?? [B, H, S, S].map((n, i) => dims[i] === 1 ? 1 : n);
    refuseUnless(`${dims}` === `${to}`, "shape", `${name} is [${given.dims}]: B ${B}, H ${H}, S ${S}, D ${D}`);
    refuseUnless(given.dtype === expected[name], "dtype", `${name} is ${given.dtype}, and not ${expected[name]}`);
    inputs[name] = { ...given, dims };
  }
  const table = (columns, of) => Array.from(Array(S * columns), (_, i) => of(Math.floor(i / columns), i % columns));
  if (flag) inputs.causal = tensor("BOOL", [1, 1, S, S], table(S, (query, key) => key <= query));
  const wave = (s, f) => (f % 2 ? Math.cos : Math.sin)(s / 10000 ** ((f - (f % 2)) / D));
  if (embedding?.positions === "sinusoidal") inputs.positions = tensor(dtype, [1, S, D], table(D, wave));
  return inputs;
}

// A tree of what is computed: a string is an input or a parameter, a number or a tensor a constant, the rest nodes.
const op = (opType, ...attribute) => (...inputs) => ({ opType, inputs, attribute });
const { Add, And, Div, Erf, Exp, Gather, Greater, MatMul, Mul, Neg, Not, Relu, Softmax, Sqrt, Sub, Tanh, Where } =
  new Proxy({}, { get: (_, opType) => op(opType) });
const over = (opType, x) => op(opType, { name: "axes", ints: [-1], type: 7 })(x);
const cast = (x, dtype) => op("Cast", { name: "to", i: FORMATS[dtype][1], type: 2 })(x);
const transpose = (x, ...perm) => op("Transpose", { name: "perm", ints: perm, type: 7 })(x);
const reshape = (x, ...sizes) => op("Reshape")(x, tensor("I64", [sizes.length], sizes.map(BigInt)));
const linear = (x, of, biased) => (biased ? Add(MatMul(x, `${of}.weight`), `${of}.bias`) : MatMul(x, `${of}.weight`));

function norm(x, name, { kind, epsilon }) {
  const centred = kind === "layer_norm" ? Sub(x, over("ReduceMean", x)) : x;
  const spread = Sqrt(Add(over("ReduceMean", Mul(centred, centred)), Math.fround(epsilon)));
  const scaled = Mul(Div(centred, spread), `${name}.gain`);
  return kind === "layer_norm" ? Add(scaled, `${name}.shift`) : scaled;
}

const gelu = (x, odd) => Mul(Mul(x, Add(odd, 1)), 0.5);
const ACTIVATIONS = {
  gelu: (x) => gelu(x, Erf(Div(x, Math.SQRT2))),
  gelu_tanh: (x) => gelu(x, Tanh(Mul(Add(x, Mul(Mul(Mul(x, x), x), 0.044715)), Math.sqrt(2 / Math.PI)))),
  silu: (x) => Div(x, Add(Exp(Neg(x)), 1)), relu: (x) => Relu(x),
};

function attention(s, x, at, { d_model: D, padding_content: content, attention: of }, { may, padding, added }) {
  const { num_heads: H, fully_masked_row: row } = of;
  for (const role of ["query", "key", "value"]) {
    const from = of.projections === "full" ? x : reshape(x, 0, 0, H, D / H);
    s[role] = reshape(linear(from, `${at}.${role}`, of.qkv_bias), 0, 0, D);
    s[`${role}_heads`] = transpose(reshape(s[role], 0, 0, H, D / H), 0, 2, 1, 3);
  }
  const products = MatMul(s.query_heads, transpose(s.key_heads, 0, 1, 3, 2));
  s.attention_scores = Div(products, Math.sqrt(of.scale === "d_model" ? D : D / H));
  const scores = added.reduce((sum, numbers) => Add(sum, numbers), s.attention_scores);
  const ifKey = (some, none) => (may ? Where(Greater(over("ReduceMax", Where(may, 1, 0)), 0), some, none) : some);
  const low = of.masked_score === "minus_infinity" ? -Infinity : of.masked_score;
  const weights = Softmax(may ? Where(may, scores, row === "uniform" ? ifKey(low, 0) : low) : scores);
  s.attention_weights = row === "zero" ? ifKey(weights, 0) : weights;
  // M-8: what is NaN in the padding is NaN when it is weighed by 0 too.
  const data = padding && content === "any" ? Where(transpose(padding, 0, 1, 3, 2), s.value_heads, 0) : s.value_heads;
  const [context, all] = [data, s.value_heads].map((values) => MatMul(s.attention_weights, values));
  s.context = row === "uniform" ? ifKey(context, all) : context;
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

/** Every stage of a layer, or of a stack (T-3), as a tree over what it is fed. */
function stagesOf({ layer, dtype }, { layout, masks: form }, fed) {
  const { stack, embedding, norm: choices } = layer;
  const finite = (mask) => Greater(cast(mask, dtype), -Infinity);
  const nonzero = (mask) => cast(mask, "BOOL");
  const may = { attend: (mask) => mask, ignore: Not, integer: nonzero, float: nonzero }[form] ?? finite;
  const given = fed.filter((name) => name.endsWith("_mask"));
  const each = [...given.map((mask) => may(mask)), ...fed.filter((name) => name === "causal")];
  const added = fed.filter((name) => name === "attention_bias" || (may === finite && given.includes(name)));
  const all = each.reduce((a, b) => (a ? And(a, b) : b), null);
  const padding = fed.includes("padding_mask") && may("padding_mask");
  const masks = { may: all, padding, added: added.map((name) => cast(name, dtype)) };
  const turned = (value) => (layout === "sequence_first" ? transpose(value, 1, 0, 2) : value);
  let x = embedding ? Gather("embedding.weight", "ids") : turned("x");
  if (fed.includes("positions")) x = Add(x, "positions");
  const shown = embedding ? { embedded: x } : {};
  const stacked = stack.layers > 1 || stack.final_norm || embedding;
  for (let k = 0; k < stack.layers; k++) {
    const inside = {};
    x = encoderLayer(inside, x, stacked ? `layers.${k}.` : "", layer, masks);
    if (!stacked || stack.layers <= 4) // T-3
      for (const [name, value] of Object.entries(inside)) shown[stacked ? `layer_${k}.${name}` : name] = value;
    if (stacked) shown[`layer_${k}`] = x;
  }
  if (stack.final_norm) x = shown.final_norm = norm(x, "final_norm", choices);
  return { ...shown, output: turned(x) };
}

/** The model of one way of asking: its inputs are what it is fed, its outputs what is asked for. */
export function modelOf(built, { check, given }, fed) {
  const { layer: { d_model: D, attention: { num_heads: H }, feed_forward: { activation } }, dtype, parameters } = built;
  refuseUnless(D % H === 0, "configuration", `num_heads ${H} does not divide d_model ${D}`);
  refuseUnless(activation in ACTIVATIONS, "configuration", `there is no activation ${activation}`);
  const stages = stagesOf(built, given, Object.keys(fed));
  const asked = { output: ["output"], weights: ["attention_weights", "output"], stages: Object.keys(stages) }[check];
  const [node, initializer, names] = [[], [], new Map()];
  const nameOf = (value) => names.get(value) ?? names.set(value, written(value)).get(value);
  const written = (value) => {
    const input = value.inputs?.map(nameOf);
    const name = typeof value === "string" ? value : `value_${names.size}`;
    const held = typeof value === "number" ? tensor(dtype, [], [value]) : (parameters[value] ?? value);
    if (input) node.push({ ...value, input, output: [name] });
    if (held.bytes) initializer.push({ name, dims: held.dims, dataType: FORMATS[held.dtype][1], rawData: held.bytes });
    return name;
  };
  for (const name of asked) node.push({ opType: "Identity", input: [nameOf(stages[name])], output: [name] });
  const typed = (name, format, shape) => ({ name, type: { tensorType: { elemType: FORMATS[format][1], shape } } });
  const input = Object.keys(fed).map((name) => typed(name, fed[name].dtype, { dim: fed[name].dims.map(() => ({})) }));
  const graph = { name: "encoder", node, initializer, input, output: asked.map((name) => typed(name, dtype)) };
  return proto.onnx.ModelProto.encode({ irVersion: 8, opsetImport: [{ domain: "", version: 17 }], graph }).finish();
}

/** The parameters of these names as a model holds them. */
export function parametersIn(model, names) {
  const held = proto.onnx.ModelProto.decode(model).graph.initializer.filter(({ name }) => names.includes(name));
  return Object.fromEntries(held.map(({ name, dims, dataType, rawData: bytes }) =>
    [name, { dtype: formatOf(1, dataType), dims: dims.map(Number), bytes }]));
}

// Speaks the wire (docs/wire.md) for the encoder that encoder.js writes and ONNX Runtime runs.
import { readSync, writeSync } from "node:fs";
import ort from "onnxruntime-node";
import { FORMATS, formatOf, inputsOf, modelOf, parametersIn } from "./encoder.js";

const [REQUESTS, ANSWERS] = (process.env.CONFORM_WIRE ?? "0,1").split(",").map(Number);
let settings = { logSeverityLevel: 3, interOpNumThreads: 1 }, built = { sessions: {} };
const each = (object, change) => Object.fromEntries(Object.entries(object).map(([key, of]) => [key, change(of)]));

/** So many bytes of the requests; where they end, so does the process. */
function take(count) {
  const bytes = Buffer.alloc(count);
  for (let have = 0; have < count; ) have += readSync(REQUESTS, bytes, { offset: have }) || process.exit();
  return bytes;
}

function receive() {
  const file = take(Number(take(8).readBigUInt64LE()));
  const start = 8 + Number(file.readBigUInt64LE());
  const { __metadata__: metadata, ...entries } = JSON.parse(file.toString("utf8", 8, start));
  const tensors = each(entries, ({ dtype, shape: dims, data_offsets: [from, to] }) =>
    ({ dtype, dims, bytes: new Uint8Array(file.subarray(start + from, start + to)) })); // a copy, aligned
  return { ...JSON.parse(metadata.message), tensors };
}

function send(message, tensors = {}) {
  let end = 0;
  const entry = ({ dtype, dims, bytes }) => ({ dtype, shape: dims, data_offsets: [end, (end += bytes.length)] });
  const header = { __metadata__: { message: JSON.stringify(message) }, ...each(tensors, entry) };
  const text = Buffer.from(JSON.stringify(header));
  const lengths = Buffer.from(BigUint64Array.of(BigInt(8 + text.length + end), BigInt(text.length)).buffer);
  const parts = [lengths, text, ...Object.values(tensors).map(({ bytes }) => bytes)];
  for (const part of parts) for (let sent = 0; sent < part.length; ) sent += writeSync(ANSWERS, part, sent);
}

async function sessionFor(of, request, inputs) {
  const key = JSON.stringify([request, Object.keys(inputs)]);
  const graphOptimizationLevel = of.dtype === "F64" ? "basic" : "all"; // microsoft/onnxruntime#28145 rounds 1/√d
  if (!of.sessions[key]) of.model = modelOf(of, request, inputs);
  return (of.sessions[key] ??= await ort.InferenceSession.create(of.model, { ...settings, graphOptimizationLevel }));
}

const operations = {
  start({ threads }) {
    settings.intraOpNumThreads = threads;
    return [{ protocol: 3, versions: { node: process.version, onnxruntime: ort.env.versions.node }, settings }];
  },
  async build({ layer, dtype: name, tensors: parameters }) {
    const next = { layer, dtype: formatOf(0, name), parameters, sessions: {} };
    const fed = layer.embedding ? { ids: { dtype: "I64", dims: [1, 1] } } : { x: { ...next, dims: [1, 1, 1] } };
    await sessionFor(next, { check: "output", given: { layout: "batch_first", masks: "attend" } }, fed);
    for (const session of Object.values(built.sessions)) await session.release();
    built = next;
    return [{}, parametersIn(built.model, Object.keys(parameters))];
  },
  async run({ check, given, tensors }) {
    const inputs = inputsOf(built, given, tensors);
    const fed = ({ dtype: of, dims, bytes }) => new ort.Tensor(FORMATS[of][0], new FORMATS[of][2](bytes.buffer), dims);
    const shapeOf = ({ dims }) => (given.layout === "unbatched" ? dims.slice(1) : dims);
    const bytesOf = ({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const shown = await (await sessionFor(built, { check, given }, inputs)).run(each(inputs, fed));
    return [{}, each(shown, (value) => ({ dtype: built.dtype, dims: shapeOf(value), bytes: bytesOf(value) }))];
  },
  stop: () => [{}],
};

for (let request; request?.op !== "stop"; ) {
  request = receive();
  try {
    if (!(request.op in operations)) throw new Error(`unsupported: the operation ${request.op}`);
    const [answer, tensors] = await operations[request.op](request);
    send({ id: request.id, ok: true, ...answer }, tensors);
  } catch ({ message, refused = null }) {
    send({ id: request.id, ok: false, error: message.split("\n")[0], refused });
  }
}

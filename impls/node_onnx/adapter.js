// Speaks the wire (docs/wire.md) for the encoder that encoder.js writes and ONNX Runtime runs.
import { readSync, writeSync } from "node:fs";
import ort from "onnxruntime-node";
import { FORMATS, inputsOf, modelOf, parametersIn } from "./encoder.js";

/** So many bytes of standard input; where it ends, so does the process. */
function take(count) {
  const bytes = new Uint8Array(count);
  for (let have = 0, more; have < count; have += more) {
    more = readSync(0, bytes, { offset: have }) || process.exit();
  }
  return bytes;
}
const lengthAt = (bytes) => Number(new DataView(bytes.buffer).getBigUint64(0, true));

/** The next request, and its tensors. */
function receive() {
  const file = take(lengthAt(take(8)));
  const start = 8 + lengthAt(file);
  const { __metadata__: metadata, ...entries } = JSON.parse(new TextDecoder().decode(file.subarray(8, start)));
  const tensor = ({ dtype, shape: dims, data_offsets: [from, to] }) => ({ dtype, dims, bytes: file.slice(start + from, start + to) });
  const tensors = Object.entries(entries).map(([name, entry]) => [name, tensor(entry)]);
  return [JSON.parse(metadata.message), Object.fromEntries(tensors)];
}

function send(message, tensors) {
  let end = 0;
  const entry = ({ dtype, dims, bytes }) => ({ dtype, shape: dims, data_offsets: [end, (end += bytes.length)] });
  const entries = Object.entries(tensors).map(([name, tensor]) => [name, entry(tensor)]);
  const metadata = { __metadata__: { message: JSON.stringify(message) } };
  const header = Buffer.from(JSON.stringify({ ...metadata, ...Object.fromEntries(entries) }));
  const lengths = BigUint64Array.of(BigInt(8 + header.length + end), BigInt(header.length));
  const frame = Buffer.concat([Buffer.from(lengths.buffer), header, ...Object.values(tensors).map(({ bytes }) => bytes)]);
  for (let sent = 0; sent < frame.length; ) sent += writeSync(1, frame, sent);
}

const settings = { logSeverityLevel: 3, interOpNumThreads: 1 };
let built;

async function sessionFor(of, request, inputs) {
  const key = JSON.stringify([request, Object.keys(inputs)]);
  if (!of.sessions[key]) {
    of.model = modelOf(of, request, inputs);
    const graphOptimizationLevel = of.dtype === "F64" ? "basic" : "all"; // FusedMatMul rounds a scale to float32
    of.sessions[key] = await ort.InferenceSession.create(of.model, { ...settings, graphOptimizationLevel });
  }
  return of.sessions[key];
}

const operations = {
  start({ device, threads }) {
    if (device !== "cpu") throw new Error(`unsupported: the device ${device}`);
    settings.intraOpNumThreads = threads;
    const versions = { node: process.versions.node, "onnxruntime-node": ort.env.versions.node };
    return [{ protocol: 3, versions, settings: { threads } }, {}];
  },
  async build({ layer, dtype: name }, parameters) {
    const dtype = Object.keys(FORMATS).find((format) => FORMATS[format].name === name);
    const next = { layer, dtype, parameters, sessions: {} };
    const x = layer.embedding ? { dtype: "I64", dims: [1, 1] } : { dtype, dims: [1, 1, layer.d_model] };
    await sessionFor(next, { check: "output", given: { layout: "batch_first", masks: "attend" } }, { x });
    for (const session of Object.values(built?.sessions ?? {})) await session.release();
    built = next;
    return [{}, parametersIn(built.model, Object.keys(parameters))];
  },
  async run({ check, mode, given }, tensors) {
    if (mode !== "eval") throw new Error(`unsupported: the mode ${mode}`);
    const inputs = inputsOf(built, given, tensors);
    const session = await sessionFor(built, { check, given }, inputs);
    const value = ({ dtype, dims, bytes }) => new ort.Tensor(FORMATS[dtype].name, new FORMATS[dtype].array(bytes.buffer), dims);
    const fed = Object.entries(inputs).map(([name, tensor]) => [name, value(tensor)]);
    const answer = ({ data, dims }) => ({
      dtype: built.dtype,
      dims: given.layout === "unbatched" ? dims.slice(1) : dims,
      bytes: new Uint8Array(data.buffer, data.byteOffset, data.byteLength),
    });
    const seen = Object.entries(await session.run(Object.fromEntries(fed)));
    return [{}, Object.fromEntries(seen.map(([name, tensor]) => [name, answer(tensor)]))];
  },
  stop: () => [{}, {}],
};

for (let op; op !== "stop"; ) {
  const [{ id, ...request }, tensors] = receive();
  op = request.op;
  try {
    if (!(op in operations)) throw new Error(`unsupported: the operation ${op}`);
    const [answer, shown] = await operations[op](request, tensors);
    send({ id, ok: true, ...answer }, shown);
  } catch ({ message, refused = null }) {
    send({ id, ok: false, error: message.split("\n")[0], refused }, {});
  }
}

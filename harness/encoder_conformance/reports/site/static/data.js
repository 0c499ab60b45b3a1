"use strict";
// Loads data files (scripts, since pages from file:// may fetch nothing else) and decodes them. Every text in them is
// written by others: it becomes a text node, never markup.
const conform = {
  index: null,
  parts: {},
  waiting: {},
  receive(name, value) {
    conform.parts[name] = Object.fromEntries(
      Object.entries(value).map(([key, each]) => [key, each && each.shared ? conform.rows(each) : each]),
    );
    if (name === "index") conform.index = conform.parts[name];
  },
  // Rows by name: each is the next one of a table that has a column for each name (harness/encoder_conformance/reports/site/coding.py: Rows).
  rows({ kinds, tables, shared }) {
    const taken = tables.map(() => 0);
    return kinds.map((kind) => {
      const n = taken[kind]++;
      const named = ([name, values]) => [name, name in shared ? shared[name][values[n]] : values[n]];
      return Object.fromEntries(Object.entries(tables[kind]).map(named));
    });
  },
  load(name) {
    if (name in conform.parts) return Promise.resolve(conform.parts[name]);
    conform.waiting[name] ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `data/${name}.js`;
      script.onload = () => resolve(conform.parts[name]);
      script.onerror = () => reject(new Error(`data/${name}.js cannot be read`));
      document.head.append(script);
    });
    return conform.waiting[name];
  },
  decode(character) {
    const code = conform.index.code;
    if (character === code.missing || character === undefined) return null;
    if (character === code.zero) return 0;
    const level = code.levels.indexOf(character);
    const above =
      level <= code.fineLevels
        ? level / code.fine
        : code.fineLevels / code.fine + (level - code.fineLevels) / code.coarse;
    return 10 ** (code.smallest + above);
  },
  sigma(value) {
    if (value === null || value === undefined) return "–";
    if (value === 0) return "0";
    if (value < 0.1) return value.toPrecision(1);
    if (value < 9.995) return value.toFixed(2);
    if (value < 9999.5) return value.toFixed(0);
    return value.toExponential(0).replace("e+", "e");
  },
  element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  },
  // Text with the specification's `code`, **bold** and *italic*, as elements.
  marked(text) {
    const names = { "`": "code", "**": "b", "*": "i" };
    return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*\s][^*]*\*)/).map((piece) => {
      const sign = ["`", "**", "*"].find((each) => piece.length > 2 * each.length && piece.startsWith(each) && piece.endsWith(each));
      return sign ? conform.element(names[sign], {}, piece.slice(sign.length, -sign.length)) : piece;
    });
  },
  anchor(values) {
    const given = Object.entries(values).filter(([, value]) => value);
    return "#" + new URLSearchParams(given).toString();
  },
  asked() {
    return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  },
  outcome(code) {
    return conform.index.outcomes[code];
  },
  // The checks of a cell: `part` is data/N.js, and `slot` the number of its case and dtype.
  checks(part, slot) {
    const start = part.counts.slice(0, slot).reduce((sum, count) => sum + count, 0);
    return part.checks.slice(start, start + part.counts[slot]);
  },
  // A check with its tensors, of a row that harness/encoder_conformance/reports/site/columns.py writes.
  check(row) {
    const out = new Set(row.out);
    const tensors = (row.tensors || []).map((name, n) => ({
      name,
      rms: conform.decode(row.tensor_rms[n]),
      max: conform.decode(row.tensor_max[n]),
      out: out.has(n),
      ...(row.off || []).find((each) => each.n === n),
    }));
    const largest = (kind) => tensors.reduce((most, each) => (each[kind] === null || each[kind] < most ? most : each[kind]), null);
    return { rms: largest("rms"), max: largest("max"), ...row, outcome: conform.outcome(row.outcome), tensors };
  },
};

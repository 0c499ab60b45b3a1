"use strict";
// Loads data files (scripts, since pages from file:// may fetch nothing else) and decodes them. Every text in them is
// written by others: it becomes a text node, never markup.
const conform = {
  index: null,
  parts: {},
  waiting: {},
  receive(name, value) {
    if (name === "index") conform.index = value;
    conform.parts[name] = value;
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
  // One check of a cell, as data/N.js has it (harness/site/columns.py).
  check(part, entry) {
    const [check, outcome] = entry;
    const found = { check: part.checks[check], outcome: conform.index.outcomes[outcome], tensors: [], more: {} };
    if (entry.length === 3) return { ...found, text: part.texts[entry[2]] };
    const [names, sizes] = entry.length === 4 ? entry.slice(2) : entry.slice(4);
    const more = entry[6] || {};
    const out = new Set(more.out || []);
    found.tensors = part.names[names].map((name, n) => ({
      name,
      rms: conform.decode(sizes[2 * n]),
      max: conform.decode(sizes[2 * n + 1]),
      out: out.has(n),
      ...(more.off || []).find((each) => each.n === n),
    }));
    const largest = (kind) => found.tensors.reduce((most, each) => (each[kind] === null || each[kind] < most ? most : each[kind]), null);
    const [rms, max] = entry.length === 4 ? [largest("rms"), largest("max")] : entry.slice(2, 4);
    return { ...found, rms, max, more, text: "text" in more ? part.texts[more.text] : "" };
  },
};

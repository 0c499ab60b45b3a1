"use strict";
// Three pictures, each an SVG with its description: errors by stage, a mask, and where in a tensor the error is. Scales
// and axes are of D3 (vendor/d3.min.js).
conform.charts = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const { element, sigma } = conform;

  function svg(name, attributes, ...children) {
    const made = document.createElementNS(NS, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // Errors in σ on a logarithmic axis, a row for each tensor in the order of computation. The band is what conforms.
  function stages(tensors, limits) {
    const width = Math.min(560, document.documentElement.clientWidth - 40);
    const row = 18, left = Math.min(165, width * 0.42), right = 24, top = 22;
    const shown = tensors.filter((each) => each.rms !== null || each.problem);
    const largest = Math.max(100, ...shown.map((each) => each.max || 0));
    const from = -2, to = Math.min(16, Math.ceil(Math.log10(largest)));
    const x = d3.scaleLog([10 ** from, 10 ** to], [left, width - right]).clamp(true);
    const height = top + shown.length * row + 26;
    const worst = shown.find((each) => each.out);
    const label = worst
      ? `Errors by stage in σ: first out of line is ${worst.name}`
      : "Errors by stage in σ: all within the limits";
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "stages" });
    picture.append(
      svg("rect", { class: "band", x: left, y: top - 4, width: x(limits.rms) - left, height: shown.length * row + 8 }),
      line("limit", x(limits.rms), top - 4, shown.length * row + 8),
      line("limit far", x(limits.max), top - 4, shown.length * row + 8),
      text("axis", x(limits.rms), top - 9, `${limits.rms}`, "end"),
      text("axis", x(limits.max), top - 9, `${limits.max} σ`, "start"),
    );
    const step = Math.ceil((to - from) / ((width - left) / 60));
    const powers = Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, n) => from + n * step);
    const axis = d3.axisBottom(x).tickValues(powers.map((power) => 10 ** power)).tickSize(-shown.length * row - 8);
    const bottom = svg("g", { class: "axis", transform: `translate(0, ${top + 4 + shown.length * row})` });
    d3.select(bottom).call(axis.tickFormat(tick).tickPadding(6));
    picture.append(bottom);
    shown.forEach((each, n) => {
      const y = top + n * row + row / 2;
      const kind = each.out ? "out" : "in";
      picture.append(text(`name ${kind}`, left - 8, y + 4, `${each.out ? "✗ " : ""}${each.name}`, "end"));
      if (each.rms === null) {
        picture.append(text("problem", left + 6, y + 4, "not comparable", "start"));
        return;
      }
      picture.append(svg("line", { class: `reach ${kind}`, x1: x(each.rms), x2: x(each.max), y1: y, y2: y }));
      picture.append(svg("circle", { class: `rms ${kind}`, cx: x(each.rms), cy: y, r: 4 }));
      picture.append(svg("circle", { class: `max ${kind}`, cx: x(each.max), cy: y, r: 3.5 }));
    });
    return element(
      "figure",
      {},
      picture,
      element("figcaption", {}, "● rms, ○ largest, in σ. Shaded: conforms. Lines: the limits of rms and of the largest."),
      numbers(shown),
    );
  }

  function tick(size) {
    return size < 1e4 ? String(size) : `1e${Math.round(Math.log10(size))}`;
  }

  function line(kind, x, y, height) {
    return svg("line", { class: kind, x1: x, x2: x, y1: y, y2: y + height });
  }

  function text(kind, x, y, content, anchor) {
    return svg("text", { class: kind, x, y, "text-anchor": anchor }, content);
  }

  function numbers(tensors) {
    const { element: make } = conform;
    const rows = tensors.map((each) =>
      make("tr", {}, make("th", { scope: "row" }, each.name), make("td", {}, sigma(each.rms)), make("td", {}, sigma(each.max)),
        make("td", {}, each.out ? "out of line" : "")),
    );
    const head = make("tr", {}, ...["tensor", "rms σ", "max σ", ""].map((name) => make("th", { scope: "col" }, name)));
    return make("details", {}, make("summary", {}, "The numbers"),
      make("table", { class: "plain" }, make("thead", {}, head), make("tbody", {}, ...rows)));
  }

  // A panel for each different mask: a row for each query, dark where it may attend to the key.
  function mask([queries, keys, panels]) {
    const most = 8;
    const figures = panels.slice(0, most).map(([caption, path]) => {
      const size = Math.min(14, Math.max(2, 150 / Math.max(queries, keys)));
      const picture = svg("svg", {
        viewBox: `0 0 ${keys} ${queries}`, width: keys * size, height: queries * size, class: "mask", role: "img",
        "aria-label": `Mask of ${caption}: ${queries} queries by ${keys} keys, filled where a query may attend to a key`,
      });
      picture.append(svg("rect", { class: "none", width: keys, height: queries }), svg("path", { d: path }));
      return element("figure", {}, picture, element("figcaption", {}, caption));
    });
    const more = panels.length > most ? `, and ${panels.length - most} more` : "";
    return element("div", {}, element("div", { class: "masks" }, ...figures),
      element("p", { class: "quiet" }, `Rows are queries, columns are keys; filled where a query may attend to a key${more}.`));
  }

  // The largest error in each field of a tensor's last two axes; a stronger colour is larger, on a logarithmic scale.
  function heat(rows, tensor) {
    const values = rows.map((each) => [...each].map(conform.decode));
    const all = values.flat().filter((value) => value !== null);
    const largest = Math.max(...all, 1);
    const height = values.length, width = values[0].length;
    const size = Math.min(16, 320 / width);
    const shade = d3.scaleLog([1, Math.max(largest, 10)], [0.08, 1]).clamp(true);
    const picture = svg("svg", {
      viewBox: `0 0 ${width} ${height}`, width: width * size, height: height * size, class: "heat", role: "img",
      "aria-label": `Where in ${tensor.name} the error is; largest ${sigma(tensor.max)} σ at [${tensor.at.join(", ")}]`,
    });
    values.forEach((line_, y) => line_.forEach((value, x) => {
      if (value === null) return;
      picture.append(svg("rect", { x, y, width: 1, height: 1, class: value > conform.index.limits.max ? "out" : "in", "fill-opacity": shade(Math.max(value, 1)).toFixed(2) }));
    }));
    return element("figure", {}, picture,
      element("figcaption", {}, `${tensor.name}: rows and columns are its last two axes; a stronger colour is a larger error, up to ${sigma(tensor.max)} σ at [${tensor.at.join(", ")}].`));
  }

  return { stages, mask, heat };
})();

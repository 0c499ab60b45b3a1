"use strict";
// The page of a case (case.html#case=layer/situation): what it asks, its mask, and every implementation's outcome.
(async () => {
  const { element, index, anchor } = conform;
  const title = document.getElementById("case-title"), body = document.getElementById("case-body");

  async function show() {
    const cases = await conform.load("cases");
    const name = conform.asked().case;
    const number = index.cases.findIndex((each) => each[0] === name);
    const parts = number < 0 ? list(name) : page(cases, number, name);
    title.textContent = document.title = number < 0 ? "Cases" : name;
    body.replaceChildren(...parts);
  }

  function list(name) {
    const links = index.cases.map(([each]) => element("li", {}, element("a", { href: anchor({ case: each }) }, each)));
    const unknown = name ? [element("p", { class: "warning" }, `No run here asked ${name}.`)] : [];
    return [...unknown, element("p", {}, `${links.length} cases.`), element("ul", { class: "columns" }, ...links)];
  }

  function page(cases, number, name) {
    const row = cases.rows[number];
    const parts = [element("p", {}, element("a", { href: "#" }, "All cases"))];
    if (row) {
      const [layer, situation] = [cases.layers[row[0]], cases.situations[row[1]]];
      parts.push(element("dl", { class: "facts" },
        element("dt", {}, "layer"), element("dd", {}, `${layer[0]}: ${layer[1]}. ${layer[2]}`),
        element("dt", {}, "situation"), element("dd", {}, `${situation[0]}: ${situation[1]}.`),
        element("dt", {}, "level"), element("dd", {}, index.levels[index.cases[number][1]]),
        element("dt", {}, "x [B, S, D]"), element("dd", {}, row[2])));
    }
    parts.push(results(number, name));
    if (row) {
      parts.push(element("h2", {}, "Mask"), row[4] !== undefined && cases.masks[row[4]].length ? conform.charts.mask(cases.masks[row[4]]) : element("p", {}, "None."));
      parts.push(element("h2", {}, "Clauses"), element("dl", { class: "clauses" },
        ...row[3].flatMap((id) => [element("dt", {}, id), element("dd", {}, ...conform.marked(cases.clauses[id]))])));
    }
    return parts;
  }

  function results(number, name) {
    const slots = index.slots.map(([owner, dtype], n) => ({ owner, dtype, n })).filter(({ owner }) => owner === number);
    const head = element("tr", {}, element("th", { scope: "col" }, "implementation"),
      ...slots.map(({ dtype }) => element("th", { scope: "col" }, `${index.dtypes[dtype]}, rms σ`)));
    const rows = index.columns.map((column) => element("tr", {},
      element("th", { scope: "row" }, element("a", { href: column.page }, column.label)),
      ...slots.map(({ n }) => result(column, n, name))));
    return element("section", {}, element("h2", {}, "Outcomes"),
      element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": "Outcomes, table" },
        element("table", { class: "plain" }, element("thead", {}, head), element("tbody", {}, ...rows))));
  }

  function result(column, n, name) {
    const at = column.cells[n];
    if (at === " ") return element("td", { class: "quiet" }, "");
    const outcome = index.outcomes[at], size = conform.decode(column.sigmas[n]);
    const text = `${index.marks[outcome]} ${outcome}${size === null ? "" : ` ${conform.sigma(size)}`}`;
    return element("td", { class: outcome }, element("a", { href: "index.html" + anchor({ case: name, impl: column.label }) }, text));
  }

  window.addEventListener("hashchange", show);
  await show();
})();

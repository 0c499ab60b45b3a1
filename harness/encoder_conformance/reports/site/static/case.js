"use strict";
// The page of a case (case.html#case=layer/situation): what it asks, its mask, and every implementation's outcome.
(async () => {
  const { element, index, anchor } = conform;
  const title = document.getElementById("case-title"), body = document.getElementById("case-body");

  async function show() {
    const cases = await conform.load("cases");
    const name = conform.asked().case;
    const number = index.cases.findIndex((each) => each.name === name);
    const parts = number < 0 ? list(name) : page(cases, number, name);
    title.textContent = document.title = number < 0 ? "Cases" : name;
    body.replaceChildren(...parts);
  }

  function list(name) {
    const links = index.cases.map(({ name: each }) => element("li", {}, element("a", { href: anchor({ case: each }) }, each)));
    const unknown = name ? [element("p", { class: "warning" }, `No run here asked ${name}.`)] : [];
    return [...unknown, element("p", {}, `${links.length} cases.`), element("ul", { class: "columns" }, ...links)];
  }

  function page(cases, number, name) {
    const row = cases.rows[number];
    const parts = [element("p", {}, element("a", { href: "#" }, "All cases"))];
    if (row.layer) {
      parts.push(element("dl", { class: "facts" },
        element("dt", {}, "layer"), element("dd", {}, `${row.layer}: ${row.layer_title}. ${row.choices}`),
        element("dt", {}, "situation"), element("dd", {}, `${row.situation}: ${row.situation_title}.`),
        element("dt", {}, "level"), element("dd", {}, index.levels[index.cases[number].level]),
        element("dt", {}, "x [B, S, D]"), element("dd", {}, row.sizes)));
    }
    parts.push(results(number, name));
    if (row.layer) {
      parts.push(element("h2", {}, "Mask"), row.mask.length ? conform.charts.mask(row.mask) : element("p", {}, "None."));
      parts.push(element("h2", {}, "Clauses"), element("dl", { class: "clauses" },
        ...row.clauses.flatMap((id) => [element("dt", {}, id), element("dd", {}, ...conform.marked(cases.clauses[id]))])));
    }
    return parts;
  }

  function results(number, name) {
    const slots = index.slots.map((slot, n) => ({ ...slot, n })).filter((slot) => slot.case === number);
    const head = element("tr", {}, element("th", { scope: "col" }, "implementation"),
      ...slots.map(({ dtype }) => element("th", { scope: "col" }, `${dtype}, rms σ`)));
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
    const { name: word, sign, category } = conform.outcome(at), size = conform.decode(column.sigmas[n]);
    const text = `${sign} ${word}${size === null ? "" : ` ${conform.sigma(size)}`}`;
    return element("td", { class: category }, element("a", { href: "index.html" + anchor({ case: name, impl: column.label }) }, text));
  }

  window.addEventListener("hashchange", show);
  await show();
})();

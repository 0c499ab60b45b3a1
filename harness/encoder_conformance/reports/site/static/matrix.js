"use strict";
// The matrix: a group for each clause, a row for each case, a column for each implementation. Rows of a group are made
// when it is opened, so that a page of forty thousand cells is there at once.
(() => {
  const { element, filters, index, anchor, asked } = conform;
  const WIDE = 6, OPEN_AT_MOST = 1200; // columns with a size beside the sign; cells that are opened unasked
  const form = document.getElementById("filters"), box = document.getElementById("matrix");
  const dialog = document.getElementById("detail");
  index.slotsOf = index.cases.map(() => []);
  index.slots.forEach((slot, n) => index.slotsOf[slot.case].push(n));
  const wide = index.columns.length <= WIDE;
  const groups = new Map();
  const chosen = new Map(); // group → open or closed, where the reader said so
  let rows = [], counted, chosenFilters = "";
  const ofColumn = index.columns.map((column) => anchor({ impl: column.label }).slice(1));
  const samples = Object.fromEntries(Object.entries(index.outcomes).map(([code, { name, sign, category }]) => {
    const link = element("a", { tabindex: "-1", "aria-label": name }, sign);
    return [code, element("td", { class: category }, link)];
  }));
  const empty = element("td", { class: "none" });

  function build() {
    const heads = index.columns.map((column) =>
      element("th", { scope: "col" }, element("a", { href: column.page, title: column.label }, element("span", {}, ...breakable(column.label)))));
    counted = index.columns.map(() => element("td", {}));
    const head = element("thead", {}, element("tr", {}, element("th", { scope: "col", class: "corner" }, "clause, case"), ...heads),
      element("tr", { class: "sum" }, element("th", { scope: "row" }, "conform as expected"), ...counted));
    const table = element("table", { class: wide ? "wide" : "narrow", "aria-label": "Cases by implementations" }, head);
    for (const name of index.groups) {
      const toggle = element("button", { type: "button", "aria-expanded": "false" }, element("b", {}, name), " ", element("span", { class: "quiet" }));
      const cells = index.columns.map(() => element("td", {}, ""));
      const row = element("tr", { class: "group" }, element("th", { scope: "row", title: index.clauseTexts[name] || "" }, toggle), ...cells);
      const body = element("tbody", {}, row);
      const group = { name, toggle, cells, body, row, rows: [], open: false };
      toggle.addEventListener("click", () => { chosen.set(name, !group.open); show(group, !group.open); });
      groups.set(name, group);
      table.append(body);
    }
    box.append(table);
  }

  // A name may be broken after its signs.
  function breakable(name) {
    return wide ? name.split(/(?<=[_:,=(])/).flatMap((piece) => [piece, element("wbr")]) : [name];
  }

  function update() {
    const values = filters.read(form);
    rows = filters.rows(index, values);
    for (const group of groups.values()) group.rows = [];
    for (const row of rows) groups.get(row.group).rows.push(row);
    chosenFilters = anchor(values).slice(1);
    const narrowed = rows.length * index.columns.length <= OPEN_AT_MOST;
    for (const group of groups.values()) {
      summarise(group);
      group.body.hidden = !group.rows.length;
      show(group, chosen.get(group.name) ?? narrowed);
    }
    counted.forEach(total);
    document.getElementById("count").textContent =
      `${rows.length} of ${index.cases.length} cases, ${index.columns.length} implementation${index.columns.length > 1 ? "s" : ""}`;
  }

  function total(cell, n) {
    let good = 0, applicable = 0;
    for (const { outcomes } of rows) {
      const found = conform.outcome(outcomes[n]);
      if (!found || !found.applicable) continue;
      applicable += 1;
      good += found.category === "good" || found.category === "declared";
    }
    cell.textContent = wide ? `${good} / ${applicable}` : good === applicable ? String(good) : `−${applicable - good}`;
    cell.className = good < applicable ? "bad" : "";
    cell.title = `${good} of ${applicable} cases conform as expected`;
  }

  function summarise(group) {
    group.toggle.lastChild.textContent = `${group.rows.length} case${group.rows.length === 1 ? "" : "s"}`;
    group.cells.forEach((cell, n) => {
      let wrong = 0, all = " ";
      for (const { outcomes } of group.rows) {
        if (outcomes[n] !== " " && conform.outcome(outcomes[n]).category === "bad") wrong += 1;
        all = filters.worse(all, outcomes[n]);
      }
      const seen = `${all}${wrong} ${group.rows.length}`;
      if (cell.seen === seen) return;
      cell.seen = seen;
      const { name, sign, category } = conform.outcome(all) || { name: "", sign: "", category: "" };
      cell.className = category;
      cell.textContent = wrong ? `${sign}${wide ? ` ${wrong} of ${group.rows.length}` : ""}` : sign;
      cell.title = name ? `${index.columns[n].label}: ${wrong ? `${wrong} of ${group.rows.length} not as expected` : name}` : "";
    });
  }

  function show(group, open) {
    group.open = open;
    group.toggle.setAttribute("aria-expanded", String(open));
    while (group.row.nextSibling) group.row.nextSibling.remove();
    if (open) group.body.append(...group.rows.map(line));
  }

  function line(row) {
    const link = element("a", { href: "case.html" + anchor({ case: row.name }), tabindex: "-1" }, row.name);
    const address = `#${chosenFilters ? `${chosenFilters}&` : ""}${anchor({ case: row.name }).slice(1)}&`;
    return element("tr", {}, element("th", { scope: "row" }, link), ...row.outcomes.map((each, n) => cell(row, each, n, address)));
  }

  // A copy of a sample, and as little else as can be: there may be forty thousand of them.
  function cell(row, outcome, n, address) {
    if (outcome === " ") return empty.cloneNode();
    const made = samples[outcome].cloneNode(true), link = made.firstChild;
    link.setAttribute("href", address + ofColumn[n]);
    const size = wide ? largest(index.columns[n], row.slots) : null;
    if (size !== null) {
      link.firstChild.data += ` ${conform.sigma(size)}`;
      link.setAttribute("aria-label", `${conform.outcome(outcome).name}, ${conform.sigma(size)} σ`);
    }
    return made;
  }

  // What a sign stands for, where the pointer is.
  function describe(event) {
    const here = event.target.closest("td"), line_ = here && here.parentElement;
    if (!here || here.title || !here.firstChild || !line_.firstChild.firstChild.hash) return;
    const n = [...line_.children].indexOf(here) - 1;
    here.title = `${here.firstChild.getAttribute("aria-label")}: ${index.columns[n].label}, ${line_.firstChild.textContent}`;
  }

  function largest(column, slots) {
    const sizes = slots.map((slot) => conform.decode(column.sigmas[slot])).filter((size) => size !== null);
    return sizes.length ? Math.max(...sizes) : null;
  }

  // One stop for the tab key; arrows go from cell to cell.
  function walk(event) {
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    const here = event.target.closest("th, td");
    if (!(event.key in steps) || !here || !box.contains(here)) return;
    event.preventDefault();
    const [down, across] = steps[event.key];
    const lines = [...box.querySelectorAll("tbody:not([hidden]) tr")];
    let y = lines.indexOf(here.parentElement) + down, x = [...here.parentElement.children].indexOf(here) + across;
    for (; lines[y] && lines[y].children[x]; y += down, x += across) {
      const next = lines[y].children[x].querySelector("a, button");
      if (next) return focus(next);
    }
  }

  function focus(target) {
    for (const each of box.querySelectorAll("td a[tabindex='0'], th a[tabindex='0']")) each.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }

  async function open({ case: name, impl }) {
    const column = index.columns.findIndex((each) => each.label === impl);
    if (!name || column < 0) return dialog.open && dialog.close();
    document.getElementById("detail-title").textContent = impl;
    const body = document.getElementById("detail-body");
    body.replaceChildren("…");
    if (!dialog.open) dialog.showModal();
    body.replaceChildren(await conform.detail.cell(column, name));
    dialog.scrollTop = 0;
  }

  function follow() {
    const values = asked();
    const before = JSON.stringify(filters.read(form));
    filters.write(form, values);
    if (before !== JSON.stringify(filters.read(form))) update();
    open(values);
  }

  filters.fill(form, index);
  filters.write(form, asked());
  build();
  update();
  open(asked());
  form.addEventListener("change", () => {
    history.replaceState(null, "", anchor(filters.read(form)) === "#" ? location.pathname : anchor(filters.read(form)));
    update();
  });
  form.addEventListener("reset", () => setTimeout(() => { chosen.clear(); history.replaceState(null, "", location.pathname); update(); }));
  for (const [id, state] of [["open-all", true], ["close-all", false]]) {
    document.getElementById(id).addEventListener("click", () => {
      for (const group of groups.values()) { chosen.set(group.name, state); show(group, state); }
    });
  }
  box.addEventListener("keydown", walk);
  box.addEventListener("pointerover", describe);
  window.addEventListener("hashchange", follow);
  document.getElementById("detail-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    const { case: name, impl, ...left } = asked();
    history.replaceState(null, "", anchor(left) === "#" ? location.pathname : anchor(left));
    const cell = [...box.querySelectorAll("td a")].find((each) => each.hash.includes(anchor({ case: name, impl }).slice(1)));
    if (cell) focus(cell);
  });
})();

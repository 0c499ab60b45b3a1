"use strict";
// What is known of one implementation in one case: outcomes, errors by stage, diagnosis, mask, versions, the command.
conform.detail = (() => {
  const { element, sigma } = conform;

  async function cell(column, name) {
    const [part, cases] = await Promise.all([conform.load(String(column)), conform.load("cases")]);
    const facts = conform.index.columns[column];
    const number = conform.index.cases.findIndex((each) => each[0] === name);
    const body = document.createDocumentFragment();
    body.append(description(cases, number, name));
    const slots = conform.index.slots.map((slot, n) => [slot, n]).filter(([slot]) => slot[0] === number);
    for (const [slot, n] of slots) {
      if (part.slots[n]) body.append(...format(conform.index.dtypes[slot[1]], part, part.slots[n], facts, name));
    }
    if (!slots.some(([, n]) => part.slots[n])) body.append(element("p", {}, "This run did not ask it."));
    body.append(picture(cases, number), environment(facts, part));
    return body;
  }

  function description(cases, number, name) {
    const row = number < 0 ? 0 : cases.rows[number];
    const link = element("a", { href: "case.html" + conform.anchor({ case: name }) }, name);
    if (!row) return element("p", {}, link, " is no case of this specification.");
    const [layer, situation] = [cases.layers[row[0]], cases.situations[row[1]]];
    return element("p", {}, link, `: ${layer[1]}. ${situation[1]}.`);
  }

  function format(dtype, part, checks, facts, name) {
    const parts = [element("h3", {}, dtype)];
    const failed = checks.some((entry) => conform.index.unexpected.includes(conform.index.outcomes[entry[1]]));
    for (const each of part.diagnoses.filter((one) => one.dtypes.includes(dtype))) {
      if (each.cases.includes(name)) parts.push(diagnosis(each, ""));
      else if (failed) parts.push(diagnosis(each, "Of other cases: "));
    }
    for (const entry of checks) parts.push(...check(conform.check(part, entry)));
    parts.push(command("Again", facts.repeat, name, dtype));
    if (failed) parts.push(command("As a script of the framework alone", facts.reproduce, name, dtype));
    if (facts.script && facts.script[0] === name && facts.script[1] === dtype) {
      parts.push(element("p", {}, element("a", { href: `${facts.page}#script` }, "The script, to copy")));
    }
    return parts;
  }

  function check(found) {
    const size = found.rms === undefined || found.rms === null ? "" : `: rms ${sigma(found.rms)} σ, largest ${sigma(found.max)} σ`;
    const mark = conform.index.marks[found.outcome];
    const parts = [
      element("p", { class: "check" }, element("span", { class: `mark ${found.outcome}`, "aria-hidden": "true" }, mark), ` ${found.check} `,
        element("b", { class: found.outcome }, found.outcome), size),
    ];
    if (found.text) parts.push(element("p", { class: "message" }, found.text));
    if (found.more && found.more.deviations) {
      const distance = found.more.distance === undefined ? "" : `, ${sigma(found.more.distance)} σ from the specification`;
      parts.push(element("p", {}, `Deviates by ${found.more.deviations.join(", ")}${distance}.`));
    }
    const worst = found.tensors.find((each) => each.heat);
    if (found.tensors.length > 1 || worst) parts.push(conform.charts.stages(found.tensors, conform.index.limits));
    if (worst) parts.push(conform.charts.heat(worst.heat, worst));
    return parts;
  }

  function diagnosis(each, before) {
    const equations = each.equations.flatMap((one) => [
      element("dt", {}, `${one.stage}, found (${one.rms} σ)`), element("dd", {}, element("code", {}, one.found)),
      element("dt", {}, `specified (${one.specified_rms} σ)`), element("dd", {}, element("code", {}, one.specified)),
    ]);
    return element("div", { class: "diagnosis" },
      element("p", {}, element("span", { class: "tag" }, each.confidence), ` ${before}${each.text}`),
      equations.length ? element("dl", { class: "equation" }, ...equations) : null);
  }

  function command(title, template, name, dtype) {
    const text = template.replace("{case}", () => quoted(name)).replace("{dtype}", () => quoted(dtype));
    return element("p", { class: "command" }, `${title}: `, element("code", {}, text));
  }

  // As a shell takes it: a name in a report may be anything.
  function quoted(word) {
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
  }

  function picture(cases, number) {
    const row = number < 0 ? 0 : cases.rows[number];
    const panels = row ? cases.masks[row[4]] : [];
    if (!panels.length) return element("p", { class: "quiet" }, "No mask.");
    return element("section", {}, element("h3", {}, "Mask"), conform.charts.mask(panels));
  }

  function environment(facts, part) {
    return element("section", {}, element("h3", {}, "Versions"), element("p", {}, facts.versions),
      element("p", { class: "quiet" }, part.machine),
      element("p", {}, element("a", { href: facts.page }, "All about this implementation")));
  }

  return { cell, check, picture, description };
})();

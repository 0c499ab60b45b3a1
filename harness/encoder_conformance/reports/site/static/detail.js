"use strict";
// What is known of one implementation in one case: outcomes, errors by stage, diagnosis, mask, versions, the command.
conform.detail = (() => {
  const { element, sigma } = conform;

  async function cell(column, name) {
    const [part, cases] = await Promise.all([conform.load(String(column)), conform.load("cases")]);
    const facts = conform.index.columns[column];
    const number = conform.index.cases.findIndex((each) => each.name === name);
    const body = document.createDocumentFragment();
    body.append(description(cases, number, name));
    let asked = false;
    conform.index.slots.forEach((slot, n) => {
      if (slot.case !== number || !part.counts[n]) return;
      asked = true;
      body.append(...format(slot.dtype, part, conform.checks(part, n).map(conform.check), facts, name));
    });
    if (!asked) body.append(element("p", {}, "This run did not ask it."));
    body.append(picture(cases, number), environment(facts, part));
    return body;
  }

  function description(cases, number, name) {
    const row = number < 0 ? {} : cases.rows[number];
    const link = element("a", { href: "case.html" + conform.anchor({ case: name }) }, name);
    if (!row.layer) return element("p", {}, link, " is no case of this specification.");
    return element("p", {}, link, `: ${row.layer_title}. ${row.situation_title}.`);
  }

  function format(dtype, part, checks, facts, name) {
    const parts = [element("h3", {}, dtype)];
    const failed = checks.some((each) => each.outcome.category === "bad");
    for (const each of part.diagnoses.filter((one) => one.dtypes.includes(dtype))) {
      if (each.cases.includes(name)) parts.push(diagnosis(each, ""));
      else if (failed) parts.push(diagnosis(each, "Of other cases: "));
    }
    for (const each of checks) parts.push(...check(each));
    parts.push(command("Again", facts.repeat, name, dtype));
    if (failed) parts.push(command("As a script of the framework alone", facts.reproduce, name, dtype));
    if (facts.script && facts.script.case === name && facts.script.dtype === dtype) {
      parts.push(element("p", {}, element("a", { href: `${facts.page}#script` }, "The script, to copy")));
    }
    return parts;
  }

  function check(found) {
    const size = found.rms === undefined || found.rms === null ? "" : `: rms ${sigma(found.rms)} σ, largest ${sigma(found.max)} σ`;
    const { name, sign, category } = found.outcome;
    const parts = [
      element("p", { class: "check" }, element("span", { class: `mark ${category}`, "aria-hidden": "true" }, sign), ` ${found.check} `,
        element("b", { class: category }, name), size),
    ];
    if (found.text) parts.push(element("p", { class: "message" }, found.text));
    if (found.deviations) {
      const distance = found.distance === undefined ? "" : `, ${sigma(found.distance)} σ from the specification`;
      parts.push(element("p", {}, `Deviates by ${found.deviations.join(", ")}${distance}.`));
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
    const panels = number < 0 ? undefined : cases.rows[number].mask;
    if (!panels || !panels.length) return element("p", { class: "quiet" }, "No mask.");
    return element("section", {}, element("h3", {}, "Mask"), conform.charts.mask(panels));
  }

  function environment(facts, part) {
    return element("section", {}, element("h3", {}, "Versions"), element("p", {}, facts.versions),
      element("p", { class: "quiet" }, part.machine),
      element("p", {}, element("a", { href: facts.page }, "All about this implementation")));
  }

  return { cell, check, picture, description };
})();

"use strict";
// The filters, and which cases they leave. Their values are in the address, so that a filtered matrix has a link.
conform.filters = (() => {
  const NAMES = ["level", "clause", "layer", "situation", "dtype", "outcome", "disagree"];

  const known = new Map(); // dtype and case → outcomes by column

  function fill(form, index) {
    const layers = [...new Set(index.cases.map(({ name }) => name.split("/")[0]))].sort();
    const situations = [...new Set(index.cases.map(({ name }) => name.split("/").slice(1).join("/")))].sort();
    options(form.level, "every level", index.levels.filter((_, n) => index.cases.some((each) => each.level === n)));
    options(form.clause, "every clause", index.clauses);
    options(form.layer, "every layer", layers);
    options(form.situation, "every situation", situations);
    options(form.dtype, "every dtype", index.dtypes);
    options(form.outcome, "every outcome", ["not as expected", ...Object.values(index.outcomes).map((each) => each.name)]);
    form.hidden = false;
  }

  function options(select, all, names) {
    select.append(new Option(all, ""), ...names.map((name) => new Option(name, name)));
  }

  function read(form) {
    const values = {};
    for (const name of NAMES) {
      const control = form[name];
      values[name] = control.type === "checkbox" ? (control.checked ? "1" : "") : control.value;
    }
    return values;
  }

  function write(form, values) {
    for (const name of NAMES) {
      const control = form[name];
      if (control.type === "checkbox") control.checked = values[name] === "1";
      else control.value = [...control.options].some((option) => option.value === values[name]) ? values[name] : "";
    }
  }

  // The worst outcome of a case in a column, over the dtypes that are asked for: its character, or " " without a record.
  function worst(cells, slots) {
    let found = " ";
    for (const n of slots) found = worse(found, cells[n]);
    return found;
  }

  function worse(one, other) {
    if (one === " " || other === " ") return one === " " ? other : one;
    return conform.outcome(other).severity > conform.outcome(one).severity ? other : one;
  }

  // [case, slots, outcomes by column] of every case that is left.
  function rows(index, values) {
    const level = values.level ? index.levels.indexOf(values.level) : -1;
    const left = [];
    index.cases.forEach(({ name, level: own, group, clauses }, n) => {
      if (level >= 0 && own > level) return;
      if (values.clause && !clauses.includes(values.clause)) return;
      const cut = name.indexOf("/");
      if (values.layer && name.slice(0, cut) !== values.layer) return;
      if (values.situation && name.slice(cut + 1) !== values.situation) return;
      const slots = index.slotsOf[n].filter((slot) => !values.dtype || index.slots[slot].dtype === values.dtype);
      if (!slots.length) return;
      const key = `${values.dtype} ${n}`;
      if (!known.has(key)) known.set(key, index.columns.map((column) => worst(column.cells, slots)));
      const outcomes = known.get(key);
      if (values.outcome && !outcomes.some((each) => each !== " " && has(conform.outcome(each), values.outcome))) return;
      if (values.disagree && !disagree(outcomes)) return;
      left.push({ number: n, name, group, slots, outcomes });
    });
    return left;
  }

  function has(outcome, wanted) {
    return wanted === "not as expected" ? outcome.category === "bad" : outcome.name === wanted;
  }

  function disagree(outcomes) {
    const judged = outcomes.filter((each) => each !== " ").map((each) => conform.outcome(each).category);
    return new Set(judged.filter((each) => each !== "unasked")).size > 1;
  }

  return { fill, read, write, rows, worse };
})();

"use strict";
// The filters, and which cases they leave. Their values are in the address, so that a filtered matrix has a link.
conform.filters = (() => {
  const NAMES = ["level", "clause", "layer", "situation", "dtype", "outcome", "disagree"];
  const CLASSES = { pass: "as expected", deviates: "deviates", unsupported: "", "not-run": "" };

  const known = new Map(); // dtype and case → outcomes by column

  function fill(form, index) {
    const layers = [...new Set(index.cases.map(([name]) => name.split("/")[0]))].sort();
    const situations = [...new Set(index.cases.map(([name]) => name.split("/").slice(1).join("/")))].sort();
    options(form.level, "every level", index.levels.filter((_, n) => index.cases.some((each) => each[1] === n)));
    options(form.clause, "every clause", index.clauses);
    options(form.layer, "every layer", layers);
    options(form.situation, "every situation", situations);
    options(form.dtype, "every dtype", index.dtypes);
    options(form.outcome, "every outcome", ["not as expected", ...index.outcomes]);
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

  // The worst outcome of a case in a column, over the dtypes that are asked for: a digit, or " " without a record.
  function worst(cells, slots) {
    let found = " ";
    for (const n of slots) found = worse(found, cells[n]);
    return found;
  }

  // An opt-out says nothing beside a verdict, of whatever outcome.
  function worse(one, other) {
    if (other === " " || (other === "2" && one !== " ")) return one;
    return one === " " || one === "2" || other > one ? other : one;
  }

  // [case, slots, outcomes by column] of every case that is left.
  function rows(index, values) {
    const level = values.level ? index.levels.indexOf(values.level) : -1;
    const dtype = values.dtype ? index.dtypes.indexOf(values.dtype) : -1;
    const clause = values.clause ? index.clauses.indexOf(values.clause) : -1;
    const outcome = values.outcome === "not as expected" ? null : String(index.outcomes.indexOf(values.outcome));
    const bad = new Set(index.unexpected.map((name) => String(index.outcomes.indexOf(name))));
    const left = [];
    index.cases.forEach(([name, own, group, cited], n) => {
      if (level >= 0 && own > level) return;
      if (clause >= 0 && !cited.includes(clause)) return;
      const cut = name.indexOf("/");
      if (values.layer && name.slice(0, cut) !== values.layer) return;
      if (values.situation && name.slice(cut + 1) !== values.situation) return;
      const slots = index.slotsOf[n].filter((slot) => dtype < 0 || index.slots[slot][1] === dtype);
      if (!slots.length) return;
      const key = `${dtype} ${n}`;
      if (!known.has(key)) known.set(key, index.columns.map((column) => worst(column.cells, slots)));
      const outcomes = known.get(key);
      if (values.outcome && !outcomes.some((each) => (outcome === null ? bad.has(each) : each === outcome))) return;
      if (values.disagree && !disagree(index, outcomes)) return;
      left.push({ number: n, name, group, slots, outcomes });
    });
    return left;
  }

  function disagree(index, outcomes) {
    const kinds = new Set();
    for (const each of outcomes) {
      const name = each === " " ? "not-run" : index.outcomes[each];
      const kind = name in CLASSES ? CLASSES[name] : "not as expected";
      if (kind) kinds.add(kind);
    }
    return kinds.size > 1;
  }

  return { fill, read, write, rows, worse };
})();

"use strict";
/* The tables, and where they go. */

function table(label, head, rows) {
  const cell = (content, tag) => {
    const cellOf = content !== null && typeof content === "object" && !(content instanceof Node)
      ? content : {text: content};
    const made = h(tag, cellOf.class ? {class: cellOf.class} : {});
    if (cellOf.span) made.setAttribute("colspan", cellOf.span);
    made.append(cellOf.text instanceof Node ? cellOf.text : String(cellOf.text ?? "–"));
    return made;
  };
  const body = rows.map((row) => {
    const made = h("tr", row.group ? {class: "group"} : {});
    (row.cells || row).forEach((content, index) => {
      const one = cell(content, index === 0 ? "th" : "td");
      if (index === 0) one.setAttribute("scope", row.group ? "rowgroup" : "row");
      made.append(one);
    });
    return made;
  });
  const heads = head.map((content) => {
    const one = cell(content, "th");
    one.setAttribute("scope", "col");
    return one;
  });
  return h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": label},
    h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, body)));
}

const right = (text) => ({text, class: "number"});
const code = (text) => ({text, class: "code"});

function fill(id, ...content) {
  const place = document.querySelector(`#${id} .content`);
  const scrolled = [...place.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  const open = [...place.querySelectorAll("details")].map((each) => each.open);
  const focused = place.contains(document.activeElement)
    ? [...place.querySelectorAll(".scroll")].indexOf(document.activeElement) : -1;
  place.replaceChildren(...content.flat());
  const regions = [...place.querySelectorAll(".scroll")];
  regions.forEach((each, index) => { each.scrollLeft = scrolled[index] || 0; });
  [...place.querySelectorAll("details")].forEach((each, index) => {
    if (index < open.length) each.open = open[index];
  });
  if (focused >= 0 && regions[focused]) regions[focused].focus({preventScroll: true});
}

function eachRun(id, make) {
  fill(id, data.runs.map((run) => [several() ? h("h3", {class: "run"}, run.name) : null, make(run)])
    .flat(2).filter(Boolean));
}

function best() {
  const names = data.charts.flatMap((chart) => chart.metrics.map((name) => ({name, chart})))
    .filter(({name, chart}) => chart.validated.includes(name) || chart.heading === "Learning");
  if (!names.length) { fill("best", empty("No metric was measured.")); return; }
  const point = (one) => one
    ? `${number(one.value)}` : "–";
  if (several()) {
    const rows = names.flatMap(({name}) => [
      {group: true, cells: [{text: name, span: data.runs.length + 1}]},
      ...["lowest", "highest", "last"].map((which) => ({cells: [which, ...data.runs.map((run) => {
        const one = run.curves[name] && run.curves[name][which];
        return right(one ? h("span", {}, point(one), " ",
          h("span", {class: "mute"}, `at ${number(one.iteration)}`)) : "–");
      })]})),
    ]);
    fill("best", table("Lowest, highest and last values of each run, with iterations",
      ["metric", ...data.runs.map((run) => right(run.name))], rows));
    return;
  }
  const [run] = data.runs;
  const rows = names.filter(({name}) => run.curves[name]).map(({name}) => {
    const curve = run.curves[name];
    const at = (one) => right(one ? `${number(one.iteration)} (epoch ${number(one.epoch)})` : "–");
    return [name, right(point(curve.lowest)), at(curve.lowest), right(point(curve.highest)),
      at(curve.highest), right(point(curve.last)), right(number(curve.count))];
  });
  fill("best", table("Lowest, highest and last values", ["metric", right("lowest"),
    right("at iteration"), right("highest"), right("at iteration"), right("last"), right("rows")], rows));
}

function checkpoints() {
  eachRun("checkpoints", (run) => {
    if (!run.checkpoints.length) return empty("There are no checkpoints.");
    const rows = run.checkpoints.slice().reverse().map((each) => [
      code(each.name), right(number(each.iteration)), right(number(each.epochs)),
      right(each.size === undefined ? "–" : bytes(each.size)),
      right(each.written ? clock(each.written) : "–"),
      each.problem === null ? "whole, by its sizes"
        : h("span", {class: "state failed"}, `broken: ${each.problem}`),
      each.kept_by || "–", each.reason || "–",
    ]);
    return table("Checkpoints, the newest first", ["checkpoint", right("iteration"), right("epochs"),
      right("size"), right("written"), "state", "kept by", "why"], rows);
  });
}

function facts(id, key, missing) {
  const names = [...new Set(data.runs.flatMap((run) => Object.keys(run[key])))];
  if (!names.length) { fill(id, empty(missing)); return; }
  const shown = (value) => value === null ? "None" : typeof value === "object"
    ? JSON.stringify(value) : String(value);
  if (!several()) {
    fill(id, table(id, ["name", "value"], names.map((name) =>
      [code(name), code(shown(data.runs[0][key][name]))])));
    return;
  }
  const rows = names.map((name) => {
    const values = data.runs.map((run) => name in run[key] ? shown(run[key][name]) : "–");
    return {name, values, differs: new Set(values).size > 1};
  });
  const box = h("input", {type: "checkbox", id: `${id}-differences`});
  const before = byId(`${id}-differences`);
  box.checked = before ? before.checked : rows.some((row) => row.differs);
  box.addEventListener("change", () => facts(id, key, missing));
  const chosen = rows.filter((row) => row.differs || !box.checked);
  fill(id, h("label", {class: "choice"}, box, `Only what differs (${rows.filter((row) => row.differs).length} of ${rows.length})`),
    chosen.length ? table(id, ["name", ...data.runs.map((run) => run.name)], chosen.map((row) =>
      [code(row.name), ...row.values.map((text) =>
        ({text, class: row.differs ? "code differs" : "code"}))])) : empty("Nothing differs."));
  if (before === document.activeElement) box.focus();
}

function handlers() {
  eachRun("handlers", (run) => {
    const rows = run.handlers;
    if (!rows.length) return empty("Nothing tells which handlers it had. Add Journal(directory) to them.");
    const groups = [];
    let last = null;
    for (const [moment, ...rest] of rows) {
      if (moment !== last) {
        groups.push({group: true, cells: [{text: moment.replace("Events.", ""), span: 4}]});
      }
      last = moment;
      const [stage, name, when, source] = rest;
      groups.push({cells: [code(name), stage, code(when.replaceAll("Events.", "")), code(source)]});
    }
    return h("details", {...(several() ? {} : {open: ""})},
      h("summary", {}, `${counted(rows.length, "call")} of handlers, in their order`),
      table("Handlers by moment", ["handler", "stage", "when", "source"], groups));
  });
}

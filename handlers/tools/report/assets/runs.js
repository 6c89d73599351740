"use strict";
/* The table of several runs: filters, sorts and groups it. What it hides is hidden in all charts. */

const IS = {"<": (a, b) => a < b, ">": (a, b) => a > b, "<=": (a, b) => a <= b, ">=": (a, b) => a >= b};
let left = new Set();  // the places of the runs that the filter leaves out
let groups = null;  // the place of each run's group, if the runs are grouped

function chosen(id) { return byId(id)?.value ?? ""; }
function numeric(text) { return text !== null && text !== "" && Number.isFinite(Number(text)) ? Number(text) : null; }

/* The values of a setting or a result in all runs; of a name such as `model.width`, the end will do. */
function column(name) {
  const columns = {...table.settings, ...table.results};
  const names = Object.keys(columns).map((each) => [each, each.toLowerCase().replace(/, (lowest|highest)$/, "")]);
  const [found] = names.find(([, each]) => each === name) ?? names.find(([, each]) => each.split(/[./]/).at(-1) === name) ?? [];
  return found === undefined ? null : columns[found];
}

/* True if a run has a word in its row, or the value that `lr<0.01` and the like ask for. */
function matches(term, run, row) {
  const [, name, sign, value] = term.match(/^([^<>=]+)(<=|>=|<|>|=)(.*)$/) ?? [];
  if (!sign) return row.includes(term);
  if (!value) return true;
  const has = column(name)?.[run] ?? null, [a, b] = [numeric(has), numeric(value)];
  if (has === null) return false;
  if (sign === "=") return a !== null && b !== null ? a === b : String(has).toLowerCase() === value;
  return a !== null && b !== null && IS[sign](a, b);
}

/* The value of a row's cell by which rows are sorted. */
function key(row, index) {
  const cell = row.children[index], value = numeric(cell.dataset.value ?? cell.textContent.trim());
  return value ?? cell.textContent.trim().toLowerCase();
}

function compare(a, b) {
  const [none, other] = [a, b].map((each) => each === "" || each === "–");
  if (none || other) return none - other;
  return typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
}

/* Puts the rows in order, under the heads of their groups. */
function arrange() {
  const body = document.querySelector("#runs tbody");
  if (!body) return;
  const rows = all("tr[data-run]", body), heads = all("#runs thead th");
  const terms = chosen("filter").toLowerCase().split(/\s+/).filter(Boolean);
  left = new Set();
  for (const row of rows) {
    const run = Number(row.dataset.run);
    const words = `${row.textContent} ${table.tags[run].map((tag) => `#${tag}`).join(" ")}`.toLowerCase();
    if (!terms.every((term) => matches(term, run, words))) left.add(run);
  }
  const {index, down} = settings.sort ?? {};
  heads.forEach((head, at) => { head.ariaSort = at === index ? (down ? "descending" : "ascending") : "none"; });
  rows.sort((a, b) => a.dataset.run - b.dataset.run);
  if (index < heads.length) {
    rows.sort((a, b) => {
      const [one, other] = [key(a, index), key(b, index)], order = compare(one, other);
      return down && ![one, other].some((each) => each === "" || each === "–") ? -order : order;
    });
  }
  const name = chosen("group"), values = table.settings[name];
  const known = values && [...new Set(values)].sort((a, b) => compare(numeric(a) ?? a, numeric(b) ?? b));
  groups = known ? values.map((value) => known.indexOf(value)) : null;
  all("tr.group", body).forEach((row) => row.remove());
  for (const [place, value] of (known ?? [null]).entries()) {
    const inside = rows.filter((row) => !groups || groups[row.dataset.run] === place);
    const seen = inside.filter((row) => !left.has(Number(row.dataset.run)));
    if (groups && seen.length) body.append(headOf(`${name} = ${value}`, seen, heads, place));
    body.append(...inside);
  }
  byId("kept").textContent = left.size ? `${rows.length - left.size} of ${rows.length} runs` : "";
  for (const one of all("[data-of]")) {
    if (one.dataset.of) one.style.color = `var(--${ofGroup({run: one.dataset.of, colour: `c${one.dataset.of % 10}`})})`;
  }
}

/* The row above the runs of a group: their number, and the means of their results. */
function headOf(text, rows, heads, place) {
  const row = document.createElement("tr");
  row.className = "group";
  for (const [index, head] of heads.entries()) {
    const cell = row.appendChild(document.createElement(index ? "td" : "th"));
    if (!index) {
      cell.scope = "rowgroup";
      cell.innerHTML = `<i class="swatch" style="color: var(--c${place % 10})"></i>`;
      cell.append(`${text} (${rows.length})`);
    }
    if (!head.classList.contains("result")) continue;
    const values = rows.map((each) => numeric(each.children[index].dataset.value)).filter((each) => each !== null);
    cell.className = "number";
    if (values.length) cell.textContent = `mean ${short(values.reduce((sum, each) => sum + each, 0) / values.length)}`;
  }
  return row;
}

function short(value) { return String(Number(value.toPrecision(4))); }

/* The colour of a trace: of its run's group, if the runs are grouped. */
function ofGroup({run, colour: own}) {
  return groups && run !== undefined && /^c\d$/.test(own) ? `c${groups[run] % 10}` : own;
}

/* Sorts by a column; once more, the other way; a third time, as it was. */
function sortBy(head) {
  const index = all("#runs thead th").indexOf(head), before = settings.sort ?? {};
  const isNew = before.index !== index;
  settings.sort = isNew ? {index, down: false} : before.down ? null : {index, down: true};
  update();
}

/* ---- settings and results ---- */

/* An axis from 0 to 1 for values: of numbers, which is logarithmic if they are of unlike sizes; or of names. */
function axisOf(name, values) {
  const known = values.filter((value) => value !== null && value !== "–"), numbers = known.map(numeric);
  if (!known.length || numbers.includes(null)) {
    const names = [...new Set(known.map(String))].sort();
    const at = (value) => value === null || value === "–" ? null : names.length > 1 ? names.indexOf(String(value)) / (names.length - 1) : 0.5;
    return {name, at, isLog: false, isNames: true, ticks: names.map((each) => [at(each), each])};
  }
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)], isLog = low > 0 && high / low >= 20;
  const put = isLog ? Math.log : (value) => value;
  const at = (value) => {
    const number = numeric(value);
    return number === null ? null : high > low ? (put(number) - put(low)) / (put(high) - put(low)) : 0.5;
  };
  const distinct = [...new Set(numbers)].sort((a, b) => a - b);
  const ticks = distinct.length > 6 ? [low, high] : distinct;
  return {name, at, isLog, isNames: false, few: distinct.length > 6 ? null : distinct, ticks: ticks.map((each) => [at(each), short(each)])};
}

const MADE = {
  /* A line for each run across the axes of the settings, to the result; the better, the stronger. */
  parallel() {
    const result = chosen("result"), several = Object.entries(table.settings).slice(0, 7);
    const axes = [...several, [result, table.results[result] ?? []]].map((each) => axisOf(...each));
    const last = axes.length - 1, values = [...several.map(([, each]) => each), table.results[result] ?? []];
    const data = table.names.map((name, run) => {
      const end = axes[last].at(values[last][run]);
      const good = end === null ? 0 : result.endsWith("lowest") ? 1 - end : end;
      return {type: "scatter", mode: "lines+markers", name, uid: `parallel-${run}`, x: axes.map((_, index) => index),
        y: axes.map((axis, index) => axis.at(values[index][run])), marker: {size: 5},
        line: {width: 1.5 + 1.5 * good}, opacity: 0.25 + 0.75 * good,
        customdata: axes.map((axis, index) => `${axis.name}: ${values[index][run] ?? "–"}`),
        hovertemplate: "%{customdata}<extra>%{fullData.name}</extra>",
        meta: {run, colour: groups ? `c${run % 10}` : "accent", own: true}};
    });
    return {data, layout: {
      hovermode: "closest", meta: {own: true},
      xaxis: {tickvals: axes.map((_, index) => index), ticktext: axes.map(({name}) => literal(name).replace(/[_.,/] ?/g, "$&<br>")),
        range: [-0.25, last + 0.4], showgrid: false, showline: false, side: "top", tickangle: 0, fixedrange: true},
      yaxis: {visible: false, range: [-0.06, 1.06], fixedrange: true},
      shapes: axes.map((_, index) => ({type: "line", x0: index, x1: index, y0: 0, y1: 1, line: {dash: "solid"}})),
      annotations: axes.flatMap(({ticks}, index) => ticks.map(([y, text]) => ({x: index, y, text: literal(text), showarrow: false,
        xanchor: "left", xshift: 5, font: {size: 11, color: colour("ink")}, bgcolor: colour("paper"), opacity: 0.85}))),
    }};
  },
  /* A point for each run: a result over one setting. */
  scatter() {
    const [result, setting] = [chosen("result"), chosen("setting")];
    const values = table.settings[setting] ?? [], results = table.results[result] ?? [];
    const axis = axisOf(setting, values);
    const data = table.names.map((name, run) => ({type: "scatter", mode: "markers", name, uid: `scatter-${run}`,
      x: [axis.isNames ? literal(values[run]) : numeric(values[run])], y: [results[run]], marker: {size: 11, opacity: 0.85},
      hovertemplate: "%{x}: %{y:.4~g}<extra>%{fullData.name}</extra>",
      meta: {run, colour: `c${run % 10}`, own: true}}));
    return {data, layout: {hovermode: "closest", meta: {own: true},
      xaxis: {title: {text: setting}, type: axis.isNames ? "category" : axis.isLog ? "log" : "linear",
        ...(axis.few && {tickvals: axis.few})},
      yaxis: {title: {text: result}}}};
  },
};

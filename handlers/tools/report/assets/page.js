"use strict";
/* Lets plotly draw the figures of the page; hides and finds them; asks a live page's server for news. */

const COARSE = matchMedia("(pointer: coarse)").matches;
const CONFIG = {responsive: true, displaylogo: false, displayModeBar: COARSE ? false : "hover",
  modeBarButtonsToRemove: ["toImage", "select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d", "sendChartToCloud"]};
const KEY = `camshaft ${location.pathname} ${document.title}`;
const TITLE = document.title;
const CONTROLS = ["search", "clock", "smoothing", "log-y", "log-x", "filter", "group", "result", "setting"];
const TROUBLE = {403: "the server has been started again: open the address that it printed",
  500: "the run cannot be read now: load this page again to see why"};
const drawn = new Set();  // the places of figures that have come into sight
let {figures, clocks, status, table} = JSON.parse(byId("data").textContent);
let settings = {hidden: [], folds: {}, controls: {}, sort: null};  // what a reload of the page keeps

function byId(id) { return document.getElementById(id); }
function all(query, within = document) { return [...within.querySelectorAll(query)]; }
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }
function isHidden(kind, value) {
  return settings.hidden.includes(`${kind} ${value}`) || (kind === "run" && left.has(Number(value)));
}

/* ---- figures ---- */

/* plotly's template: what all figures share. */
function template() {
  const clear = "rgba(0,0,0,0)";
  const axis = {gridcolor: colour("grid"), zeroline: false, showline: true, linecolor: colour("line"),
    tickfont: {size: 11}, title: {font: {size: 11}, standoff: 4}, automargin: true, nticks: 7,
    spikecolor: colour("soft"), spikethickness: 1};
  return {layout: {
    autosize: true, paper_bgcolor: colour("paper"), plot_bgcolor: colour("paper"), margin: {l: 44, r: 10, t: 8, b: 34},
    font: {family: "system-ui, sans-serif", size: 12, color: colour("soft")},
    hovermode: "x unified", dragmode: COARSE ? false : "zoom", showlegend: false,
    hoverlabel: {bgcolor: colour("paper"), bordercolor: colour("line"), font: {color: colour("ink"), size: 12},
      namelength: 40},
    modebar: {bgcolor: clear, color: colour("soft"), activecolor: colour("ink")},
    legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: {size: 11}},
    xaxis: axis, yaxis: axis,
    shapedefaults: {layer: "below", line: {color: colour("soft"), width: 1, dash: "dot"}},
  }};
}

function layout({xaxis, yaxis, ...rest}, data) {
  if (rest.meta?.own) {
    const named = ({title, ...axis}) => ({...axis, ...(title && {title: {text: literal(title.text)}})});
    return {...rest, template: template(), xaxis: named(xaxis), yaxis: named(yaxis)};
  }
  const [logX, logY] = ["log-x", "log-y"].map((id) => byId(id).checked && data[0]?.type !== "heatmap");
  const clock = byId("clock").value;
  const typed = (axis, log) => ({type: log ? "log" : "linear", ...axis});  // dates stay dates
  const axis = typed(xaxis, logX);
  const at = (run, x) => placed({meta: {run}}, [x])[0];
  if (xaxis.title) {
    axis.title = {text: clock === "time" ? `${timeUnit()[0]} at work` : clock};
    axis.hoverformat = clock === "iteration" || clock === "step" ? ",d" : ",.4~g";
  }
  return {...rest, template: template(), uirevision: `${logX} ${logY} ${clock}`, xaxis: axis,
    shapes: rest.shapes?.map((each) => ({...each, x0: at(0, each.x0), x1: at(0, each.x1)})),
    yaxis: {...typed(yaxis, logY), exponentformat: logY ? "power" : "B"}};
}

function figureOf(place) { return figures[place.dataset.figure] ?? MADE[place.dataset.figure]?.(); }

/* The traces that are not hidden; of those of many iterations, each run's at the one chosen, or before it. */
function shownOf(figure, place) {
  const at = Number(place?.dataset.at ?? Infinity), newest = new Map();
  for (const {meta} of figure.data) if (meta.at <= at) newest.set(meta.run, meta.at);
  return figure.data.filter(({meta}) => !isHidden("run", meta.run) && !isHidden("split", meta.split)
    && (meta.at === undefined || newest.get(meta.run) === meta.at));
}

function draw(place) {
  const figure = figureOf(place);
  if (!figure) return;
  const [data, same] = merged(shownOf(figure, place));
  const made = layout(figure.layout, figure.data), printing = document.documentElement.matches(".printing");
  // Plotly fits a chart into its place a moment later, which is too late for the paper.
  if (printing) Object.assign(made, {autosize: false, width: place.clientWidth, height: place.clientHeight});
  Plotly.react(place, traces(data), made, CONFIG);
  if (!printing && place._fullLayout.width !== place.clientWidth) Plotly.Plots.resize(place);
  const note = place.parentElement.querySelector(".same");
  if (note) note.textContent = same.join(" ");
  drawn.add(place);
}

const sight = new IntersectionObserver((entries) => {
  for (const {isIntersecting, target} of entries) {
    if (isIntersecting) { sight.unobserve(target); draw(target); }
  }
}, {rootMargin: "300px"});

/* Draws what is in sight; the rest is drawn when it comes into sight. */
function redraw() {
  const height = innerHeight + 300;
  for (const place of drawn) {
    const {top, bottom} = place.getBoundingClientRect();
    if (place.checkVisibility() && bottom > -300 && top < height) draw(place);
    else { drawn.delete(place); sight.observe(place); }
  }
}

function drawAll() { all(".chart").filter((place) => place.checkVisibility()).forEach(draw); }

/* ---- what is shown ---- */

/* Shows what the search finds and the legend does not hide; opens what a person has opened. */
function show() {
  byId("smoothing-value").textContent = Number(byId("smoothing").value).toFixed(2);
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = (one) => words.every((word) => one.dataset.metrics.toLowerCase().includes(word));
  arrange();
  for (const one of all("[data-run]")) {
    const run = one.dataset.run;  // the legend leaves the table as it is
    one.hidden = one.closest("header") ? left.has(Number(run)) : isHidden("run", run);
  }
  for (const one of all("[data-metrics]")) one.hidden = !found(one) || isHidden("run", one.dataset.run);
  for (const one of all("[data-hides]")) {
    const [kind, value] = one.dataset.hides.split(" ");
    one.setAttribute("aria-pressed", !settings.hidden.includes(one.dataset.hides));
    one.hidden = kind === "run" && left.has(Number(value));
  }
  let open = 0;
  for (const one of all("[data-fold]")) {
    const cards = all("figure[data-metrics]", one), rows = all("tr[data-metrics]", one);
    const seen = cards.filter((card) => !card.hidden).length;
    one.hidden = (cards.length > 0 && !seen) || (rows.length > 0 && rows.every((row) => row.hidden));
    if (one.dataset.open === undefined) one.dataset.open = one.open;
    one.open = settings.folds[one.dataset.fold] ?? one.dataset.open === "true";
    if (words.length && seen) one.open = true;
    open += seen;
  }
  byId("found").hidden = !words.length || open > 0;
  byId("found").textContent = `No metric has “${byId("search").value}” in its name.`;
  for (const option of byId("clock").options) {
    option.disabled = option.value !== "iteration" && !clocks.some((each) => each[option.value]);
  }
}

function update() { show(); redraw(); remember(); }

function remember() {
  const there = CONTROLS.filter(byId);
  settings.controls = Object.fromEntries(there.map((id) => [id, [byId(id).value, byId(id).checked]]));
  try { sessionStorage.setItem(KEY, JSON.stringify(settings)); } catch { /* a browser that stores nothing */ }
}

function recall() {
  try { settings = {...settings, ...JSON.parse(sessionStorage.getItem(KEY))}; } catch { return; }
  for (const [id, [value, checked]] of Object.entries(settings.controls)) {
    const one = byId(id);
    if (one) Object.assign(one, {value, checked});
    if (one?.tagName === "SELECT" && one.selectedIndex < 0) one.selectedIndex = 0;
  }
}

/* Hides one entry of the legend, or shows it again; `alone` shows nothing else of its kind. */
function toggle(button, alone) {
  const name = button.dataset.hides, kind = name.split(" ")[0];
  const others = all("#legend [data-hides]").map((one) => one.dataset.hides)
    .filter((other) => other !== name && other.startsWith(`${kind} `));
  const hidden = new Set(settings.hidden);
  if (alone) {
    const isAlone = others.every((other) => hidden.has(other));
    others.forEach((other) => isAlone ? hidden.delete(other) : hidden.add(other));
    hidden.delete(name);
  } else if (!hidden.delete(name)) hidden.add(name);
  settings.hidden = [...hidden];
  update();
}

/* ---- news ---- */

/* Other content for a section; what a person has zoomed, scrolled or checked stays so. */
function fill(section, html) {
  const kept = all(".scroll, input, select", section).map((one) => ({scroll: one.scrollLeft, value: one.value,
    type: one.type, most: one.max, checked: one.checked, focused: one === document.activeElement}));
  const places = new Map(all(".chart", section).map((place) => [place.dataset.figure, place]));
  section.innerHTML = html;
  all(".scroll, input, select", section).forEach((one, index) => {
    const before = kept[index];
    if (!before || before.type !== one.type) return;
    one.scrollLeft = before.scroll;
    if ("checked" in one) one.checked = before.checked;
    if (one.type === "search" || (one.type === "select-one" && [...one.options].some(({value}) => value === before.value))) {
      one.value = before.value;
    }
    if (one.type === "range" && before.value !== before.most) slide(one, before.value);
    if (before.focused) one.focus({preventScroll: true});
  });
  for (const place of all(".chart", section)) {
    const before = places.get(place.dataset.figure);
    if (!before) { sight.observe(place); continue; }
    before.setAttribute("aria-label", place.getAttribute("aria-label"));
    place.replaceWith(before);
  }
}

/* Shows all runs of a card at one iteration, or before it. */
function slide(input, value) {
  input.value = value;
  const card = input.closest("figure"), at = Number(input.dataset.iterations.split(" ")[input.value]);
  const said = (iteration) => `iteration ${iteration.toLocaleString("en")}`;
  for (const run of all(".of-run", card)) {
    const frames = all("[data-iteration]", run);
    const shown = frames.map((frame) => Number(frame.dataset.iteration)).filter((each) => each <= at).at(-1);
    for (const frame of frames) frame.hidden = Number(frame.dataset.iteration) !== shown;
    const label = run.querySelector(".at");
    if (label) label.textContent = shown === undefined || shown === at ? "" : said(shown);
  }
  for (const place of all(".chart", card)) {
    place.dataset.at = at;
    if (drawn.has(place)) draw(place);
  }
  card.querySelector("output").textContent = said(at);
}

function tell(text, kind) {
  const pill = byId("live");
  pill.hidden = false;
  pill.className = kind;
  if (pill.textContent !== text) pill.textContent = text;
  document.title = `${text} · ${TITLE}`;
}

async function ask(version, shown) {
  try {
    const answer = await fetch("data.json", {headers: version ? {"If-None-Match": version} : {}});
    if (answer.status === 200) {
      version = answer.headers.get("ETag");
      const news = await answer.json();
      ({figures, clocks, status, table} = news);
      for (const [name, html] of Object.entries(news.sections)) {
        if (shown[name] !== html) fill(document.querySelector(`[data-section=${name}]`), html);
      }
      shown = news.sections;
      show();
      redraw();
    }
    if (TROUBLE[answer.status]) tell(TROUBLE[answer.status], "lost");
    else tell(status.text, status.is_over ? "over" : "live");
  } catch { tell("the connection is lost; what is shown may be old", "lost"); }
  setTimeout(ask, 2000, version, shown);
}

/* ---- what a person does ---- */

byId("controls").addEventListener("submit", (event) => event.preventDefault());
addEventListener("click", ({target, detail}) => {
  const button = target.closest?.("[data-hides]"), line = target.closest?.("summary");
  const sort = target.closest?.(".sort"), format = target.closest?.("[data-save]");
  if (button) toggle(button, detail === 2);
  if (sort) sortBy(sort.closest("th"));
  if (format) saveChart(all(".chart", format.closest(".of-run, figure"))[0], format.dataset.save);
  if (target.id === "save-rows") save("rows.csv", csv(allRows()));
  for (const menu of all(".save[open]")) if (format || !menu.contains(target)) menu.open = false;
  if (line?.parentElement.dataset.fold) {
    settings.folds[line.parentElement.dataset.fold] = !line.parentElement.open;
    remember();
  }
});
addEventListener("input", ({target}) => {
  if (target.closest(".slider")) slide(target, target.value);
  else if (target.closest("#controls, .choices")) update();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

/* On paper there is all: what is folded opens, and charts are as wide as the paper, in its colours. */
let folded = [];
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  folded = all("details[data-fold]").filter((one) => !one.open);
  folded.forEach((one) => { one.open = true; });
  drawAll();
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  folded.forEach((one) => { one.open = false; });
  drawAll();
});
recall();
show();
all(".chart").forEach((place) => sight.observe(place));
if (document.body.dataset.live === "true") ask(null, {});

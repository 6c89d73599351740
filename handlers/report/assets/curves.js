"use strict";
/* The curves: a card with a chart for each metric. */

function smoothed(curve, weight) {
  const points = curve.means || {x: curve.x, y: curve.y, n: null};
  const x = [], y = [];
  let sum = 0, mass = 1;
  points.x.forEach((at, index) => {
    const value = points.y[index];
    if (value === null) { x.push(at); y.push(null); return; }
    const keep = Math.pow(weight, points.n ? points.n[index] : 1);
    sum = keep * sum + (1 - keep) * value;
    mass *= keep;
    x.push(at);
    y.push(sum / (1 - mass));
  });
  return {x, y};
}

function traces(chart) {
  const {smoothing} = settings();
  const drawn = [];
  data.runs.forEach((run, place) => {
    chart.metrics.forEach((name, index) => {
      const curve = run.curves[name];
      if (!curve || !curve.count) return;
      const validated = chart.validated.includes(name);
      const tint = colour(several() ? place : index);
      const label = several() ? (chart.metrics.length > 1 ? `${run.name}: ${name}` : run.name) : name;
      const line = {color: tint, width: 2, dash: several() && chart.metrics.length > 1
        ? DASHES[validated ? 0 : 2] : DASHES[0]};
      const smooth = smoothing > 0 && !validated && chart.smooth && curve.count >= SMOOTHED_FROM;
      const shared = {type: "scatter", legendgroup: label, name: label, connectgaps: false};
      drawn.push({...shared, x: curve.x, y: curve.y, uid: `${label} raw`,
        mode: curve.count === 1 || (validated && curve.count <= 100) ? "lines+markers" : "lines",
        marker: {color: tint, size: 5},
        line: smooth ? {...line, width: 1} : line, opacity: smooth ? 0.3 : 1,
        showlegend: !smooth, hoverinfo: smooth ? "skip" : undefined,
        hovertemplate: smooth ? undefined : "%{y:.4~g}<extra>%{fullData.name}</extra>"});
      if (smooth) {
        drawn.push({...shared, ...smoothed(curve, smoothing), uid: `${label} smooth`, mode: "lines",
          line, hovertemplate: "%{y:.4~g}<extra>%{fullData.name}, smoothed</extra>"});
      }
      if (curve.odd.count) {
        drawn.push({...shared, x: curve.odd.x, y: curve.odd.x.map(() => 0.03), yaxis: "y2",
          uid: `${label} odd`, name: `${label}: no number`, showlegend: true, mode: "markers",
          marker: {symbol: "x-thin", size: 8, line: {width: 2.5, color: tint}},
          hovertemplate: "not a number<extra>%{fullData.name}</extra>"});
      }
    });
  });
  return drawn;
}

function layout(extra) {
  const axis = {gridcolor: style("--grid"), zeroline: false, linecolor: style("--line"),
    tickfont: {size: 11}, automargin: true};
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true,
    font: {family: "system-ui, sans-serif", size: 12, color: style("--soft")},
    margin: {l: 44, r: 12, t: 8, b: 36},
    hovermode: "x unified",
    hoverlabel: {bgcolor: style("--paper"), bordercolor: style("--line"),
      font: {color: style("--ink")}},
    modebar: {bgcolor: "rgba(0,0,0,0)", color: style("--soft"), activecolor: style("--ink")},
    legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: {size: 11}},
    dragmode: COARSE ? false : "zoom",
    xaxis: {...axis, ...extra.xaxis}, yaxis: {...axis, ...extra.yaxis},
    ...extra.more,
  };
}

const COARSE = matchMedia("(pointer: coarse)").matches;
const CONFIG = {responsive: true, displaylogo: false, displayModeBar: COARSE ? false : "hover",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"]};

/* On a logarithmic axis of a few decades: 1, 2, 5, 10, written out. */
function ticks(chart, numbers) {
  const all = data.runs.flatMap((run) => chart.pace ? numbers(run.pace)
    : chart.metrics.flatMap((name) => run.curves[name] ? numbers(run.curves[name]) : []));
  const above = all.filter((value) => value > 0);
  const [lowest, highest] = above.reduce(([low, high], value) =>
    [Math.min(low, value), Math.max(high, value)], [Infinity, 0]);
  return highest / lowest < 3000 ? {dtick: "D2", tickformat: "~g"} : {exponentformat: "power"};
}

function axes(chart) {
  const {logX, logY} = settings();
  const resumed = data.runs.flatMap((run) => run.parts)
    .filter((part) => part.event === "resumed" && part.from > 0);
  return layout({
    xaxis: {type: logX ? "log" : "linear", title: {text: "iteration", font: {size: 11}, standoff: 6},
      hoverformat: ",d", ...(logX ? ticks(chart, (curve) => curve.x) : {})},
    yaxis: {type: logY ? "log" : "linear", ...(logY ? ticks(chart, (curve) => curve.y) : {})},
    more: {
      uirevision: `${logX} ${logY}`,
      yaxis2: {overlaying: "y", range: [0, 1], visible: false, fixedrange: true},
      shapes: several() ? [] : resumed.map((part) => ({type: "line", xref: "x", yref: "paper",
        x0: part.from, x1: part.from, y0: 0, y1: 1, layer: "below",
        line: {color: style("--soft"), width: 1, dash: "dot"}})),
      showlegend: several() || chart.metrics.length > 1 || chart.metrics[0] !== chart.title ||
        Boolean(data.runs[0].curves[chart.title]?.odd.count),
    },
  });
}

function notes(chart) {
  const told = [];
  const {logY} = settings();
  for (const run of data.runs) {
    for (const name of chart.metrics) {
      const curve = run.curves[name];
      if (!curve) continue;
      const of = several() ? `${run.name}: ${name}` : name;
      if (curve.means) {
        told.push(`${of}: ${number(curve.count)} rows, drawn as ${number(curve.x.length)} points ` +
          "that keep every peak.");
      }
      if (curve.odd.count) told.push(`${of}: ${counted(curve.odd.count, "value")} not a number (×).`);
      if (logY && curve.lowest && curve.lowest.value <= 0) {
        told.push(`${of}: what is not above zero has no place on a logarithmic axis.`);
      }
    }
  }
  return told.join(" ");
}

function inWords(chart) {
  const told = [];
  for (const run of data.runs) {
    for (const name of chart.metrics) {
      const curve = run.curves[name];
      if (!curve || !curve.last) continue;
      told.push(`${several() ? `${run.name}, ` : ""}${name}: last ${number(curve.last.value)}` +
        (curve.lowest ? `, lowest ${number(curve.lowest.value)}, highest ${number(curve.highest.value)}` : ""));
    }
  }
  return `Chart of ${chart.metrics.join(" and ")} by iteration. ${told.join("; ")}.`;
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) {
      const card = [...cards.values()].find((each) => each.place === entry.target);
      seen.unobserve(entry.target);
      if (card) { card.visible = true; drawCard(card); }
    }
  }
}, {rootMargin: "400px"});

function drawCard(card) {
  card.figure.querySelector(".notes").textContent = card.notes();
  card.place.setAttribute("aria-label", card.words());
  if (card.visible) Plotly.react(card.place, card.traces(), card.layout(), CONFIG);
}

function cardFor(key, title, flat) {
  if (!cards.has(key)) {
    const place = h("div", {class: flat ? "chart flat" : "chart", role: "img"});
    const figure = h("figure", {class: "card"}, h("figcaption", {}, h("h3", {}, title)),
      place, h("p", {class: "notes"}));
    cards.set(key, {place, figure, visible: false});
    seen.observe(place);
  }
  return cards.get(key);
}

function curves() {
  const headings = new Map();
  const order = ["Learning", "Rate and throughput", "More metrics"];
  const all = [...data.charts, ...paceChart()];
  all.sort((one, other) => order.indexOf(one.heading) - order.indexOf(other.heading));
  for (const chart of all) {
    const card = cardFor(`curve ${chart.title}`, chart.title, false);
    Object.assign(card, chart.pace
      ? {traces: () => paceTraces(), layout: () => axes(chart), notes: () => "", words: () =>
          "Chart of iterations per second by iteration."}
      : {traces: () => traces(chart), layout: () => axes(chart), notes: () => notes(chart),
         words: () => inWords(chart)});
    if (!headings.has(chart.heading)) headings.set(chart.heading, []);
    headings.get(chart.heading).push(card.figure);
  }
  const place = byId("charts");
  const shown = [...headings].map(([heading, figures]) => ({heading, figures}));
  const before = [...place.querySelectorAll("figure")];
  const now = shown.flatMap((each) => each.figures);
  if (!now.length) {
    const waiting = live && !data.runs.some(begun);
    place.replaceChildren(waiting
      ? h("p", {class: "empty wait"}, "Waiting for the run to begin. This page goes on by itself.")
      : empty("There are no rows of metrics. Add JSONLines(\"…/rows.jsonl\") to the handlers, " +
              "in this directory."));
  } else if (now.length !== before.length || now.some((each, index) => each !== before[index])) {
    place.replaceChildren(...shown.flatMap((each) =>
      [h("h2", {}, each.heading), h("div", {class: "grid"}, each.figures)]));
  }
  byId("controls").hidden = !now.length;
  now.forEach((figure) => drawCard([...cards.values()].find((each) => each.figure === figure)));
}

function paceChart() {
  return data.runs.some((run) => run.pace.x.length > 1)
    ? [{title: "Iterations per second", heading: "Rate and throughput", pace: true,
      metrics: ["Iterations per second"], validated: []}] : [];
}

function paceTraces() {
  return data.runs.map((run, place) => ({type: "scatter", mode: "lines", x: run.pace.x, y: run.pace.y,
    name: several() ? run.name : "iterations per second", line: {color: colour(place), width: 2, shape: "hv"},
    hovertemplate: "%{y:.4~g}<extra>%{fullData.name}</extra>"}));
}

"use strict";
/* Lets plotly draw the figures of the page, smooths curves, and asks a live page's server for news. */

const COARSE = matchMedia("(pointer: coarse)").matches;
const CONFIG = {responsive: true, displaylogo: false, displayModeBar: COARSE ? false : "hover",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"]};
const drawn = new Set();  // the places of figures that have come into sight
let figures = JSON.parse(document.getElementById("figures-data").textContent);

function byId(id) { return document.getElementById(id); }
function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }

/* The exponential mean without the pull of its start; a mean of n rows counts n times. */
function smoothed(trace, weight) {
  const {x, y, n} = {x: trace.x, y: trace.y, ...trace.meta.smooth};
  let sum = 0, mass = 1;
  return {x, y: y.map((value, index) => {
    if (value === null) return null;
    const keep = Math.pow(weight, n ? n[index] : 1);
    sum = keep * sum + (1 - keep) * value;
    mass *= keep;
    return sum / (1 - mass);
  })};
}

function traces(figure) {
  const weight = Number(byId("smoothing").value);
  return figure.data.flatMap((trace) => {
    const color = colour(trace.meta.colour);
    const whole = {...trace, line: {...trace.line, color}, marker: {...trace.marker, color}};
    if (!weight || !trace.meta.smooth) return [whole];
    return [
      {...whole, line: {...whole.line, width: 1}, opacity: 0.3, showlegend: false, hoverinfo: "skip",
        hovertemplate: undefined},
      {...whole, ...smoothed(trace, weight), mode: "lines", uid: trace.uid.replace(/raw$/, "smooth"),
        hovertemplate: "%{y:.4~g}<extra>%{fullData.name}, smoothed</extra>"},
    ];
  });
}

/* plotly's template: what all figures share. */
function template() {
  const clear = "rgba(0,0,0,0)";
  const axis = {gridcolor: colour("grid"), zeroline: false, showline: true, linecolor: colour("line"),
    tickfont: {size: 11}, title: {font: {size: 11}, standoff: 6}, automargin: true};
  return {layout: {
    autosize: true, paper_bgcolor: clear, plot_bgcolor: clear, margin: {l: 44, r: 12, t: 8, b: 36},
    font: {family: "system-ui, sans-serif", size: 12, color: colour("soft")},
    hovermode: "x unified", dragmode: COARSE ? false : "zoom",
    hoverlabel: {bgcolor: colour("paper"), bordercolor: colour("line"), font: {color: colour("ink")}},
    modebar: {bgcolor: clear, color: colour("soft"), activecolor: colour("ink")},
    legend: {orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: {size: 11}},
    xaxis: axis, yaxis: axis,
    shapedefaults: {layer: "below", line: {color: colour("soft"), width: 1, dash: "dot"}},
  }};
}

function layout({xaxis, yaxis, ...rest}) {
  const [logX, logY] = ["log-x", "log-y"].map((id) => byId(id).checked);
  const typed = (axis, log) => ({type: log ? "log" : "linear", ...axis});  // dates stay dates
  return {...rest, template: template(), uirevision: `${logX} ${logY}`,
    xaxis: typed(xaxis, logX), yaxis: {...typed(yaxis, logY), exponentformat: logY ? "power" : "B"}};
}

function draw(place) {
  const figure = figures[place.dataset.figure];
  Plotly.react(place, traces(figure), layout(figure.layout), CONFIG);
  drawn.add(place);
}

const sight = new IntersectionObserver((entries) => {
  for (const {isIntersecting, target} of entries) {
    if (isIntersecting) { sight.unobserve(target); draw(target); }
  }
}, {rootMargin: "400px"});

function redraw() {
  byId("smoothing-value").textContent = Number(byId("smoothing").value).toFixed(2);
  drawn.forEach(draw);
}

function drawAll() { document.querySelectorAll(".chart").forEach(draw); }

/* Other content for a section; what a person has zoomed, scrolled, opened or checked stays so. */
function fill(section, html) {
  const every = (name) => [...section.querySelectorAll(name)];
  const left = every(".scroll, details, input").map((one) => ({scroll: one.scrollLeft, open: one.open,
    checked: one.checked, focused: one === document.activeElement}));
  const places = new Map(every(".chart").map((place) => [place.dataset.figure, place]));
  section.innerHTML = html;
  every(".scroll, details, input").forEach((one, index) => {
    if (!left[index]) return;
    one.scrollLeft = left[index].scroll;
    if ("open" in one) one.open = left[index].open;
    if ("checked" in one) one.checked = left[index].checked;
    if (left[index].focused) one.focus({preventScroll: true});
  });
  for (const place of every(".chart")) {
    const before = places.get(place.dataset.figure);
    if (!before) { sight.observe(place); continue; }
    before.setAttribute("aria-label", place.getAttribute("aria-label"));
    place.replaceWith(before);
  }
}

async function ask(version, shown) {
  const pill = byId("live");
  let text = "live";
  try {
    const answer = await fetch("data.json", {headers: version ? {"If-None-Match": version} : {}});
    if (answer.status === 200) {
      version = answer.headers.get("ETag");
      const news = await answer.json();
      figures = news.figures;
      for (const [name, html] of Object.entries(news.sections)) {
        if (shown[name] !== html) fill(document.querySelector(`[data-section=${name}]`), html);
      }
      shown = news.sections;
      redraw();
    }
  } catch { text = "the connection is lost; what is shown may be old"; }
  pill.hidden = false;
  pill.classList.toggle("lost", text !== "live");
  if (pill.textContent !== text) pill.textContent = text;
  setTimeout(ask, 2000, version, shown);
}

byId("controls").addEventListener("input", redraw);
byId("controls").addEventListener("submit", (event) => event.preventDefault());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", drawAll);
document.querySelectorAll(".chart").forEach((place) => sight.observe(place));
if (document.body.dataset.live === "true") ask(null, {});

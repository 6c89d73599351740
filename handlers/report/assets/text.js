"use strict";
/* The data, and numbers, times and sizes as people read them. */

const live = document.body.dataset.live === "true";
const COLOURS = 8;
const SMOOTHED_FROM = 20;  // rows; fewer are told best by themselves
const DASHES = ["solid", "dash", "dot", "dashdot"];
const GOES_DOWN = /loss|error|perplexity|mse|mae|rmse|nll/i;
const ENDS = {
  completed: "completed", interrupted: "interrupted, to go on", failed: "failed",
  killed: "killed", running: "running",
};

let data = JSON.parse(document.getElementById("data").textContent);
const cards = new Map();  // the chart of each title, once it was made
const settings = () => ({
  smoothing: Number(byId("smoothing").value),
  logX: byId("log-x").checked,
  logY: byId("log-y").checked,
});

function byId(id) { return document.getElementById(id); }

function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function style(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
function colour(index) { return style(`--c${index % COLOURS}`); }

function number(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value)) return value.toLocaleString("en");
  const size = Math.abs(value);
  if (size >= 1e6 || size < 1e-3) return value.toExponential(3).replace(/\.?0+e/, "e");
  return String(Number(value.toPrecision(4)));
}

function bytes(size) {
  const units = ["B", "kB", "MB", "GB"];
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) { size /= 1000; unit += 1; }
  return `${unit ? size.toFixed(1) : size} ${units[unit]}`;
}

function date(seconds) {
  return new Date(seconds * 1000);
}

function clock(seconds) {
  if (!seconds) return "–";
  const at = date(seconds);
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

function lasting(seconds) {
  seconds = Math.max(0, seconds);
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.round((seconds % 3600) / 60)} min`;
}

function counted(count, noun) { return `${number(count)} ${noun}${count === 1 ? "" : "s"}`; }
function several() { return data.runs.length > 1; }

function empty(text) { return h("p", {class: "empty"}, text); }

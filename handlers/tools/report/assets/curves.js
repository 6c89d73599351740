"use strict";
/* The curves as plotly draws them: on a clock, smoothed, and once if several runs have the same. */

/* Where an iteration of a run is on the clock that a person has chosen; null if the run does not tell. */
function onClock(run, iterations) {
  const name = byId("clock").value;
  if (name === "iteration" || run === undefined) return iterations;
  const {iteration: known, [name]: told} = clocks[run];
  if (!told) return iterations.map(() => null);
  let place = 0;
  return iterations.map((at) => {
    if (place && known[place - 1] > at) place = 0;
    while (place < known.length - 1 && known[place] < at) place += 1;
    if (known[place] <= at || !place) return told[place];
    const part = (at - known[place - 1]) / (known[place] - known[place - 1]);
    const value = told[place - 1] + part * (told[place] - told[place - 1]);
    return name === "step" ? Math.round(value) : value;
  });
}

/* The unit in which times are easy to read. */
function timeUnit() {
  const longest = Math.max(0, ...clocks.map(({time}) => time ? time[time.length - 1] : 0));
  return [["hours", 3600, 2 * 3600], ["minutes", 60, 180], ["seconds", 1, 0]].find((each) => longest >= each[2]);
}

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

function placed(trace, x) {
  const [, seconds] = byId("clock").value === "time" ? timeUnit() : ["", 1];
  return onClock(trace.meta.run, x).map((at) => at === null ? null : at / seconds);
}

/* Curves of several runs that lie on one another become one; so do constants of one value. */
function merged(data) {
  const found = new Map();
  const kept = data.filter((trace) => {
    if (trace.type !== "scatter" || trace.yaxis === "y2" || trace.meta.run === undefined || trace.meta.own) return true;
    const {x, y, meta} = trace;
    const constant = y.length > 1 && y.every((value) => value === y[0]);
    const key = `${meta.name} ${constant ? y[0] : JSON.stringify([placed(trace, x), y])}`;
    const first = found.get(key);
    if (!first) found.set(key, {trace, names: [meta.of], last: x[x.length - 1]});
    else {
      first.names.push(meta.of);
      if (x[x.length - 1] > first.last) Object.assign(first, {longer: trace, last: x[x.length - 1]});
    }
    return !first;
  });
  const count = (key) => new Set(data.map(({meta}) => meta[key])).size;
  const notes = [];
  for (const {trace, longer, names} of found.values()) {
    if (names.length === 1) continue;
    const runs = names.length === count("run") ? `all ${names.length} runs` : names.join(", ");
    const {name} = trace.meta;
    kept[kept.indexOf(trace)] = {...(longer ?? trace), name: count("name") > 1 ? `${runs}: ${name}` : runs,
      uid: trace.uid, meta: {...(longer ?? trace).meta, colour: "ink"}};
    notes.push(`${name} is the same in ${runs}, and drawn once.`);
  }
  return [kept, notes];
}

/* A text for plotly, which would take some HTML in it as such: a name is shown as it is written. */
function literal(text) {
  return typeof text === "string" ? text.replace(/[&<>]/g, (each) => `&#${each.charCodeAt(0)};`) : text;
}

function traces(given) {
  const data = given.map((trace) => ({...trace, name: literal(trace.name), y: trace.y.map(literal),
    ...(trace.meta.own && {x: trace.x.map(literal)}),
    ...(trace.customdata && {customdata: trace.customdata.map(literal)})}));
  const weight = Number(byId("smoothing").value);
  const faint = data.length > 4 ? 0.15 : 0.3;
  return data.flatMap((trace) => {
    const color = colour(ofGroup(trace.meta));
    if (trace.type === "heatmap") {
      return [{...trace, x: trace.meta.own ? trace.x : placed(trace, trace.x), colorscale: [[0, colour("paper")], [1, color]]}];
    }
    const put = trace.meta.run === undefined || trace.meta.own ? (x) => x : (x) => placed(trace, x);
    const whole = {...trace, x: put(trace.x), line: {...trace.line, color}, marker: {...trace.marker, color}};
    if (!weight || !trace.meta.smooth) return [whole];
    const {x, y} = smoothed(trace, weight);
    return [
      {...whole, line: {...whole.line, width: 1}, opacity: faint, hoverinfo: "skip", hovertemplate: undefined},
      {...whole, x: put(x), y, mode: "lines", uid: trace.uid.replace("raw", "smooth"),
        hovertemplate: "%{y:.4~g}<extra>%{fullData.name}, smoothed</extra>"},
    ];
  });
}

"use strict";
/* The timeline: the parts of each run by the clock. */

function iso(seconds) { return clock(seconds) + (seconds % 1).toFixed(3).slice(1); }

function timelineTraces() {
  const drawn = [];
  const tints = {completed: "--c2", interrupted: "--c4", failed: "--c1", killed: "--c3", running: "--c0"};
  const told = new Set();
  data.runs.forEach((run) => run.parts.forEach((part, index) => {
    drawn.push({type: "scatter", mode: "lines", x: [iso(part.began), iso(part.ended)],
      y: [run.name, run.name], line: {width: 14, color: style(tints[part.end] || "--c7")},
      name: ENDS[part.end] || part.end, legendgroup: part.end, showlegend: !told.has(part.end),
      hovertemplate: `${part.event} at iteration ${part.from}, ${part.end} at iteration ${part.to}<extra></extra>`});
    told.add(part.end);
    if (index > 0 || part.event === "resumed") {
      drawn.push({type: "scatter", mode: "markers", x: [iso(part.began)], y: [run.name],
        marker: {symbol: "line-ns", size: 26, line: {width: 2, color: style("--ink")}},
        name: "started again", legendgroup: "again", showlegend: !told.has("again"),
        hovertemplate: `${part.event} at iteration ${part.from}<extra></extra>`});
      told.add("again");
    }
  }));
  data.runs.forEach((run) => {
    const saves = run.parts.flatMap((part) => part.saves);
    if (saves.length) {
      drawn.push({type: "scatter", mode: "markers", x: saves.map((each) => iso(each.time)),
        y: saves.map(() => run.name), marker: {symbol: "diamond", size: 8, color: style("--paper"),
          line: {width: 1.5, color: style("--ink")}},
        name: "checkpoint", legendgroup: "saves", showlegend: !told.has("saves"),
        text: saves.map((each) => `iteration ${each.iteration}`),
        hovertemplate: "checkpoint at %{text}<extra></extra>"});
      told.add("saves");
    }
  });
  return drawn;
}

function timeline() {
  const parts = data.runs.flatMap((run) => run.parts.map((part) => ({run, part})));
  if (!parts.length) {
    fill("timeline", empty("Nothing tells when it started, stopped and resumed. Add " +
      "Journal(directory) to the handlers."));
    return;
  }
  const card = cardFor("timeline", "By the clock", true);
  Object.assign(card, {
    traces: timelineTraces,
    layout: () => layout({
      xaxis: {type: "date"},
      yaxis: {type: "category", showticklabels: several(), fixedrange: true, showgrid: false,
        range: [data.runs.length - 0.3, -0.7]},
      more: {hovermode: "closest", uirevision: "timeline", showlegend: true},
    }),
    notes: () => "",
    words: () => "Timeline of the parts of the run; the table below says the same.",
  });
  card.place.style.height = `${Math.min(30, 8.5 + 2.2 * data.runs.length)}rem`;
  const place = document.querySelector("#timeline .content");
  const rows = parts.map(({run, part}) => [
    ...(several() ? [run.name] : []), `${part.event} at iteration ${number(part.from)}`,
    {text: clock(part.began), class: "number"}, right(lasting(part.ended - part.began)),
    h("span", {class: `state ${part.end}`}, ENDS[part.end] || part.end), right(number(part.to)),
    part.reason.split("\n")[0].slice(0, 300) || (part.end === "killed" ? "no last line in the journal" : ""),
    right(String(part.saves.length)),
  ]);
  const shown = table("Parts of the run", [...(several() ? ["run"] : []), "began", right("at"),
    right("lasted"), "ended", right("at iteration"), "why", right("checkpoints")], rows);
  if (place.contains(card.figure)) place.replaceChildren(card.figure, shown);
  else fill("timeline", card.figure, shown);
  card.figure.style.marginBottom = "1rem";
  drawCard(card);
}

"use strict";
/* Saves a chart as a picture or as a table, and the rows of all curves as a table. */

function save(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type: "text/csv;charset=utf-8"}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/* A table as CSV; an apostrophe keeps a spreadsheet from computing a name. */
function csv(rows) {
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    const text = typeof value === "string" && /^[=+\-@]/.test(value) && numeric(value) === null ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",") + "\n").join("");
}

/* What a chart draws: a column for each curve, or the cells of a heat map. */
function tableOf({data, layout}) {
  if (data[0]?.type === "heatmap") {
    const {x, y, z, text} = data[0];
    return [["", ...x], ...(text ?? z).map((row, index) => [y[index], ...row.map((each) => numeric(each) ?? each)])];
  }
  const curves = data.filter((trace) => trace.yaxis !== "y2"), rows = new Map();
  for (const [index, trace] of curves.entries()) {
    const x = layout.meta?.own ? trace.x : placed(trace, trace.x);
    x.forEach((at, place) => {
      if (!rows.has(at)) rows.set(at, new Array(curves.length).fill(null));
      rows.get(at)[index] = trace.y[place];
    });
  }
  const first = layout.meta?.own ? layout.xaxis.title?.text ?? "x" : chosen("clock");
  const lines = [...rows].sort(([a], [b]) => a - b).map(([at, values]) => [at, ...values]);
  return [[first, ...curves.map(({name}) => name)], ...lines];
}

/* The rows of all curves that are shown: a row for each run and iteration, a column for each metric. */
function allRows() {
  const curves = Object.entries(figures).filter(([key]) => key.startsWith("curve "))
    .flatMap(([, figure]) => shownOf(figure)).filter((trace) => trace.yaxis !== "y2");
  const names = [...new Set(curves.map(({meta}) => meta.name))], rows = new Map();
  for (const {x, y, meta} of curves) {
    x.forEach((at, place) => {
      const id = `${meta.run} ${at}`;
      if (!rows.has(id)) rows.set(id, {run: meta.run, of: meta.of, at, values: new Array(names.length).fill(null)});
      rows.get(id).values[names.indexOf(meta.name)] = y[place];
    });
  }
  const sorted = [...rows.values()].sort((a, b) => a.run - b.run || a.at - b.at);
  return [["run", "iteration", ...names], ...sorted.map(({of, at, values}) => [of, at, ...values])];
}

function saveChart(place, format) {
  const figure = figureOf(place), title = place.closest("figure").querySelector("h3").textContent;
  const filename = title.replace(/[^\p{L}\p{N}_.-]+/gu, "-");
  const data = shownOf(figure, place);
  if (format === "csv") return save(`${filename}.csv`, csv(tableOf({data, layout: figure.layout})));
  const drawn = traces(merged(data)[0]), isLegend = new Set(drawn.map(({name}) => name)).size > 1;
  const made = {...layout(figure.layout, figure.data), title: {text: literal(title), x: 0.02, font: {size: 15, color: colour("ink")}},
    showlegend: isLegend && data[0]?.type !== "heatmap", legend: {orientation: "v", font: {size: 11}},
    margin: {l: 60, r: 20, t: 60, b: 50}};
  return Plotly.downloadImage({data: drawn, layout: made},
    {format, filename, width: 900, height: 520, ...(format === "png" && {scale: 2})});
}

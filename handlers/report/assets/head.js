"use strict";
/* The head of the page: what the run is, how far it came, and its key figures. */

function head() {
  byId("kind").textContent = several() ? `Comparison of ${data.runs.length} runs` : "Training run";
  document.body.classList.toggle("several", several());
  byId("title").textContent = data.runs.map((run) => run.name).join(" · ");
  byId("summary").replaceChildren(...(several()
    ? data.runs.map((run) => h("span", {class: "line"}, h("b", {}, run.name), " ", summary(run)))
    : summary(data.runs[0])));
  byId("figures").replaceChildren(...(several() ? [] : figures(data.runs[0])));
}

function summary(run) {
  const told = run.progress;
  if (!told) {
    const text = begun(run) ? "No journal tells when it ran. " : "";
    return [h("span", {}, text)];
  }
  const last = run.parts[run.parts.length - 1];
  const parts = run.parts.length > 1 ? ` in ${run.parts.length} parts` : "";
  const made = [
    h("span", {class: `state ${told.end}`}, ENDS[told.end] || told.end),
    last.reason ? ` (${last.reason.split("\n")[0].slice(0, 200)})` : "",
    ` · epoch ${number(told.epoch)}${told.max_epochs ? ` of ${number(told.max_epochs)}` : ""}`,
    `, ${counted(told.iteration, "iteration")}, ${counted(told.step, "step")}`,
    ` · ${lasting(busy(run))}${parts}`,
  ];
  const total = told.max_iterations || (told.max_epochs && told.epoch_length
    ? told.max_epochs * told.epoch_length : 0);
  if (told.end === "running" && total) {
    made.push(h("progress", {max: total, value: Math.min(told.iteration, total),
      "aria-label": "progress of the run"}));
  }
  return made;
}

function figures(run) {
  const chosen = [];
  for (const chart of data.charts) {
    if (chart.heading !== "Learning") continue;
    for (const name of chart.validated) {
      const curve = run.curves[name];
      if (!curve || !curve.lowest) continue;
      const down = GOES_DOWN.test(name);
      const point = down ? curve.lowest : curve.highest;
      chosen.push([`${name}, ${down ? "lowest" : "highest"}`, number(point.value),
        `at iteration ${number(point.iteration)}, epoch ${number(point.epoch)}`]);
    }
  }
  for (const [name, curve] of Object.entries(run.curves)) {
    if ((name === "loss" || name === "lr") && curve.last) {
      chosen.push([`${name}, last`, number(curve.last.value),
        `at iteration ${number(curve.last.iteration)}`]);
    }
  }
  const done = run.parts.reduce((sum, part) => sum + part.to - part.from, 0);
  if (done && busy(run)) chosen.push(["Pace", number(done / busy(run)), "iterations per second"]);
  const whole = run.checkpoints.filter((each) => each.problem === null);
  if (run.checkpoints.length) {
    const size = whole.reduce((sum, each) => sum + each.size, 0);
    const broken = run.checkpoints.length - whole.length;
    chosen.push(["Checkpoints", String(run.checkpoints.length),
      broken ? `${broken} broken` : bytes(size)]);
  }
  return chosen.slice(0, 8).map(([name, value, note]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value), h("dd", {class: "note"}, note)));
}

function busy(run) {
  return run.parts.reduce((sum, part) => sum + Math.max(0, part.ended - part.began), 0);
}

function begun(run) {
  return Object.keys(run.curves).length || run.parts.length || run.checkpoints.length;
}

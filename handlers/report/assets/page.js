"use strict";
/* Draws the page, draws it again when a switch is used, and asks for news. */

function draw() {
  head();
  curves();
  timeline();
  best();
  checkpoints();
  facts("config", "config", "Nothing tells its configuration: Journal(directory, config=…) does.");
  facts("environment", "environment", "Nothing tells where it ran. Add Journal(directory) to the handlers.");
  handlers();
  const waiting = live && !data.runs.some(begun);
  for (const section of document.querySelectorAll("main section")) section.hidden = waiting;
}

function redraw() {
  byId("smoothing-value").textContent = settings().smoothing.toFixed(2);
  cards.forEach(drawCard);
}

function drawAll() { cards.forEach((card) => { card.visible = true; drawCard(card); }); }

for (const id of ["smoothing", "log-x", "log-y"]) byId(id).addEventListener("input", redraw);
byId("controls").addEventListener("submit", (event) => event.preventDefault());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("beforeprint", drawAll);
draw();

if (live) {
  const pill = byId("live");
  let version = null;
  const say = (text, lost) => {
    pill.hidden = false;
    pill.classList.toggle("lost", lost);
    if (pill.textContent !== text) pill.textContent = text;
  };
  const ask = async () => {
    try {
      const answer = await fetch("data.json", {headers: version ? {"If-None-Match": version} : {}});
      if (answer.status === 200) {
        version = answer.headers.get("ETag");
        data = await answer.json();
        draw();
      }
      say("live", false);
    } catch {
      say("the connection is lost; what is shown may be old", true);
    }
    setTimeout(ask, 2000);
  };
  ask();
}

// SPDX-License-Identifier: Apache-2.0
// range.js: the moment or range of the chart, by pointer and keyboard.

// placeRange moves the handles, and the shade between them, to the chosen range.
function placeRange() {
  const whole = state.metric === "alloc";
  const x = [state.from, state.to].map((m) => xOfTime(book.times[m]));
  const shade = byId("shade");
  shade.style.left = x[0] + "px";
  shade.style.width = Math.max(x[1] - x[0], 0) + "px";
  ["from", "to"].forEach((id, i) => {
    const handle = byId(id), moment = state[id];
    handle.style.left = x[i] + "px";
    handle.setAttribute("aria-valuemin", 0);
    handle.setAttribute("aria-valuemax", book.moments - 1);
    handle.setAttribute("aria-valuenow", moment);
    handle.setAttribute("aria-valuetext", afterText(book.times[moment]));
    handle.classList.toggle("faint", whole);
  });
  byId("chart").classList.toggle("single", state.from === state.to);
  byId("range-text").textContent = rangeText();
}

function rangeText() {
  const to = afterText(book.times[state.to]);
  switch (state.metric) {
    case "growth": return `growth from ${whenText(book.times[state.from])} to ${whenText(book.times[state.to])}`;
    case "peak": return `the peak, ${to}`;
    case "alloc": return "allocated in the whole session";
    case "leak": return `${endText()}, ${to}`;
  }
  return state.to === book.moments - 1 ? `${endText()}, ${to}` : to;
}

// xIn returns the position of a pointer in the chart.
const xIn = (event) => event.clientX - byId("chart").getBoundingClientRect().left;
const momentIn = (event) => nearest(timeOfX(xIn(event)));

let held = null; // while a range is dragged: its end that stays where it is
function watchChart() {
  const box = byId("chart"), tip = byId("chart-tip");
  box.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    box.setPointerCapture(event.pointerId);
    const id = event.target.id;
    held = id === "from" ? state.to : id === "to" && state.from !== state.to ? state.from : momentIn(event);
    if (id === "from" || id === "to") event.target.focus();
    else setRange(held, held);
    event.preventDefault();
  });
  box.addEventListener("pointermove", (event) => {
    if (held !== null) setRange(held, momentIn(event));
    showTip(tip, event, chartTip(timeOfX(xIn(event))));
  });
  const release = () => { held = null; };
  box.addEventListener("pointerup", release);
  box.addEventListener("pointercancel", release);
  box.addEventListener("pointerleave", () => { tip.hidden = true; });
  for (const id of ["from", "to"]) byId(id).addEventListener("keydown", (event) => moveHandle(id, event));
  byId("at-peak").addEventListener("click", () => setMetric("peak"));
  byId("at-end").addEventListener("click", () => setRange(book.moments - 1, book.moments - 1));
  byId("at-all").addEventListener("click", () => setRange(0, book.moments - 1));
}

function moveHandle(id, event) {
  const far = Math.max(2, Math.round(book.moments / 10));
  const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -far, PageUp: far, Home: -Infinity, End: Infinity };
  const move = moves[event.key];
  if (move === undefined) return;
  event.preventDefault();
  const at = Math.max(0, Math.min(state[id] + move, book.moments - 1));
  if (id === "from") setRange(Math.min(at, state.to), state.to);
  else if (state.from === state.to) setRange(at, at);
  else setRange(state.from, Math.max(at, state.from));
}

// showTip shows a box beside the pointer, inside the window.
function showTip(tip, event, children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = Math.max(8, Math.min(event.clientX + 14, room)) + "px";
  const below = event.clientY + 16;
  tip.style.top = (below + tip.offsetHeight > window.innerHeight ? Math.max(8, event.clientY - tip.offsetHeight - 12) : below) + "px";
}

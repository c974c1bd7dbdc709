// SPDX-License-Identifier: Apache-2.0
// steps.js: the steps of trainings, and the step of the peak as a curve with its phases.

const stepSize = { width: 1000, height: 120 };

// fillSteps shows the steps of each process.
function fillSteps() {
  const list = data.steps || [];
  byId("steps-section").hidden = list.length === 0;
  byId("steps").replaceChildren(...list.flatMap((s) => [
    element("h3", {}, s.title), ...s.texts.map((text) => element("p", {}, text)),
    ...(s.highs.length > 1 ? [caption("Most in each step", s.highs), byStep(s)] : []),
    ...(s.curve ? [caption(s.name + ", " + spanText(s.to - s.from), s.curve.map((p) => p[1])), oneStep(s), phaseTable(s)] : [])]));
}

const caption = (name, values) => {
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return element("p", { class: "soft" }, `${name}: ${least < most ? bytesText(least) + " to " : ""}${bytesText(most)}`);
};

const frameOf = (label, ...children) => drawing("svg", { class: "step-chart", viewBox: `0 0 ${stepSize.width} ${stepSize.height}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, ...children);

// heights returns the place of a value: the lowest is a little above the floor, where the values differ by 5 % at least.
function heights(values) {
  const most = Math.max(...values, 1), span = Math.max(most - Math.min(...values), most / 20);
  return (v) => stepSize.height * (0.96 - 0.9 * (v - most + span) / span);
}

// byStep draws a bar for each step, or for neighbors that were joined.
function byStep(s) {
  const y = heights(s.highs), wide = stepSize.width / s.highs.length;
  return frameOf("the most that each step had", ...s.highs.map((v, i) => drawing("rect", { class: "step-bar", x: i * wide, y: y(v), width: wide * 0.9, height: stepSize.height - y(v) },
    drawing("title", {}, `step ${s.numbers[i]}: ${bytesText(v)}`))));
}

// oneStep draws the levels of a step above its phases.
function oneStep(s) {
  const span = Math.max(s.to - s.from, 1), x = (t) => stepSize.width * (t - s.from) / span, y = heights(s.curve.map((p) => p[1]));
  const phases = s.runs.map((r) => drawing("rect", { class: "phase-" + (r.phase || "other"), x: x(r.from), y: 0, width: Math.max(x(r.to) - x(r.from), 0), height: stepSize.height },
    drawing("title", {}, r.phase || "other")));
  let line = "";
  s.curve.forEach(([t, v], i) => { line += i === 0 ? `M0 ${y(v)}` : `H${x(t)}V${y(v)}`; });
  return frameOf("memory in " + s.name, ...phases, drawing("path", { class: "step-line", d: line + `H${stepSize.width}`, "vector-effect": "non-scaling-stroke" }));
}

function phaseTable(s) {
  const cell = (text) => element("td", { class: "number" }, text);
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...["Phase", "Time", "At most", "Change"].map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...s.phases.map((p) => element("tr", {}, element("th", { scope: "row" }, element("i", { class: "swatch phase-" + (p.phase || "other") }), p.name + (p.peak ? ", the peak" : "")),
      cell(spanText(p.time)), cell(bytesText(p.high)), cell(signedText(p.change)))))));
}

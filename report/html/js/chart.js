// SPDX-License-Identifier: Apache-2.0
// chart.js: memory over time, stacked by plane, with NVML's figure as a line.

const chart = { left: 68, right: 14, top: 20, bottom: 24, height: 230, width: 0, sums: null, key: "" };
const markKinds = { oom: 1, large: 2, began: 3, ended: 4 };

// chartSums adds up the chosen rows in the chosen planes.
function chartSums() {
  const key = [state.process, state.group, state.gpu, ...[...state.planes].sort()].join();
  if (chart.key === key) return chart.sums;
  const n = data.chart.times.length;
  const planes = data.planes.map(() => null);
  const usage = new Float64Array(n), beyond = new Float64Array(n), stacked = new Float64Array(n);
  for (const row of data.chart.rows) {
    if (!rowChosen(row)) continue;
    if (state.gpu !== -1) row.usage.forEach((v, t) => { usage[t] += v; });
    if (state.gpu !== -1) row.beyond?.forEach((v, t) => { beyond[t] += v; });
    row.planes.forEach((list, i) => {
      if (!list.length || !state.planes.has(i) || isApart(i) !== (state.gpu === -1)) return;
      const sum = planes[i] || (planes[i] = new Float64Array(n));
      list.forEach((v, t) => {
        sum[t] += v;
        stacked[t] += v;
      });
    });
  }
  let top = 0;
  for (let t = 0; t < n; t++) top = Math.max(top, usage[t], stacked[t]);
  chart.key = key;
  chart.sums = { planes, usage, beyond, top, hasUsage: usage.some((v) => v > 0) };
  return chart.sums;
}

const chartEnd = () => Math.max(data.chart.times[data.chart.times.length - 1], 1);
const chartStart = () => Math.min(data.chart.times[0], chartEnd() - 1);
const plotWidth = () => Math.max(chart.width - chart.left - chart.right, 10);
const xOfTime = (time) => chart.left + plotWidth() * (time - chartStart()) / (chartEnd() - chartStart());
const timeOfX = (x) => chartStart() + (chartEnd() - chartStart()) * (x - chart.left) / plotWidth();

function drawChart() {
  if (!data.chart) return;
  chart.width = byId("chart").clientWidth;
  const sums = chartSums();
  const pen = sharp(byId("chart-canvas"), chart.width, chart.height);
  pen.clearRect(0, 0, chart.width, chart.height);
  pen.font = "11px system-ui, sans-serif";
  const floor = chart.height - chart.bottom, room = floor - chart.top;
  const step = byteStep(sums.top);
  const top = Math.max(step, Math.ceil(sums.top / step) * step);
  const y = (bytes) => floor - room * bytes / top;
  drawGrid(pen, step, top, y);
  const base = new Float64Array(data.chart.times.length);
  sums.planes.forEach((list, i) => {
    if (list) drawArea(pen, list, base, y, color("plane-" + data.planes[i]), data.planes[i] === "unexplained");
  });
  if (sums.hasUsage) drawUsage(pen, sums.usage, y);
  drawMarks(pen, floor);
  placeRange();
}

// byteStep is a power of two that divides the axis into four to eight.
const byteStep = (top) => 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(top, 8) / 6)));

// timeStep returns a step that divides so many ns into at most n.
function timeStep(span, n) {
  const steps = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800];
  return 1e9 * (steps.find((s) => span / 1e9 / s <= n) || span / 1e9);
}

function drawGrid(pen, step, top, y) {
  pen.fillStyle = color("soft");
  pen.strokeStyle = color("line");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (let v = 0; v <= top; v += step) {
    const at = Math.round(y(v)) + 0.5;
    pen.beginPath();
    pen.moveTo(chart.left, at);
    pen.lineTo(chart.width - chart.right, at);
    pen.stroke();
    pen.fillText(bytesText(v).replace(/\.0+ /, " "), chart.left - 8, at);
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  const each = timeStep(chartEnd() - chartStart(), Math.max(2, plotWidth() / 90));
  const off = data.live ? (beginOfDay() * 1e6) % each : 0; // full minutes of the day
  for (let t = Math.ceil((chartStart() + off) / each) * each - off; t <= chartEnd(); t += each) {
    const x = Math.round(xOfTime(t)) + 0.5;
    pen.fillText(whenText(t), Math.min(Math.max(x, chart.left + 8), chart.width - 24), chart.height - chart.bottom + 7);
    pen.beginPath();
    pen.moveTo(x, chart.height - chart.bottom);
    pen.lineTo(x, chart.height - chart.bottom + 4);
    pen.stroke();
  }
}

// steps draws a list of values, each of which holds until the next.
function steps(line, list, y, begin, first = 0) {
  const times = data.chart.times;
  for (let t = first; t < times.length; t++) {
    const x = xOfTime(times[t]);
    if (t === first) line[begin](x, y(list[t]));
    else line.lineTo(x, y(list[t - 1]));
    line.lineTo(x, y(list[t]));
  }
}

// drawArea draws a plane above the ones before it, and adds it to base. Negative values have no
// height.
function drawArea(pen, list, base, y, fill, hatched) {
  const upper = base.map((v, t) => v + list[t]);
  const times = data.chart.times;
  const shape = new Path2D();
  steps(shape, upper, y, "moveTo");
  for (let t = times.length - 1; t >= 0; t--) {
    const x = xOfTime(times[t]);
    shape.lineTo(x, y(base[t]));
    if (t > 0) shape.lineTo(x, y(base[t - 1]));
  }
  shape.closePath();
  pen.fillStyle = fill;
  pen.fill(shape);
  if (hatched) {
    pen.save();
    pen.clip(shape);
    pen.strokeStyle = color("page");
    pen.lineWidth = 1;
    pen.beginPath();
    for (let x = chart.left - chart.height; x < chart.width; x += 6) {
      pen.moveTo(x, chart.height);
      pen.lineTo(x + chart.height, 0);
    }
    pen.stroke();
    pen.restore();
  }
  pen.strokeStyle = color("page");
  pen.lineWidth = 0.75;
  const edge = new Path2D();
  steps(edge, upper, y, "moveTo");
  pen.stroke(edge);
  base.set(upper);
}

function drawUsage(pen, usage, y) {
  const line = new Path2D();
  steps(line, usage, y, "moveTo", Math.max(usage.findIndex((v) => v > 0), 0)); // before that NVML was not read
  pen.strokeStyle = color("page");
  pen.lineWidth = 4;
  pen.stroke(line);
  pen.strokeStyle = color("text");
  pen.lineWidth = 1.75;
  pen.stroke(line);
}

const markChosen = (m) => processChosen(m.process) && (state.gpu < 0 || m.gpu === state.gpu);

function drawMarks(pen, floor) {
  pen.textAlign = "center";
  pen.textBaseline = "top";
  let free = -Infinity; // where the last label ends
  for (const m of data.chart.marks) {
    if (!markChosen(m)) continue;
    const x = Math.round(xOfTime(m.time)) + 0.5;
    if (m.kind === markKinds.oom) {
      pen.strokeStyle = pen.fillStyle = color("alarm");
      pen.lineWidth = 1.5;
      pen.setLineDash([4, 3]);
      pen.beginPath();
      pen.moveTo(x, chart.top - 4);
      pen.lineTo(x, floor);
      pen.stroke();
      pen.setLineDash([]);
      if (x > free) {
        pen.font = "bold 11px system-ui, sans-serif";
        pen.fillText("OOM", Math.min(x, chart.width - 16), 2);
        free = x + 34;
      }
    } else if (m.kind === markKinds.large) {
      pen.fillStyle = color("soft");
      pen.beginPath();
      pen.moveTo(x - 4, chart.top - 7);
      pen.lineTo(x + 4, chart.top - 7);
      pen.lineTo(x, chart.top - 1);
      pen.fill();
    }
  }
}

// chartTip fills the box beside the pointer with the figures of a moment.
function chartTip(time) {
  const sums = chartSums(), times = data.chart.times;
  let t = times.findLastIndex((v) => v <= time);
  t = Math.max(t, 0);
  const rows = [element("strong", {}, afterText(times[t]))];
  const row = (swatch, name, text) => rows.push(element("span", { class: "row" }, element("i", { class: "swatch " + swatch }), element("span", {}, name), element("b", {}, text)));
  for (let i = data.planes.length - 1; i >= 0; i--) {
    const list = sums.planes[i];
    if (list && list[t] !== 0) row("bg-" + data.planes[i], planeNames[data.planes[i]], bytesText(list[t]));
  }
  if (sums.hasUsage) row("bg-usage", "NVML says", bytesText(sums.usage[t]));
  if (sums.beyond[t] > 0) row("", beyondName, bytesText(sums.beyond[t]));
  const close = (chartEnd() - chartStart()) * 5 / plotWidth();
  for (const m of data.chart.marks.filter((m) => markChosen(m) && m.kind <= markKinds.large && Math.abs(m.time - time) < close).slice(0, 3)) {
    rows.push(element("span", { class: m.kind === markKinds.oom ? "alarm-text" : "" }, markText(m)));
  }
  return rows;
}

function markText(m) {
  const size = m.size >= 0 ? bytesText(m.size) : "an unknown size";
  switch (m.kind) {
    case markKinds.oom: return "Out of memory: wanted " + size;
    case markKinds.large: return "Large allocation: " + size;
    case markKinds.began: return "Process first seen";
  }
  return "Process ended";
}

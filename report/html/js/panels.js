// SPDX-License-Identifier: Apache-2.0
// panels.js: heading, filters, reconciliation and notes around the graph.

function fillHead() {
  document.title = data.title;
  byId("title").textContent = data.title;
  const ended = data.processes.filter((p) => p.ended).length;
  byId("subtitle").textContent = plural(data.processes.length, "process").replace("processs", "processes") + (ended ? ` (${ended} ended)` : "") +
    (data.host ? " on " + data.host : "") + `, traced ${data.traced} until ${data.until}`;
  const nothing = data.processes.length === 0;
  document.body.classList.toggle("nothing", nothing);
  byId("nothing").hidden = !nothing;
  byId("nothing").textContent = data.live && !data.live.past ? "No process uses CUDA yet. The first one appears here within seconds." : "No process used CUDA while it was traced.";
  byId("gpus").replaceChildren(...data.gpus.filter((g) => g.total).map((g) => {
    const bar = element("span", { class: "bar" }, element("span", {}));
    bar.firstChild.style.width = Math.min(100, 100 * (g.used || 0) / g.total) + "%";
    return element("div", { class: "gpu", role: "listitem", title: g.model },
      element("span", {}, element("b", {}, g.name), " ", element("span", { class: "soft" }, g.short)), bar,
      element("span", { class: "soft" }, `${bytesText(g.used || 0)} of ${bytesText(g.total)}${data.live ? "" : " at the end"}`));
  }));
  const box = byId("warnings");
  box.hidden = data.warnings.length === 0;
  box.querySelector("summary").textContent = plural(data.warnings.length, "warning");
  if (!box.dataset.filled) box.open = data.warnings.length <= 2; // then the reader decides
  box.dataset.filled = true;
  fillList(box.querySelector("ul"), data.warnings);
}

// fillFindings shows what GPUs are used for and what of it grows, the leaking lines, largest first, and the advice.
const maxFindings = 5;
function fillFindings() {
  const d = data.entries, lines = new Map(), growing = new Set();
  for (let e = 0; e < book.entries; e++) {
    if (!data.verdicts) continue;
    const job = data.processes[d.process[e]].job;
    const key = (job ? [d.head[e], "job", job] : [d.head[e], d.process[e], d.gpu[e], d.verdict[e]]).join();
    if (verdictClass(e) === "growing") growing.add(key);
    if (!isLeak(e)) continue;
    const line = lines.get(key) || { e, bytes: 0, processes: new Set() };
    line.bytes += d.live[e];
    line.processes.add(d.process[e]);
    lines.set(key, line);
  }
  const list = [...lines.values()].sort((a, b) => b.bytes - a.bytes || a.e - b.e);
  byId("findings").hidden = list.length + data.advice.length + data.balance.length === 0;
  const none = !data.verdicts ? "Advice" : growing.size ? "No line leaks for certain; growing: " + plural(growing.size, "line") : "No line leaks";
  byId("findings-head").textContent = list.length === 0 ? none : list.length === 1 ? "1 line leaks" : countText(list.length) + " lines leak";
  if (data.judged) byId("findings-head").append(" ", element("span", { class: "soft" }, "judged at " + clockText(data.judged)));
  byId("findings").classList.toggle("leaks", list.length > 0);
  const several = list.some((line) => line.processes.size > 1 || d.process[line.e] !== d.process[list[0].e]);
  const rows = list.slice(0, maxFindings).map((line) => element("li", {}, element("b", {}, bytesText(line.bytes)), siteButton(line.e),
    several ? element("span", { class: "soft" }, whoseText(line)) : null, element("span", { class: "soft" }, verdictText(line.e))));
  if (list.length > maxFindings) rows.push(element("li", {}, element("button", { type: "button", class: "link", onclick: () => setMetric("leak") }, "all of them")));
  byId("findings").querySelector("#findings > ul").replaceChildren(...balanceRows(), ...rows, ...data.advice.map((text) => element("li", { class: "advice" }, "→ " + text)));
}

// whoseText names the process of a line that leaks, or counts those of its job, of which the first has the verdict.
function whoseText(line) {
  const { name, job } = data.processes[data.entries.process[line.e]];
  if (line.processes.size < 2) return name;
  return `${line.processes.size} of ${data.processes.filter((p) => p.job === job).length} processes, such as ${name}:`;
}

// balanceRows shows the two GPUs that fill first, and the others on demand.
const maxBalances = 2;
function balanceRows() {
  const below = (text) => text.startsWith(" "), row = (text) => element("li", { class: below(text) ? "balance below" : "balance" }, text.trim());
  const starts = [...data.balance.keys()].filter((i) => !below(data.balance[i]));
  if (starts.length <= maxBalances + 1) return data.balance.map(row);
  const cut = starts[maxBalances], open = byId("findings").querySelector("details")?.open;
  return [...data.balance.slice(0, cut).map(row), element("li", {}, element("details", { open }, element("summary", {}, plural(starts.length - maxBalances, "more GPU")), element("ul", {}, ...data.balance.slice(cut).map(row))))];
}

function fillList(list, texts) {
  list.replaceChildren(...texts.map((text) => element("li", {}, text)));
}

function fillFilters() {
  byId("fold").parentElement.hidden = data.before === 0;
  fillProcesses();
  const gpus = [element("option", { value: -2 }, "all GPUs"), ...data.gpus.map((g, i) => element("option", { value: i }, gpuText(i)))];
  if (book.apart.length) gpus.push(element("option", { value: -1 }, "apart: " + book.apart.join(", ")));
  byId("gpu").replaceChildren(...gpus);
  const used = new Set(data.entries.plane);
  byId("planes").replaceChildren(...data.planes.map((plane, i) => (used.has(i)
    ? element("button", { type: "button", class: "chip", "data-plane": i, onclick: () => togglePlane(i) }, element("i", { class: "swatch bg-" + plane }), planeNames[plane])
    : null)).filter(Boolean));
  if (data.chart?.rows.some((r) => r.usage.length)) {
    byId("planes").append(element("span", { class: "chip key" }, element("i", { class: "swatch bg-usage" }), "NVML"));
  }
  byId("metrics").replaceChildren(...metrics.filter(([key]) => data.chart || !needsChart(key)).map(([key, name, about]) =>
    element("button", { type: "button", "data-metric": key, title: about, onclick: () => setMetric(key) }, name)));
}

// fillProcesses lists pods and jobs with several processes, and processes.
function fillProcesses() {
  const list = byId("process"), options = data.processes.map((p, i) => element("option", { value: i }, p.name + (p.ended ? ", ended" : "")));
  book.choices = [...new Set(book.groups)].filter(Boolean);
  const groups = book.choices.map((name, i) => element("option", { value: "group" + i }, name + ": " + plural(book.groups.filter((g) => g === name).length, "process").replace("processs", "processes")));
  const text = [...groups, ...options].map((o) => o.value + o.textContent).join("\n");
  if (list.dataset.filled === text) return; // an open list stays open
  list.dataset.filled = text;
  list.replaceChildren(element("option", { value: -1 }, "all"), ...(groups.length ? [element("optgroup", { label: "Pods and jobs" }, ...groups), element("optgroup", { label: "Processes" }, ...options)] : options));
}

// showOpening shows that the session has ended, and the moment that the page opened with.
function showOpening() {
  const opening = data.opening, box = byId("opening"), last = book.moments - 1;
  box.hidden = !opening;
  if (!opening) return;
  const at = afterText(book.times[opening.moment]), isThat = (state.metric === "use" || state.metric === "peak") && state.to === opening.moment;
  const go = (m, text) => element("button", { type: "button", class: "link", onclick: () => setRange(m, m) }, text);
  box.replaceChildren(opening.text + (isThat ? `. Shown is what was held at ${opening.what}, ${at}. ` : ". "), isThat ? go(last, "Show what was left") : go(opening.moment, `Show what was held at ${opening.what}, ${at}`));
}

function togglePlane(i) {
  const planes = new Set(state.planes);
  if (!planes.delete(i)) planes.add(i);
  filter({ planes });
}

function showFilters() {
  byId("process").value = state.group ? "group" + book.choices.indexOf(state.group) : state.process;
  byId("gpu").value = state.gpu;
  for (const b of byId("planes").querySelectorAll("button")) b.setAttribute("aria-pressed", state.planes.has(Number(b.dataset.plane)));
  for (const b of byId("metrics").children) b.setAttribute("aria-pressed", b.dataset.metric === state.metric);
  byId("at-peak").setAttribute("aria-pressed", state.metric === "peak");
  byId("at-end").setAttribute("aria-pressed", state.metric === "use" && state.to === book.moments - 1);
  byId("at-all").setAttribute("aria-pressed", state.metric === "growth" && state.from === 0 && state.to === book.moments - 1);
  byId("hide").checked = state.hide;
  byId("fold").checked = state.fold;
}

// showSum shows the sum of the graph's bytes, and the bytes that it cannot draw.
function showSum() {
  const about = metrics.find(([key]) => key === state.metric)[2];
  const end = state.to === book.moments - 1, parts = [element("b", {}, state.metric === "growth" ? signedText(sites.total) : bytesText(sites.total)), " "];
  if (state.metric === "growth") {
    parts.push(`from ${whenText(book.times[state.from])} to ${whenText(book.times[state.to])}: ${bytesText(sites.tree.sum[0])} more, ${bytesText(sites.less)} less. The graph shows what grew.`);
  } else {
    const word = state.gpu === -1 ? "in no GPU's sum" : "in use";
    parts.push(state.metric === "use" && (!data.chart || end) ? word + " " + endText() :
      state.metric === "use" ? word + " " + afterText(book.times[state.to]) :
      state.metric === "peak" ? word + " at the peak, " + afterText(book.times[state.to]) :
      state.metric === "leak" && data.verdicts ? `live ${endText()} of sites that are found leaking` : about);
    if (folds(sites.tree)) parts.push(`, ${bytesText(sites.tree.sum[sites.tree.before])} of that ${beforeText()}`);
    if (sites.less > 0) parts.push(`; ${bytesText(-sites.less)} of that cannot be drawn`);
  }
  byId("sum").replaceChildren(...parts);
}

// fillLegend names the colors of a graph's frames.
function fillLegend(g, names) {
  if (g.legend === g.tree) return;
  g.legend = g.tree;
  const used = new Set(g.tree.frame.subarray(0, g.tree.size).map((frame) => book.classes[frame]));
  part(g, "legend").replaceChildren(...names.map((name, i) => (used.has(i)
    ? element("li", {}, element("i", { class: "swatch bg-box-" + boxClasses[i] }), name) : null)).filter(Boolean));
}

// partsShown returns the reconciliation at the moment that is shown, and words for it. The end is
// known in more detail.
function partsShown() {
  const shown = state.metric === "use" || state.metric === "peak" || state.metric === "growth";
  if (!data.chart || !shown || state.to === book.moments - 1) {
    return { ...data.parts, when: endText(), past: data.live?.past };
  }
  const at = data.chart.grid[state.to], onGPU = data.planes.map((_, i) => i).filter((i) => !isApart(data.planes[i]) && planeNames[data.planes[i]]);
  const rows = data.chart.rows.filter((r) => r.usage[at] > 0).map((r) => (
    { process: r.process, gpu: r.gpu, lines: onGPU.map((i) => r.planes[i][at] || 0), usage: r.usage[at], beyond: r.beyond?.[at] }));
  return { names: onGPU.map((i) => planeNames[data.planes[i]].replace(/^[A-Z](?=[a-z]+( |$))/, (c) => c.toLowerCase())), rows, planes: onGPU.map((i) => data.planes[i]), when: afterText(book.times[state.to]), past: true };
}

// showParts shows the reconciliation: in each row, NVML's figure is the sum of the parts before it.
function showParts() {
  const { names, rows, planes: planeOfPart, when, past } = partsShown();
  byId("no-parts").hidden = rows.length > 0;
  byId("parts").hidden = rows.length === 0;
  byId("parts-head").textContent = `Where the GPU's bytes ${past ? "were" : "are"} ${when}, as the driver counts them`;
  if (!rows.length) return;
  const used = names.map((_, i) => i).filter((i) => i === names.length - 1 || rows.some((r) => r.lines[i] !== 0));
  const cell = (text, name) => element("td", { class: "number " + (name || "") }, text);
  const amount = (i, n) => (n === 0 && i < names.length - 1 ? "–" : bytesText(n));
  byId("parts").querySelector("thead").replaceChildren(element("tr", {}, element("th", { scope: "col" }, "Process"), element("th", { scope: "col" }, "GPU"),
    element("th", { scope: "col", class: "bar-cell" }, element("span", { class: "unseen" }, "Shares")),
    ...used.map((i) => element("th", { scope: "col", class: "number" }, element("i", { class: "swatch bg-" + planeOfPart[i] }), names[i])), element("th", { scope: "col", class: "number" }, "= NVML")));
  const most = Math.max(...rows.map((r) => r.usage), 1);
  const sum = (usage, beyond) => {
    const td = cell(bytesText(usage), "sum");
    if (beyond) td.append(element("small", { class: "soft" }, " " + beyondText(beyond)));
    return td;
  };
  const body = rows.map((r) => {
    const bar = element("div", { class: "stack-bar", "aria-hidden": "true" });
    used.forEach((i) => {
      if (r.lines[i] <= 0) return;
      const piece = element("span", { class: "bg-" + planeOfPart[i] });
      piece.style.width = 100 * r.lines[i] / most + "%";
      bar.append(piece);
    });
    return element("tr", {}, element("th", { scope: "row" }, data.processes[r.process].name), element("td", {}, gpuText(r.gpu)), element("td", { class: "bar-cell" }, bar),
      ...used.map((i) => {
        const td = cell(amount(i, r.lines[i]));
        if (r.idle && planeOfPart[i] === "rounding") td.append(element("small", { class: "soft" }, ` up to ${bytesText(r.idle)} idle in pools`));
        return td;
      }), sum(r.usage, r.beyond));
  });
  if (rows.length > 1) {
    body.push(element("tr", { class: "total" }, element("th", { scope: "row", colspan: 3 }, "all"),
      ...used.map((i) => cell(amount(i, rows.reduce((n, r) => n + r.lines[i], 0)))), sum(rows.reduce((n, r) => n + r.usage, 0), rows.reduce((n, r) => n + (r.beyond || 0), 0))));
  }
  byId("parts").querySelector("tbody").replaceChildren(...body);
}

function fillNotes() {
  byId("processes").querySelector("tbody").replaceChildren(...data.processes.map((p) => element("tr", {}, element("th", { scope: "row" }, p.name),
    element("td", {}, p.begin > 0 ? whenText(p.begin) : "the beginning"), element("td", {}, p.ended ? "ended" : "running"), element("td", {}, p.about || ""))));
  for (const [id, texts] of [["doubts", data.doubts], ["remarks", data.remarks]]) {
    byId(id).previousElementSibling.hidden = byId(id).hidden = texts.length === 0;
    fillList(byId(id), texts);
  }
}

function fillEvents() {
  byId("chart-section").hidden = !data.chart;
  if (!data.chart) return;
  const marks = data.chart.marks, box = byId("events");
  box.hidden = marks.length === 0;
  const errors = marks.filter((m) => m.kind === markKinds.oom).length;
  box.querySelector("summary").textContent = plural(marks.length, "event") + (errors ? `, ${errors} out of memory` : "");
  if (!box.dataset.filled) box.open = errors > 0 && marks.length <= 8;
  box.dataset.filled = true;
  box.querySelector("tbody").replaceChildren(...marks.map((m) => element("tr", { class: m.kind === markKinds.oom ? "alarm-text" : null },
    element("td", {}, element("button", { type: "button", class: "link", onclick: () => { const at = nearest(m.time); setRange(at, at); } }, whenText(m.time))),
    element("td", {}, markText(m).replace(/:.*/, "")), element("td", {}, data.processes[m.process].name),
    element("td", { class: "number" }, m.kind > markKinds.large ? "" : m.size < 0 ? "unknown" : bytesText(m.size)),
    element("td", {}, m.head ? frameWords(m.head) : ""))));
}

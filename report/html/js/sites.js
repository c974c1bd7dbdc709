// SPDX-License-Identifier: Apache-2.0
// sites.js: the table of sites, one row for each line of code, and the selected site.

// lineOf returns the entries of the row of an entry, most bytes first.
const lineOf = (e) => sites.lines?.get(data.entries.row[e]) || [e];

// linesOf makes rows of entries, and returns the first of each.
function linesOf(list) {
  const lines = sites.lines = new Map();
  for (const e of list) {
    const row = data.entries.row[e];
    if (lines.has(row)) lines.get(row).push(e);
    else lines.set(row, [e]);
  }
  return [...lines.values()].map((line) => line.sort((a, b) => sites.bytes[b] - sites.bytes[a] || a - b)[0]);
}

const lineBytes = (e) => lineOf(e).reduce((sum, x) => sum + sites.bytes[x], 0);
const lineAt = (e, m) => lineOf(e).reduce((sum, x) => sum + levelAt(x, m), 0);

// lineObjects returns null if the count of one is unknown.
const lineObjects = (e) => lineOf(e).reduce((sum, x) => (sum === null || objectsOf(x) === null ? null : sum + objectsOf(x)), 0);

// Columns of the table: key, heading, value to sort by, whether it is a number, the cell.
const siteColumns = [
  ["bytes", "Bytes", (e) => lineBytes(e), true, (e) => bytesText(lineBytes(e))],
  ["share", "Share", (e) => lineBytes(e), true, (e) => shareText(lineBytes(e), sites.tree.sum[0])],
  ["objects", "Objects", (e) => lineObjects(e) ?? -1, true, (e) => {
    const n = lineObjects(e);
    return n === null || n === 0 && !data.entries.kind[e] ? "–" : countText(n);
  }],
  ["head", "Site", (e) => book.names[data.entries.head[e]], false, (e) => siteButton(e)],
  ["history", "Over time", (e) => (book.start ? lineAt(e, book.moments - 1) - lineAt(e, 0) : 0), true, (e) => sparkline(e)],
  ["plane", "Plane", (e) => data.entries.plane[e], false, (e) => planeChip(data.entries.plane[e])],
  ["process", "Process", (e) => data.entries.process[e], false, (e) => data.processes[data.entries.process[e]].name],
  ["gpu", "GPU", (e) => data.entries.gpu[e], false, (e) => gpuText(data.entries.gpu[e])],
  ["verdict", "Verdict", (e) => verdictClass(e) + verdictText(e), false, (e) => verdictChip(e)],
];

sites.table = {
  id: "sites", lines: linesOf, line: lineOf, select, selected: () => state.entry, folded: (e) => folds(sites.tree) && isBefore(e),
  columns: () => siteColumns.filter(([key]) => (key !== "verdict" || data.verdicts) && (key !== "history" || data.chart)),
};

function siteButton(e) {
  const frame = data.entries.head[e];
  return element("button", { type: "button", class: "link site", "aria-pressed": String(lineOf(e).includes(state.entry)), onclick: (event) => {
    event.stopPropagation();
    select(e);
  } }, incompleteSign(e), element("span", { class: "name", title: book.fullNames[frame] }, book.names[frame]), book.places[frame] || aboutText(e) ? placeOf(book.places[frame], aboutText(e)) : null);
}

// placeOf shows "/src/train.py:25, in GELU.forward" as "train.py:25, in GELU.forward": where there is too little room,
// not the line number is cut.
function placeOf(place, about) {
  const at = place.search(/:[0-9]+$/), end = at < 0 ? place.length : at, begin = at < 0 ? 0 : place.lastIndexOf("/", at) + 1;
  return element("span", { class: "soft place", title: place + about }, element("span", { class: "cut" }, place.slice(begin, end)), element("span", {}, place.slice(end)),
    about ? element("span", { class: "cut" }, about) : null);
}

// aboutText returns ", in GELU.forward, Linear.forward", by which the stacks of a row differ, and ", of model.blocks.*.mlp".
function aboutText(e) {
  const row = data.entries.row[e], calls = data.strings[data.entries.calls[row]], module = data.strings[data.entries.module[row]];
  return (calls && lineOf(e).length > 1 ? ", in " + calls : "") + (module ? ", of " + module : "");
}

// incompleteSign precedes a site whose figures or stack are incomplete.
function incompleteSign(e) {
  const text = data.strings[data.entries.incomplete[e]];
  return text ? element("span", { class: "incomplete", title: "incomplete: " + text }, "incomplete ") : "";
}

const planeChip = (plane) => element("span", { class: "chip" }, element("i", { class: "swatch bg-" + data.planes[plane] }), planeNames[data.planes[plane]]);

function verdictChip(e) {
  const name = verdictClass(e);
  if (!name) return "";
  const text = [name, verdictText(e)].filter(Boolean).join(": ");
  return element("span", { class: "verdict v-" + name, title: text }, text);
}

// sparkline draws what the sites of a row held over the session.
function sparkline(e) {
  const width = 84, height = 20;
  const steps = new Set();
  for (const x of lineOf(e)) for (let k = book.start[x]; k < book.start[x + 1]; k++) steps.add(book.step[k]);
  const levels = [...steps].sort((a, b) => a - b).map((m) => [m, lineAt(e, m)]);
  const top = Math.max(0, ...levels.map(([, level]) => level));
  if (top === 0) return "";
  const first = book.times[0], length = Math.max(book.times[book.moments - 1] - first, 1);
  const x = (m) => (width * (book.times[m] - first) / length).toFixed(1), y = (v) => (height - 1 - (height - 3) * Math.max(v, 0) / top).toFixed(1);
  let path = `M0 ${y(0)}`;
  for (const [m, level] of levels) path += `H${x(m)}V${y(level)}`;
  path += `H${width}`;
  return drawing("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    drawing("path", { class: "fill", d: path + `V${height}H0Z` }), drawing("path", { class: "stroke", d: path }));
}

// stackRows lists a stack's frames. While library frames are hidden, a run of them is one row, which
// a click unfolds.
const openRuns = new Set(); // by their first frame
function stackRows(path, own) {
  const rows = [], hidden = (i) => i < path.length && i !== own && state.hide && isLibrary(book.classes[path[i]]);
  for (let i = 0; i < path.length;) {
    let n = 0;
    while (hidden(i + n)) n++;
    if (n > 1 && !openRuns.has(i)) {
      rows.push(runRow(i, n));
      i += n;
      continue;
    }
    for (const end = i + Math.max(n, 1); i < end; i++) {
      rows.push(element("li", { value: i + 1, class: (i === own ? "own " : "") + "f-" + boxClasses[book.classes[path[i]]] },
        element("span", { class: "name" }, book.fullNames[path[i]]), " ", element("span", { class: "soft" }, book.places[path[i]])));
    }
  }
  return rows;
}

const runRow = (first, n) => element("li", { value: first + 1, class: "run" }, element("button", { type: "button", class: "link", onclick: () => {
  openRuns.add(first);
  change({});
} }, n + " library frames"));

// showSelected shows the selected site's whole stack and its figures, and scrolls to it if it is
// new.
let shownEntry = -1;
function showSelected() {
  const e = state.entry, box = byId("selected"), isNew = e !== shownEntry;
  shownEntry = e;
  box.hidden = e < 0;
  if (e < 0) return;
  const d = data.entries, head = d.head[e];
  byId("selected-head").textContent = book.names[head];
  const facts = [
    ["Bytes", bytesText(sites.bytes[e]) + (sites.bytes[e] > 0 ? ", " + shareText(sites.bytes[e], sites.tree.sum[0]) : "")],
    [{ now: "Now", then: "Then" }[endText()] || "At the end", bytesText(d.live[e]) + (d.objects[e] ? " in " + plural(d.objects[e], data.planes[d.plane[e]] === "tensor" ? "tensor" : "allocation") : "")],
    ["Allocated", d.alloc[e] ? bytesText(d.alloc[e]) + " in " + countText(d.allocObjects[e]) + " calls" : null],
    ["Oldest", d.age[e] >= 0 ? spanText(d.age[e]) + " old" : null],
    ["Plane", planeNames[data.planes[d.plane[e]]]],
    ["Kind", data.strings[d.kind[e]]],
    ["Call", data.strings[d.api[e]] === "torch" ? "PyTorch's allocator" : data.strings[d.api[e]]],
    ["Incomplete", data.strings[d.incomplete[e]]],
    ["Process", data.processes[d.process[e]].name],
    ["GPU", gpuText(d.gpu[e])],
  ];
  const line = lineOf(e), at = line.indexOf(e);
  if (line.length > 1 && at >= 0) {
    facts.push(["Stack", element("span", {}, `${at + 1} of ${line.length} `, element("button", { type: "button", class: "link", id: "selected-next", onclick: () => select(line[(at + 1) % line.length]) }, "next"))]);
  }
  fillFacts(byId("selected-facts"), facts);
  showKeepersOf(e);
  const verdict = byId("selected-verdict");
  verdict.hidden = !verdictClass(e);
  verdict.replaceChildren(verdictChip(e));
  const path = pathTo(book.full, d.node[e]).slice(1).map((node) => book.full.frame[node]);
  if (isNew) openRuns.clear();
  byId("selected-stack").replaceChildren(...stackRows(path, path.lastIndexOf(head)));
  if (isNew) box.scrollIntoView({ block: "nearest" });
}

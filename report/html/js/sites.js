// SPDX-License-Identifier: Apache-2.0
// sites.js: the table of sites, and the selected site.

// Columns of the table: key, heading, value to sort by, whether it is a number, the cell.
const siteColumns = [
  ["bytes", "Bytes", (e) => sites.bytes[e], true, (e) => bytesText(sites.bytes[e])],
  ["share", "Share", (e) => sites.bytes[e], true, (e) => shareText(sites.bytes[e], sites.tree.sum[0])],
  ["objects", "Objects", (e) => objectsOf(e) ?? -1, true, (e) => {
    const n = objectsOf(e);
    return n === null || n === 0 && !data.entries.kind[e] ? "–" : countText(n);
  }],
  ["head", "Site", (e) => book.names[data.entries.head[e]], false, (e) => siteButton(e)],
  ["history", "Over time", (e) => (book.start ? levelAt(e, book.moments - 1) - levelAt(e, 0) : 0), true, (e) => sparkline(e)],
  ["plane", "Plane", (e) => data.entries.plane[e], false, (e) => planeChip(data.entries.plane[e])],
  ["process", "Process", (e) => data.entries.process[e], false, (e) => data.processes[data.entries.process[e]].name],
  ["gpu", "GPU", (e) => data.entries.gpu[e], false, (e) => gpuText(data.entries.gpu[e])],
  ["verdict", "Verdict", (e) => verdictClass(e) + verdictText(e), false, (e) => verdictChip(e)],
];

sites.table = {
  id: "sites", select, selected: () => state.entry, folded: (e) => folds(sites.tree) && isBefore(e),
  columns: () => siteColumns.filter(([key]) => (key !== "verdict" || data.verdicts) && (key !== "history" || data.chart)),
};

function siteButton(e) {
  const frame = data.entries.head[e];
  return element("button", { type: "button", class: "link site", "aria-pressed": String(state.entry === e), onclick: (event) => {
    event.stopPropagation();
    select(e);
  } }, incompleteSign(e), element("span", { class: "name", title: book.fullNames[frame] }, book.names[frame]), element("span", { class: "soft place" }, book.places[frame]));
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

// sparkline draws what a site held over the session.
function sparkline(e) {
  const width = 84, height = 20;
  let top = 0;
  for (let k = book.start[e]; k < book.start[e + 1]; k++) top = Math.max(top, book.level[k]);
  if (top === 0) return "";
  const first = book.times[0], length = Math.max(book.times[book.moments - 1] - first, 1);
  const x = (m) => (width * (book.times[m] - first) / length).toFixed(1), y = (v) => (height - 1 - (height - 3) * Math.max(v, 0) / top).toFixed(1);
  let path = `M0 ${y(0)}`;
  for (let k = book.start[e]; k < book.start[e + 1]; k++) path += `H${x(book.step[k])}V${y(book.level[k])}`;
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
    ["Call", data.strings[d.api[e]]],
    ["Incomplete", data.strings[d.incomplete[e]]],
    ["Process", data.processes[d.process[e]].name],
    ["GPU", gpuText(d.gpu[e])],
  ];
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

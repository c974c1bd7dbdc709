// SPDX-License-Identifier: Apache-2.0
// table.js: the table of sites, and the selected site.

const pageRows = 25;

// Columns of the table: key, heading, value to sort by, whether it is a number.
const siteColumns = [
  ["bytes", "Bytes", (e) => sites.bytes[e], true],
  ["share", "Share", (e) => sites.bytes[e], true],
  ["objects", "Objects", (e) => objectsOf(e) ?? -1, true],
  ["head", "Site", (e) => book.names[data.entries.head[e]], false],
  ["history", "Over time", (e) => (book.start ? levelAt(e, book.moments - 1) - levelAt(e, 0) : 0), true],
  ["plane", "Plane", (e) => data.entries.plane[e], false],
  ["process", "Process", (e) => data.entries.process[e], false],
  ["gpu", "GPU", (e) => data.entries.gpu[e], false],
  ["verdict", "Verdict", (e) => verdictClass(e) + verdictText(e), false],
];

const shownColumns = () => siteColumns.filter(([key]) => (key !== "verdict" || data.verdicts) && (key !== "history" || data.chart));

// sitesShown returns the entries with bytes, in order; during a search, the matching ones.
function sitesShown() {
  const t = sites.tree, list = [];
  for (let e = 0; e < book.entries; e++) {
    if (sites.bytes[e] !== 0 && (!sites.searching || t.hit[t.at[e]])) list.push(e);
  }
  const [, , of, number] = siteColumns.find(([key]) => key === sites.sort), sign = sites.down ? -1 : 1;
  if (number) {
    const value = new Float64Array(book.entries);
    for (const e of list) value[e] = of(e);
    return list.sort((a, b) => sign * (value[a] - value[b]) || a - b);
  }
  const value = new Map(list.map((e) => [e, of(e)]));
  return list.sort((a, b) => {
    const x = value.get(a), y = value.get(b);
    return sign * (x < y ? -1 : x > y ? 1 : 0) || sites.bytes[b] - sites.bytes[a] || a - b;
  });
}

function showSites() {
  const list = sitesShown();
  const pages = Math.max(1, Math.ceil(list.length / pageRows));
  sites.page = Math.min(sites.page, pages - 1);
  const first = sites.page * pageRows, rows = list.slice(first, first + pageRows);
  byId("sites-count").textContent = list.length === 0 ? "none" : `${countText(first + 1)}–${countText(first + rows.length)} of ${countText(list.length)}`;
  byId("pages").hidden = pages < 2;
  byId("previous").disabled = sites.page === 0;
  byId("next").disabled = sites.page === pages - 1;
  const columns = shownColumns();
  byId("sites").querySelector("thead tr").replaceChildren(...columns.map(([key, name, , number]) => element("th", {
    scope: "col", class: (number ? "number " : "") + "c-" + key, "aria-sort": sites.sort === key ? (sites.down ? "descending" : "ascending") : null,
  }, element("button", { type: "button", onclick: () => sortBy(key, number) }, name))));
  byId("sites").querySelector("tbody").replaceChildren(...rows.map((e) => siteRow(e, columns)));
}

function sortBy(key, number) {
  look(sites, { sort: key, down: sites.sort === key ? !sites.down : number, page: 0 });
  requestAnimationFrame(() => { // the head was made anew: the keyboard stays where it was
    const i = shownColumns().findIndex(([k]) => k === key);
    byId("sites").querySelectorAll("thead button")[i]?.focus();
  });
}

function siteRow(e, columns) {
  const cells = {
    bytes: () => bytesText(sites.bytes[e]),
    share: () => shareText(sites.bytes[e], sites.tree.sum[0]),
    objects: () => { const n = objectsOf(e); return n === null || n === 0 && !data.entries.kind[e] ? "–" : countText(n); },
    head: () => siteButton(e),
    history: () => sparkline(e),
    plane: () => planeChip(data.entries.plane[e]),
    process: () => data.processes[data.entries.process[e]].name,
    gpu: () => gpuText(data.entries.gpu[e]),
    verdict: () => verdictChip(e),
  };
  const row = element("tr", { class: state.entry === e ? "selected" : null },
    ...columns.map(([key, , , number]) => element("td", { class: (number ? "number " : "") + "c-" + key }, cells[key]())));
  row.addEventListener("click", () => select(e));
  return row;
}

function siteButton(e) {
  const frame = data.entries.head[e];
  return element("button", { type: "button", class: "link site", "aria-pressed": String(state.entry === e), onclick: (event) => {
    event.stopPropagation();
    select(e);
  } }, incompleteSign(e), element("span", { class: "name" }, book.names[frame]), element("span", { class: "soft place" }, book.places[frame]));
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
    ["At the end", bytesText(d.live[e]) + (d.objects[e] ? " in " + plural(d.objects[e], data.planes[d.plane[e]] === "tensor" ? "tensor" : "allocation") : "")],
    ["Allocated", d.alloc[e] ? bytesText(d.alloc[e]) + " in " + countText(d.allocObjects[e]) + " calls" : null],
    ["Oldest", d.age[e] >= 0 ? spanText(d.age[e]) + " old" : null],
    ["Plane", planeNames[data.planes[d.plane[e]]]],
    ["Kind", data.strings[d.kind[e]]],
    ["Call", data.strings[d.api[e]]],
    ["Incomplete", data.strings[d.incomplete[e]]],
    ["Process", data.processes[d.process[e]].name],
    ["GPU", gpuText(d.gpu[e])],
  ];
  byId("selected-facts").replaceChildren(...facts.filter((f) => f[1]).map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text))));
  const verdict = byId("selected-verdict");
  verdict.hidden = !verdictClass(e);
  verdict.replaceChildren(verdictChip(e));
  const path = pathTo(book.full, d.node[e]).slice(1).map((node) => book.full.frame[node]);
  const own = path.lastIndexOf(head);
  byId("selected-stack").replaceChildren(...path.map((frame, i) => element("li", { class: (i === own ? "own " : "") + "f-" + boxClasses[book.classes[frame]] },
    element("span", { class: "name" }, book.names[frame]), " ", element("span", { class: "soft" }, book.places[frame]))));
  if (isNew) box.scrollIntoView({ block: "nearest" });
}

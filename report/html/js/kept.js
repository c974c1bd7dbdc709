// SPDX-License-Identifier: Apache-2.0
// kept.js: who keeps memory, as walks found it: the graph of holders' paths, and their table.

const keepers = newGraph("kept-", { above: "the step above", more: keeperTexts, zoomed: keeperZoomed });

const keeperColumns = [
  ["bytes", "Bytes", (k) => keepers.bytes[k], true, (k) => bytesText(keepers.bytes[k])],
  ["share", "Share", (k) => keepers.bytes[k], true, (k) => shareText(keepers.bytes[k], keepers.tree.sum[0])],
  ["objects", "Storages", (k) => data.kept.keepers.storages[k], true, (k) => (data.kept.keepers.storages[k] === 0 ? "–" : countText(data.kept.keepers.storages[k]))],
  ["head", "Holder", (k) => keeperName(k), false, (k) => keeperButton(k)],
  ["grown", "Grew", (k) => rateOf(k), true, (k) => (rateOf(k) === 0 ? "–" : rateText(rateOf(k)))],
  ["parts", "Before the attach", (k) => data.kept.keepers.older[k], true, (k) => (data.kept.keepers.older[k] ? bytesText(data.kept.keepers.older[k]) : "–")],
  ["process", "Process", (k) => data.kept.keepers.process[k], false, (k) => data.processes[data.kept.keepers.process[k]].name],
  ["gpu", "GPU", (k) => data.kept.keepers.gpu[k], false, (k) => gpuText(data.kept.keepers.gpu[k])],
];

keepers.table = { id: "holders", select: selectKeeper, selected: () => state.keeper, columns: () => keeperColumns };

// openKept adds the graph if any walk found memory.
function openKept() {
  graphs.length = 1;
  if (!data.kept || !data.kept.keepers.node.length) return;
  book.kept = fullTree(data.kept.tree, data.kept.keepers.node);
  book.walks = new Map(data.kept.walks.map((w) => [w.process, w]));
  graphs.push(keepers);
}

function fillKept() {
  byId("kept-section").hidden = !data.kept;
  byId("kept-graph").hidden = byId("holders-section").hidden = !book.kept;
  document.querySelector("main").classList.toggle("beside", Boolean(book.kept));
  if (book.kept) fillLegend(Object.assign(keepers, { tree: book.kept }), ["held by Python", "", "held by C++ only", "", "no holder"]);
}

const keeperName = (k) => data.strings[data.kept.keepers.path[k]];

// The planes of a keeper's bytes: what PyTorch gave out since the attach, what it gave out before,
// and other CUDA memory.
const keeperPlanes = [
  ["tensor", "since the attach", (k) => data.kept.keepers.bytes[k] - data.kept.keepers.older[k] - data.kept.keepers.driver[k]],
  ["before", "before the attach", (k) => data.kept.keepers.older[k]],
  ["driver", "other CUDA", (k) => data.kept.keepers.driver[k]],
];

function keeperBytes(k) {
  const d = data.kept.keepers;
  if (!processChosen(d.process[k]) || state.gpu === -1 || state.gpu >= 0 && d.gpu[k] !== state.gpu) return 0;
  let sum = 0;
  for (const [plane, , of] of keeperPlanes) if (state.planes.has(data.planes.indexOf(plane))) sum += of(k);
  return sum;
}

function updateKept() {
  if (!book.kept) return;
  updateGraph(keepers, book.kept, keeperBytes);
  keepers.marked = new Set(state.keeper >= 0 ? pathTo(book.kept, book.kept.at[state.keeper]) : []);
}

// rateOf returns the bytes a minute that a keeper grew by between the first walk and the latest; 0
// where there was one only.
function rateOf(k) {
  const w = book.walks.get(data.kept.keepers.process[k]);
  return w && w.first >= 0 && w.time > w.first ? data.kept.keepers.grown[k] / ((w.time - w.first) / 60e9) : 0;
}

const rateText = (rate) => (Math.abs(rate) < 1 ? "0 B/min" : signedText(rate) + "/min");

// below lists the keepers with bytes at a node and below it, the largest first.
function below(node) {
  const t = book.kept, list = [];
  let end = node + 1; // nodes below one follow it
  while (end < t.size && t.depth[end] > t.depth[node]) end++;
  t.at.forEach((at, k) => {
    if (at >= node && at < end && keepers.bytes[k] > 0) list.push(k);
  });
  return list.sort((a, b) => keepers.bytes[b] - keepers.bytes[a] || a - b);
}

// keeperTexts describes what keeps the memory of a node.
function keeperTexts(node) {
  const d = data.kept.keepers, list = below(node), texts = [];
  const sum = (of) => list.reduce((n, k) => n + of(k), 0);
  const storages = sum((k) => d.storages[k]), moving = sum((k) => d.inMotion[k]), rate = sum(rateOf);
  if (storages) texts.push(plural(storages, "storage") + (moving ? `, ${countText(moving)} in motion` : ""));
  const older = sum((k) => d.older[k]);
  if (older) texts.push(bytesText(older) + " from before the attach");
  if (rate) texts.push("grew by " + rateText(rate));
  const own = list.filter((k) => book.kept.at[k] === node);
  if (own.length && own.length === list.length) {
    const k = own[0], container = data.strings[d.container[k]], also = data.strings[d.also[k]];
    if (container) texts.push(container);
    if (also) texts.push("also: " + also);
  }
  return texts;
}

// walksShown are those of the chosen process that found holders.
const walksShown = () => data.kept.walks.filter((w) => !w.failure && processChosen(w.process));

function asOf(walks) {
  const times = walks.map((w) => w.time), first = whenText(Math.min(...times)), last = whenText(Math.max(...times));
  return "at " + (first === last ? first : `${first} to ${last}`);
}

// showKept shows the time of the walk, and how it relates to the chosen moment.
function showKept() {
  if (!data.kept) return;
  const walks = walksShown();
  byId("kept-head").textContent = "Who keeps it" + (walks.length ? " " + asOf(walks) : "");
  const when = byId("kept-when");
  when.replaceChildren(...(walks.length ? whenTexts(walks) : []));
  when.dataset.same = walks.length > 0 && isOfWalk(walks);
  fillList(byId("kept-notes"), data.kept.walks.filter((w) => processChosen(w.process)).flatMap((w) => {
    const name = data.processes[w.process].name;
    return [...(w.failure ? [`No holders of ${name}: ${w.failure}`] : []), ...(w.notes || []).map((text) => `${name}: ${text}`)];
  }));
  if (book.kept) showKeptSum(walks);
}

// isOfWalk reports whether the chosen moment is that of all walks.
const isOfWalk = (walks) => state.from === state.to && (data.chart ? walks.every((w) => nearest(w.time) === state.to) : walks.every((w) => w.time === data.end));

function whenTexts(walks) {
  const last = Math.max(...walks.map((w) => w.time)), first = Math.min(...walks.map((w) => w.time));
  if (state.metric === "alloc" || state.metric === "growth" || state.metric === "leak") {
    return ["Who allocated it shows other bytes now; holders are of all memory in use at that time.", ...jump(last)];
  }
  if (isOfWalk(walks)) return [data.chart ? "That is the moment chosen above." : data.live ? "That is the moment shown." : "That is the end of the session."];
  const at = book.times[state.to], chosen = data.chart ? `the moment chosen above (${whenText(at)})` : data.live ? "the moment shown" : "the end of the session";
  const gap = at >= last ? spanText(at - last) + " before " : at <= first ? spanText(first - at) + " after " : "around ";
  return [`Not of ${chosen}: memory was walked ${gap}it.`, ...jump(last)];
}

// jump is a button that chooses the moment of a walk.
function jump(time) {
  if (!data.chart) return [];
  const at = nearest(time);
  return [" ", element("button", { type: "button", class: "link", onclick: () => setRange(at, at) }, "Choose " + whenText(time))];
}

function showKeptSum(walks) {
  const parts = [element("b", {}, bytesText(keepers.total)), state.gpu === -1 ? " – holders are known of GPU memory only" : " of GPU memory"];
  for (const [plane, text, of] of keeperPlanes) {
    let sum = 0;
    for (let k = 0; k < keepers.bytes.length; k++) if (keepers.bytes[k] > 0) sum += of(k);
    if (sum > 0 && state.planes.has(data.planes.indexOf(plane))) parts.push(" ", element("span", { class: "chip" }, element("i", { class: "swatch bg-" + plane }), `${bytesText(sum)} ${text}`));
  }
  const grown = walks.filter((w) => w.first >= 0);
  if (grown.length) parts.push(element("span", { class: "since" }, ` Growth is since the walk at ${whenText(Math.min(...grown.map((w) => w.first)))}.`));
  byId("kept-sum").replaceChildren(...parts);
}

function keeperButton(k) {
  const container = data.strings[data.kept.keepers.container[k]];
  return element("button", { type: "button", class: "link site", "aria-pressed": String(state.keeper === k), onclick: (event) => {
    event.stopPropagation();
    selectKeeper(k);
  } }, element("span", { class: "name" }, keeperName(k)), container ? element("span", { class: "soft place" }, element("span", { class: "cut", title: container }, container)) : null);
}

// selectKeeper shows a holder, and marks its path in the graph.
function selectKeeper(k) {
  if (k >= 0) showLeaf(keepers, k);
  change({ keeper: k });
  if (k >= 0) say(keepers, keepers.focus, "Selected ");
}

// keeperZoomed selects the holder at the end of a path.
function keeperZoomed(node) {
  if (node === 0 || book.kept.first[node] >= 0) return;
  shownKeeper = below(node)[0] ?? -1; // without scrolling the graph away
  change({ keeper: shownKeeper });
}

// showKeeper shows the selected holder, and which sites allocated what it keeps.
let shownKeeper = -1;
function showKeeper() {
  const k = state.keeper, box = byId("keeper"), isNew = k !== shownKeeper;
  shownKeeper = k;
  box.hidden = k < 0;
  if (k < 0) return;
  const d = data.kept.keepers, walk = book.walks.get(d.process[k]);
  byId("keeper-head").textContent = keeperName(k);
  fillFacts(byId("keeper-facts"), [
    ["Read at", whenText(walk.time)],
    ["Bytes", bytesText(d.bytes[k])],
    ["Storages", d.storages[k] === 0 ? null : countText(d.storages[k]) + (d.inMotion[k] ? `, ${countText(d.inMotion[k])} in motion` : "")],
    ["Container", data.strings[d.container[k]]],
    ["Also held by", data.strings[d.also[k]]],
    ["Before the attach", d.older[k] ? bytesText(d.older[k]) : null],
    ["Other CUDA", d.driver[k] ? bytesText(d.driver[k]) : null],
    ["Growth", walk.first < 0 ? null : `${d.grown[k] === 0 ? "none" : signedText(d.grown[k])} since ${whenText(walk.first)}` + (d.entries[k] ? `, ${d.entries[k] > 0 ? "+" : "−"}${countText(Math.abs(d.entries[k]))} entries` : "")],
    ["Process", data.processes[d.process[k]].name],
    ["GPU", gpuText(d.gpu[k])],
  ]);
  fillLinks(byId("keeper-sites"), "Allocated by, of what is live " + endText(), "keeper", k, (i) => siteButton(data.kept.links.entry[i]));
  if (isNew) box.scrollIntoView({ block: "nearest" });
}

// showKeepersOf shows what keeps the memory of the selected site.
function showKeepersOf(entry) {
  const box = byId("selected-keepers");
  box.replaceChildren();
  if (!book.kept) return;
  const walk = book.walks.get(data.entries.process[entry]);
  fillLinks(box, "Kept by" + (walk ? ` at ${whenText(walk.time)}` : ""), "entry", entry, (i) => keeperButton(data.kept.links.keeper[i]));
}

// fillLinks lists what is linked with an entry or a keeper, the largest first.
const maxLinkRows = 20;
function fillLinks(box, title, side, index, button) {
  const links = data.kept.links, list = [];
  links[side].forEach((at, i) => {
    if (at === index) list.push(i);
  });
  list.sort((a, b) => links.bytes[b] - links.bytes[a] || a - b);
  box.replaceChildren(...(list.length ? [element("h3", {}, title), element("ul", { class: "links" }, ...list.slice(0, maxLinkRows).map((i) =>
    element("li", {}, element("b", {}, bytesText(links.bytes[i])), button(i))))] : []));
}

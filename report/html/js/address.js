// SPDX-License-Identifier: Apache-2.0
// address.js: the reader's choice in the page's address, "#at=72.5&process=4242&search=forward", so
// that a view can be sent, and back and forward work.
//
// An address is from anywhere. Each value must be one that the page itself could have written, or
// it is left out; texts only become the values of inputs.

const maxAddress = 4000, maxQuery = 200; // characters that are read

const secondsText = (m) => (m === book.moments - 1 ? "end" : (book.times[m] / 1e9).toFixed(9).replace(/\.?0+$/, "") || "0");

// momentOf reads "72.5", "1m12.5s", "begin" and "end"; -1: it is none of them.
function momentOf(text) {
  if (text === "begin") return 0;
  if (text === "end") return book.moments - 1;
  const m = /^(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s?)?$/.exec(text);
  if (!m || !text) return -1;
  const [d, h, min, s] = m.slice(1).map((n) => Number(n || 0));
  return nearest((((d * 24 + h) * 60 + min) * 60 + s) * 1e9);
}

// keyed names the items of a list, the second of a name "name.2".
function keyed(list, nameOf) {
  const seen = new Map();
  return list.map((x) => {
    const name = String(nameOf(x)), n = (seen.get(name) || 0) + 1;
    seen.set(name, n);
    return n === 1 ? name : name + "." + n;
  });
}
const processKeys = () => (book.processKeys ||= keyed(data.processes, (p) => p.pid));
const gpuKeys = () => keyed(data.gpus, (g) => g.short || g.name);

// addressOf returns the choice, without what is as the page opens.
function addressOf() {
  const list = [], add = (key, value, initial) => {
    if (value !== initial) list.push(key + "=" + encodeURIComponent(value).replace(/%2C/g, ","));
  };
  switch (state.metric) {
    case "use": add("at", secondsText(state.to)); break;
    case "peak": add("at", "peak"); break;
    case "growth": add("between", (state.from === 0 ? "begin" : secondsText(state.from)) + "," + secondsText(state.to)); break;
    default: add("show", state.metric);
  }
  add("process", state.process < 0 ? "" : processKeys()[state.process], "");
  add("group", state.group, "");
  add("gpu", state.gpu === -1 ? "apart" : state.gpu < 0 ? "" : gpuKeys()[state.gpu], "");
  add("planes", [...state.planes].sort((a, b) => a - b).map((i) => data.planes[i]).join(), data.planes.join());
  add("libraries", state.hide ? "hidden" : "shown", "hidden");
  add("before", state.fold ? "folded" : "shown", "folded");
  add("view", state.view, "allocated");
  for (const g of graphs) {
    add(g.prefix + "search", g.query.slice(0, maxQuery), "");
    add(g.prefix + "regex", g.regex, false);
    add(g.prefix + "zoom", data.live && g.zoom ? nodeNames(g.tree, g.zoom).at(-1) : g.zoom, 0);
    add(g.prefix + "sort", g.sort + (g.down ? "" : ",up"), "bytes");
    add(g.prefix + "page", g.page + 1, 1);
  }
  add("site", data.live && state.entry >= 0 ? entryName(state.entry) : state.entry, -1);
  add("holder", data.live && state.keeper >= 0 ? holderName(state.keeper) : state.keeper, -1);
  return list.join("&");
}

// readAddress makes the choice that the address has, and leaves the rest as the page opens. It
// returns false for an address of something else, such as a part of the page.
function readAddress() {
  const text = location.hash.slice(1, maxAddress);
  if (text && !text.includes("=")) return false;
  const values = new URLSearchParams(text), get = (key) => values.get(key) || "";
  const index = (key, count) => (/^\d{1,7}$/.test(get(key)) && Number(get(key)) < count ? Number(get(key)) : -1);
  resetState();
  readMoment(get);
  if (get("process")) state.process = processKeys().indexOf(get("process"));
  if (book.groups.includes(get("group"))) state.group = get("group");
  if (get("gpu")) state.gpu = get("gpu") === "apart" ? -1 : gpuKeys().includes(get("gpu")) ? gpuKeys().indexOf(get("gpu")) : -2;
  if (values.has("planes")) {
    const names = get("planes").split(",");
    state.planes = new Set([...data.planes.keys()].filter((i) => names.includes(data.planes[i])));
  }
  state.hide = get("libraries") !== "shown";
  state.fold = get("before") !== "shown";
  if (get("view") === "kept" && book.kept) state.view = "kept";
  for (const g of graphs) {
    const query = get(g.prefix + "search").slice(0, maxQuery);
    const [sort, order] = get(g.prefix + "sort").split(",");
    Object.assign(g, { query, regex: get(g.prefix + "regex") === "true" && !isSlow(query), zoom: Math.max(index(g.prefix + "zoom", 1e7), 0), page: Math.max(index(g.prefix + "page", 1e6) - 1, 0) });
    if (g.table.columns().some(([key]) => key === sort)) Object.assign(g, { sort, down: order !== "up" });
  }
  state.entry = index("site", book.entries);
  if (book.kept) state.keeper = index("holder", data.kept.keepers.node.length);
  if (data.live) readNames(get);
  return true;
}

// readNames reads what the page of a session that goes on has by name: the numbers change.
function readNames(get) {
  for (const g of graphs) {
    const name = get(g.prefix + "zoom");
    g.zoom = isName(name) ? Math.max(nodeNamed(g === sites ? currentTree() : book.kept, name), 0) : 0;
  }
  state.entry = isName(get("site")) ? firstNamed(book.entries, entryName, get("site")) : -1;
  state.keeper = book.kept && isName(get("holder")) ? firstNamed(data.kept.keepers.node.length, holderName, get("holder")) : -1;
}

function readMoment(get) {
  const at = momentOf(get("at")), ends = get("between").split(",").map(momentOf), last = book.moments - 1;
  if (get("at") === "peak" && data.chart) state.metric = "peak";
  else if (at >= 0) Object.assign(state, { metric: "use", from: at, to: at });
  else if (ends.length === 2 && ends[0] >= 0 && ends[0] < ends[1]) Object.assign(state, { metric: "growth", from: ends[0], to: ends[1] });
  else if (get("show") === "alloc" || get("show") === "leak") Object.assign(state, { metric: get("show"), from: last, to: last });
}

// isSlow reports whether an expression from an address could take too long to match.
const isSlow = (query) => /\)[*+{]/.test(query) || (query.match(/[*+{]/g) || []).length > 3;

// noteAddress writes the choice into the address as soon as the reader has rested for a moment, so
// that a drag is one step back and not a hundred.
let shownAddress = "", addressTimer = 0;
function noteAddress() {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(writeAddress, 250);
}

function writeAddress() {
  clearTimeout(addressTimer);
  addressTimer = 0;
  const text = addressOf();
  if (text === shownAddress) return;
  shownAddress = text;
  try {
    history.pushState(null, "", "#" + text);
  } catch { // a browser that allows too few of them
  }
}

function watchAddress() {
  addEventListener("hashchange", () => {
    clearTimeout(addressTimer);
    addressTimer = 0;
    if (!readAddress()) return;
    shownAddress = addressOf();
    change({});
  });
  for (const name of ["focusin", "pointerdown"]) {
    document.querySelector("main").addEventListener(name, (event) => {
      state.view = event.target.closest("#kept-section, #keeper, #holders-section") ? "kept" : "allocated";
    });
  }
}

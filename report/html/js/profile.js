// SPDX-License-Identifier: Apache-2.0
// profile.js: a pprof profile of what the graph shows, in the encoding of profile.proto, with the
// names and labels of package report/profile.

// varint appends an integer of 64 bits; those beyond 2^53 are BigInt.
function varint(out, n) {
  if (n < 0 || typeof n === "bigint") {
    for (n = BigInt.asUintN(64, BigInt(n)); n > 127n; n >>= 7n) out.push(Number(n & 127n) + 128);
  }
  for (; n > 127; n = Math.floor(n / 128)) out.push(n % 128 + 128);
  out.push(Number(n));
}

function number(out, field, n) {
  varint(out, field * 8);
  varint(out, n);
}

function bytes(out, field, list) {
  varint(out, field * 8 + 2);
  varint(out, list.length);
  for (const b of list) out.push(b);
}

function packed(out, field, numbers) {
  const list = [];
  for (const n of numbers) varint(list, n);
  bytes(out, field, list);
}

// message appends fields of numbers, the first of which is field 1; those that are 0 are left out.
function message(out, field, numbers) {
  const list = [];
  numbers.forEach((n, i) => {
    if (n) number(list, i + 1, n);
  });
  bytes(out, field, list);
}

// newStrings returns the string table of a profile, and the index of a text in it.
function newStrings() {
  const known = new Map([["", 0]]);
  return { known, id: (text) => known.get(text) ?? (known.set(text, known.size), known.size - 1) };
}

const countTypes = [["alloc_objects", "count"], ["alloc_space", "bytes"], ["inuse_objects", "count"], ["inuse_space", "bytes"], ["host_objects", "count"], ["host_space", "bytes"]];

// hasCounts reports whether objects and what was ever allocated are known: only of the end.
const hasCounts = () => state.metric !== "growth" && state.to === book.moments - 1;

// valuesOf returns an entry's values in a profile, null if it has no part in it. Memory in the sum of
// no GPU has values of its own, beside the graph's. Tensors asleep have no memory.
function valuesOf(e) {
  const d = data.entries, isOther = apartWord(e) !== "", n = bytesOf(e);
  const beside = isOther && state.gpu === -2 && state.metric !== "alloc" && passes(e);
  if (!chosen(e) && !beside || data.planes[d.plane[e]] === "asleep" || state.metric === "leak" && n === 0) return null;
  if (!hasCounts()) return n === 0 ? null : isOther ? [0, n] : [n, 0];
  const inUse = [d.objects[e], state.metric === "leak" ? n : d.live[e]];
  const values = [d.allocObjects[e], d.alloc[e], ...(isOther ? [0, 0, ...inUse] : [...inUse, 0, 0])];
  return values.some((n) => n !== 0) ? values : null;
}

// labelsOf lists an entry's labels: key, text or number, unit of a number.
function labelsOf(e) {
  const d = data.entries, process = data.processes[d.process[e]], plane = data.planes[d.plane[e]];
  const kind = data.strings[d.kind[e]] || (plane === "tensor" ? "tensor" : "");
  const texts = [["device", data.strings[d.device[e]]], ["plane", plane], ["kind", kind], ["api", data.strings[d.api[e]]], ["comm", process.comm],
    ["gpu_uuid", data.gpus[d.gpu[e]]?.uuid], ["incomplete", data.strings[d.incomplete[e]]], ["callee", data.strings[d.callee[e]]], ...Object.entries(process.labels || {})];
  const numbers = [["pid", process.pid], ...Object.entries(process.ranks || {}).map(([key, n]) => [key, n, key])];
  if (d.allocObjects[e] > 0) numbers.push(["bytes", Math.floor(d.alloc[e] / d.allocObjects[e]), "bytes"]);
  return [...texts.filter(([, text]) => text), ...numbers];
}

// holdersOf divides an entry's values by who keeps its memory, which is known of the end: name of a
// holder, values. What was ever allocated has no holder.
function holdersOf(e, links, values) {
  const [allocObjects, alloc, objects, bytes] = values, d = data.entries, walk = book.walks?.get(d.process[e]);
  const isHeld = ["tensor", "driver", "before"].includes(data.planes[d.plane[e]]) && (links.has(e) || data.planes[d.plane[e]] === "tensor" && d.gpu[e] >= 0);
  if (!hasCounts() || !walk || walk.failure || !isHeld || !(bytes > 0)) return [["", values]];
  const list = alloc || allocObjects ? [["", [allocObjects, alloc, 0, 0, 0, 0]]] : [], shares = links.get(e) || [];
  const rest = shares.reduce((n, [, share]) => n - share, bytes);
  if (rest > 0) shares.push([shares.length < 16 ? "no holder found" : "[smaller holders]", rest]);
  let objectsLeft = objects, left = bytes;
  for (const [name, share] of shares) {
    const n = Math.round(objectsLeft * share / left);
    list.push([name, [0, 0, n, share, 0, 0]]);
    objectsLeft -= n;
    left -= share;
  }
  return list;
}

// linksOf lists the names and bytes of holders by entry.
function linksOf() {
  const links = new Map(), { entry, keeper, bytes } = data.kept ? data.kept.links : { entry: [] };
  entry.forEach((e, i) => {
    if (!links.has(e)) links.set(e, []);
    links.get(e).push([keeperName(keeper[i]), bytes[i]]);
  });
  return links;
}

function addSamples(p, id) {
  const used = new Set(), full = book.full, links = linksOf();
  for (let e = 0; e < book.entries; e++) {
    const values = valuesOf(e);
    if (!values) continue;
    const path = pathTo(full, data.entries.node[e]).slice(1).reverse().map((node) => full.frame[node]);
    path.splice(data.frames.class[path[0]] === classes.remark ? 1 : 0, data.entries.below[e]);
    path.forEach((frame) => used.add(frame));
    for (const [holder, part] of holdersOf(e, links, values)) {
      const sample = [];
      packed(sample, 1, path);
      packed(sample, 2, part);
      for (const [key, value, unit] of [...labelsOf(e), ...(holder ? [["holder", holder]] : [])]) {
        message(sample, 3, typeof value === "string" ? [id(key), id(value.replaceAll('"', "”").replaceAll("\\", "∖"))] : [id(key), 0, value, id(unit || "")]);
      }
      bytes(p, 2, sample);
    }
  }
  return used;
}

// addFrames adds functions and locations, whose numbers are those of their frames, and what they
// are mapped from.
function addFrames(p, id, used) {
  const f = data.frames, mappings = new Map([[data.processes.length === 1 ? data.processes[0].comm : data.title, 1]]);
  for (const frame of used) {
    const python = f.class[frame] < classes.userNative, file = data.strings[f.file[frame]], object = python ? "[python]" : data.strings[f.object[frame]];
    if (object && !mappings.has(object)) mappings.set(object, mappings.size + 1);
    const location = [];
    number(location, 1, frame);
    if (object) number(location, 2, mappings.get(object));
    message(location, 4, [frame, f.line[frame]]);
    bytes(p, 4, location);
    const name = book.names[frame], full = book.fullNames[frame];
    message(p, 5, [frame, id(name), id(full === name ? "" : full), id(file.startsWith("[") ? "" : data.strings[f.dir[frame]] + file)]);
  }
  for (const [object, n] of mappings) message(p, 3, [n, 0, 0, 0, id(object), 0, 1, 1, 1]);
}

// profileTexts names the contents of a profile, and the data that it lacks.
function profileTexts() {
  const filters = [state.process < 0 ? state.group : data.processes[state.process].name, state.gpu < 0 ? "" : gpuText(state.gpu),
    state.planes.size === data.planes.length ? "" : "planes " + [...state.planes].map((i) => data.planes[i]).join(", ")].filter(Boolean).join(", ");
  const lacks = (hasCounts() ? "" : "the number of objects, what was ever allocated, holders, ") + "addresses, build IDs and inlined functions";
  return [`${data.title}: ${byId("sum").textContent.split(/; |\. /)[0]}${filters ? ` (only ${filters})` : ""}`, `from a page of vramprof, which lacks ${lacks}: vramprof export has them`,
    ...(data.entries.below.some(Boolean) ? ["stacks end at the code that called PyTorch or CUDA; -tagleaf=callee shows what it called"] : []),
    ...(hasCounts() && data.kept ? data.kept.walks : []).flatMap(walkTexts),
    ...data.warnings.map((text) => "warning: " + text), ...data.doubts.map((text) => "doubt: " + text), ...data.remarks.map((text) => "# at the end: " + text)];
}

function walkTexts(w) {
  const of = "holders of " + data.processes[w.process].name;
  return w.failure ? [`doubt: no ${of}: ${w.failure}`] : [`${of} at ${spanText(w.time)} (-tagroot=holder)`, ...(w.notes || []).map((text) => `doubt: ${of}: ${text}`)];
}

// encodeProfile returns the profile without compression.
function encodeProfile() {
  const p = [], { known, id } = newStrings(), at = book.times[state.to];
  for (const [name, unit] of hasCounts() ? countTypes : countTypes.filter(([name]) => /^(inuse|host)_space/.test(name))) message(p, 1, [id(name), id(unit)]);
  addFrames(p, id, addSamples(p, id));
  number(p, 9, BigInt(data.wall) * 1000000n - BigInt(data.end - at));
  number(p, 10, state.metric === "growth" ? at - book.times[state.from] : at);
  message(p, 11, [id("space"), id("bytes")]);
  number(p, 12, 1);
  for (const text of profileTexts()) number(p, 13, id(text));
  number(p, 14, id(state.metric === "alloc" ? "alloc_space" : state.gpu === -1 ? "host_space" : "inuse_space"));
  const encoder = new TextEncoder();
  for (const text of known.keys()) bytes(p, 6, encoder.encode(text));
  return Uint8Array.from(p);
}

// downloadProfile saves the profile, compressed if the browser can.
async function downloadProfile() {
  const to = state.metric === "peak" ? "peak" : spanText(book.times[state.to]);
  let name = `vramprof-${state.metric === "growth" ? spanText(book.times[state.from]) + "-" : state.metric === "alloc" || state.metric === "leak" ? state.metric + "-" : ""}${to}.pb`;
  let file = new Blob([encodeProfile()]);
  if (typeof CompressionStream !== "undefined") {
    file = await new Response(file.stream().pipeThrough(new CompressionStream("gzip"))).blob();
    name += ".gz";
  }
  const url = URL.createObjectURL(file);
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

// SPDX-License-Identifier: Apache-2.0
// data.js: the data of the page, from the JSON in it.

let data; // payload of data.go
let sections = {}; // payload as a server sent it
let book; // the same, ready for use

// readData returns the page's JSON. Much of it is compressed.
async function readData() {
  const source = byId("data");
  const text = source.textContent;
  source.remove();
  if (source.type === "application/json") return JSON.parse(text);
  if (typeof DecompressionStream === "undefined") throw new Error("this browser is too old to unpack the data of this page");
  const raw = atob(text.trim());
  const packed = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) packed[i] = raw.charCodeAt(i);
  const plain = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(plain).text());
}

// summed turns differences into values, in place.
function summed(list) {
  for (let i = 1; i < list.length; i++) list[i] += list[i - 1];
  return list;
}

// openBook unfolds the columns: names of frames, the tree of stacks, and each entry's bytes at each
// moment.
function openBook() {
  const f = data.frames, count = f.name.length;
  book = {
    names: f.simple.map((i) => data.strings[i]), // there is room for the full ones in few places
    fullNames: f.name.map((i) => data.strings[i]),
    places: f.file.map((file, i) => {
      const text = data.strings[file];
      return f.line[i] > 0 && text ? text + ":" + f.line[i] : text;
    }),
    classes: f.class,
    frames: count,
    entries: data.entries.node.length,
    apart: [...new Set(data.entries.plane.map((_, e) => apartWord(e)))].filter(Boolean), // what is in the sum of no GPU
    groups: data.processes.map(groupOf),
    moments: 1,
    times: [data.end],
  };
  if (data.chart) {
    summed(data.chart.times);
    summed(data.chart.grid);
    for (const row of data.chart.rows) {
      summed(row.usage);
      summed(row.beyond || []);
      row.planes.forEach(summed);
    }
    book.moments = data.chart.grid.length;
    book.times = data.chart.grid.map((i) => data.chart.times[i]);
    openSeries();
  }
  book.full = fullTree(data.tree, data.entries.node);
}

// openSeries lays all entries' changes end to end: those of entry i are from start[i] to
// start[i+1].
function openSeries() {
  const series = data.entries.series;
  let n = 0;
  for (const s of series) n += s ? s.length / 2 : 0;
  book.start = new Uint32Array(series.length + 1);
  book.step = new Uint32Array(n);
  book.level = new Float64Array(n);
  n = 0;
  series.forEach((s, i) => {
    let step = 0, level = 0;
    for (let k = 0; s && k < s.length; k += 2) {
      step += s[k];
      level += s[k + 1];
      book.step[n] = step;
      book.level[n++] = level;
    }
    book.start[i + 1] = n;
  });
  data.entries.series = null;
}

// levelAt returns an entry's bytes at a moment: its last change at or before it.
function levelAt(entry, moment) {
  let low = book.start[entry], high = book.start[entry + 1];
  const first = low;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (book.step[middle] <= moment) low = middle + 1;
    else high = middle;
  }
  return low > first ? book.level[low - 1] : 0;
}

// nearest returns the moment nearest to a time.
function nearest(time) {
  const times = book.times;
  let low = 0, high = times.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low > 0 && time - times[low - 1] < times[low] - time ? low - 1 : low;
}

// groupOf returns the pod or job of a process, "" without one.
function groupOf({ labels }) {
  if (labels?.pod) return "pod " + (labels.namespace ? labels.namespace + "/" : "") + labels.pod;
  return labels?.job ? "job " + labels.job : "";
}

const planeNames = {
  tensor: "Tensors", cache: "PyTorch cache", driver: "Other CUDA", rounding: "Driver's rounding", before: "Before attach", unexplained: "Unexplained", host: "Host", managed: "Managed", system: "System-allocated", asleep: "Asleep",
};

// isApart reports whether a plane belongs to the sum of no GPU.
const isApart = (plane) => data.apart.includes(data.planes[plane]);

// apartWord returns what an entry belongs to if it is in the sum of no GPU; CPU tensors are on the
// host.
const apartWord = (e) => (data.entries.gpu[e] < 0 ? "host" : isApart(data.entries.plane[e]) ? data.planes[data.entries.plane[e]] : "");

// beyondText names what the books have more than NVML's figure, which is in no sum.
const beyondName = "beyond NVML's figure"; // as report.BeyondNVML
const beyondText = (n) => bytesText(n) + " " + beyondName;

const gpuText = (i) => {
  if (i < 0) return "host";
  const g = data.gpus[i];
  return g.short ? g.name + " " + g.short : g.name;
};

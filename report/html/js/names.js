// SPDX-License-Identifier: Apache-2.0
// names.js: names of nodes, sites and holders that stay while the data of the page changes.

// hashed returns 16 hexadecimal digits.
function hashed(text) {
  let a = 0x811c9dc5, b = 0x1b873593;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    a = Math.imul(a ^ c, 0x01000193);
    b = Math.imul(b ^ c, 0x85ebca6b) + a | 0;
  }
  return [a, b].map((n) => (n >>> 0).toString(16).padStart(8, "0")).join("");
}

const isName = (text) => /^[0-9a-f]{16}$/.test(text);

const frameName = (frame) => [book.fullNames[frame], book.places[frame], book.classes[frame]].join("\n");
const nodeName = (above, frame) => hashed(above + frameName(frame));

// nodeNames returns the names of the nodes from below the root to a node.
function nodeNames(t, node) {
  let name = "";
  return pathTo(t, node).slice(1).map((at) => { name = nodeName(name, t.frame[at]); return name; });
}

// nodeAt returns the node with these names, or the last one above it that is there.
function nodeAt(t, names) {
  let node = 0, name = "";
  for (const wanted of names) {
    let next = -1;
    for (let c = t.first[node]; c >= 0 && next < 0; c = t.next[c]) if (nodeName(name, t.frame[c]) === wanted) next = c;
    if (next < 0) break;
    node = next;
    name = wanted;
  }
  return node;
}

// nodeNamed returns the node of a name, -1 without one.
function nodeNamed(t, name) {
  const names = [""];
  for (let i = 1; i < t.size; i++) {
    names[i] = nodeName(names[t.parent[i]], t.frame[i]);
    if (names[i] === name) return i;
  }
  return -1;
}

// entryText tells sites apart that have the same stack, and most others.
function entryText(e) {
  const d = data.entries, device = data.strings[d.device[e]];
  return [processKeys()[d.process[e]], device, data.planes[d.plane[e]], data.strings[d.kind[e]], data.strings[d.api[e]], frameName(d.head[e])].join("\n");
}

const entryName = (e) => hashed(entryText(e) + "\n" + nodeNames(book.full, data.entries.node[e]).at(-1));

const holderName = (k) => hashed([processKeys()[data.kept.keepers.process[k]], gpuKeys()[data.kept.keepers.gpu[k]], keeperName(k)].join("\n"));

// firstNamed returns the first of so many that has a name, -1 without one.
function firstNamed(count, nameOf, name) {
  for (let i = 0; i < count; i++) if (nameOf(i) === name) return i;
  return -1;
}

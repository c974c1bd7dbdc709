// SPDX-License-Identifier: Apache-2.0
// tree.js: trees of stacks, and what the chosen bytes come to
// in each node.
//
// A tree is a set of columns: parent, first child and next sibling of each node, its frame and its
// depth; at[e] is the node of entry e. A parent's number is lower than its children's, so one loop
// from the end adds everything up.

const classes = { userPython: 0, libraryPython: 1, userNative: 2, libraryNative: 3, remark: 4, root: 5 };
const isLibrary = (cls) => cls === classes.libraryPython || cls === classes.libraryNative;

function newTree(room, entries) {
  return {
    size: 0, parent: new Int32Array(room), first: new Int32Array(room).fill(-1), last: new Int32Array(room).fill(-1),
    next: new Int32Array(room).fill(-1), frame: new Int32Array(room), depth: new Int32Array(room), at: new Int32Array(entries),
    sum: new Float64Array(room), own: new Float64Array(room), hit: new Uint8Array(room), deepest: 0, before: -1,
  };
}

function addNode(t, parent, frame) {
  const node = t.size++;
  t.parent[node] = parent;
  t.frame[node] = frame;
  if (parent === 0 && frame === data.before) t.before = node;
  if (parent >= 0) {
    t.depth[node] = t.depth[parent] + 1;
    if (t.first[parent] < 0) t.first[parent] = node;
    else t.next[t.last[parent]] = node;
    t.last[parent] = node;
    t.deepest = Math.max(t.deepest, t.depth[node]);
  }
  return node;
}

// fullTree has every frame of a tree of the data; nodes are those of its entries.
function fullTree({ depth, frame }, nodes) {
  const t = newTree(depth.length, nodes.length);
  const path = [];
  for (let i = 0; i < depth.length; i++) {
    path[depth[i]] = addNode(t, depth[i] > 0 ? path[depth[i] - 1] : -1, frame[i]);
  }
  t.at.set(nodes);
  return t;
}

// ownTree omits library frames: nodes below them move up, and nodes of one name are merged. An
// entry without any frame left keeps its headline.
function ownTree() {
  const full = book.full;
  const t = newTree(full.size + book.entries + 1, book.entries);
  const known = new Map();
  const below = (parent, frame) => {
    const key = parent * book.frames + frame;
    let node = known.get(key);
    if (node === undefined) known.set(key, node = addNode(t, parent, frame));
    return node;
  };
  const place = new Int32Array(full.size);
  place[0] = addNode(t, -1, 0);
  for (let i = 1; i < full.size; i++) {
    const up = place[full.parent[i]], frame = full.frame[i];
    place[i] = isLibrary(book.classes[frame]) ? up : below(up, frame);
  }
  for (let e = 0; e < book.entries; e++) {
    const node = place[data.entries.node[e]];
    t.at[e] = node === 0 ? below(0, data.entries.head[e]) : node;
  }
  return t;
}

function currentTree() {
  if (!state.hide) return book.full;
  return book.own || (book.own = ownTree());
}

// addUp adds the entries' bytes to the tree. Negative values have no width, and are in the totals
// only.
function addUp(t, bytes) {
  t.sum.fill(0);
  t.own.fill(0);
  for (let e = 0; e < bytes.length; e++) {
    if (bytes[e] > 0) {
      t.sum[t.at[e]] += bytes[e];
      t.own[t.at[e]] += bytes[e];
    }
  }
  for (let i = t.size - 1; i > 0; i--) t.sum[t.parent[i]] += t.sum[i];
}

// search marks the nodes whose frame matches with 2 and those below them with 1, and returns the
// matching frames.
function search(t, matcher) {
  t.hit.fill(0);
  if (!matcher) return 0;
  const hits = new Uint8Array(book.frames);
  let count = 0;
  for (let i = 1; i < book.frames; i++) {
    hits[i] = matcher(book.names[i], book.fullNames[i], book.places[i]) ? 1 : 0;
    count += hits[i];
  }
  for (let i = 1; i < t.size; i++) t.hit[i] = hits[t.frame[i]] ? 2 : t.hit[t.parent[i]] ? 1 : 0;
  return count;
}

// newMatcher returns null for an empty search and throws for a bad expression.
function newMatcher(query, regex) {
  if (!query) return null;
  if (regex) {
    const expression = new RegExp(query, "i");
    return (...texts) => texts.some((text) => expression.test(text));
  }
  const wanted = query.toLowerCase();
  return (...texts) => texts.some((text) => text.toLowerCase().includes(wanted));
}

// pathTo lists the nodes from the root to a node.
function pathTo(t, node) {
  const path = [];
  for (; node >= 0; node = t.parent[node]) path.unshift(node);
  return path;
}

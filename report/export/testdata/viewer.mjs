// SPDX-License-Identifier: Apache-2.0
// node viewer.mjs MemoryViz.js SNAPSHOT...: loads snapshots by the viewer's own code, and goes through all of its views and
// each action of each trace, as a user could by mouse. Drawing is replaced by nothing: what throws is the reading. Prints
// one line of JSON for each snapshot: of each device the bytes in segments and blocks at the end, and the highest point of the timeline.
import {readFileSync} from 'node:fs';
import vm from 'node:vm';

const [viewer, ...snapshots] = process.argv.slice(2);

// Whatever is asked of it, it is a function that gives itself, and the number 1.
const nothing = new Proxy(function () {}, {
  get: (_, key) => (key === Symbol.toPrimitive ? () => 1 : key === Symbol.iterator ? function* () {} : nothing),
  apply: () => nothing,
  construct: () => nothing,
  set: () => true,
  has: () => true,
});

const source = readFileSync(viewer, 'utf8')
  .replace(/^import [^;]*;$/gm, '')
  .replace(/^export /gm, '');
const context = vm.createContext({
  console: {log() {}}, TextDecoder, BigInt64Array, Float64Array, Uint8Array, ArrayBuffer, document: nothing, window: nothing,
  d3: nothing, axisLeft: nothing, scaleLinear: nothing, zoom: nothing, zoomIdentity: nothing, brushX: nothing,
});
vm.runInContext(source + '\n;this.api = {unpickle, annotate_snapshot, process_alloc_data, MemoryView, StackInfo, formatEvent, format_frames};', context);
const api = context.api;

for (const file of snapshots) {
  const bytes = readFileSync(file);
  const snapshot = api.unpickle(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
  api.annotate_snapshot(snapshot);
  const devices = [];
  for (const [device, trace] of snapshot.device_traces.entries()) {
    const plot = api.process_alloc_data(snapshot, device, false, 15000);
    const segments = api.process_alloc_data(snapshot, device, true, 15000);
    for (const view of [plot, segments]) {
      for (let i = 0; i < Math.min(view.elements_length, 1000); i++) {
        view.context_for_id(i);
      }
    }
    const view = api.MemoryView(nothing, api.StackInfo(nothing), snapshot, device);
    const step = Math.ceil(trace.length / 2000) || 1;
    let at = [0, 0];
    for (let i = 0; i < trace.length; i += step) {
      api.formatEvent(trace[i]);
      api.format_frames(trace[i].frames);
      view.draw(i);
    }
    at = view.draw(trace.length);
    devices.push({reserved: at[0], allocated: at[1], peak: plot.max_size, events: trace.length});
  }
  console.log(JSON.stringify(devices));
}

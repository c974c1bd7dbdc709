#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memory_viz.py SNAPSHOT...: reads snapshots by Python's pickle and goes through what PyTorch's own _memory_viz.py does with them.
Prints one line of JSON for each: bytes in segments, in blocks, in the flame graph, and the number of entries. With --file,
_memory_viz.py is loaded from there, and PyTorch is not."""
import importlib.util, json, pickle, pickletools, sys

if sys.argv[1] == "--file":
    spec = importlib.util.spec_from_file_location("memory_viz", sys.argv[2])
    viz = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(viz)
    del sys.argv[1:3]
else:
    import torch
    from torch.cuda import _memory_viz as viz

lines = lambda text: text  # instead of flamegraph.pl
before = None
for name in sys.argv[1:]:
    with open(name, "rb") as f:
        text = f.read()
    for opcode, _, _ in pickletools.genops(text):  # and its own check of the format
        assert opcode.proto <= 4, opcode
    data = pickle.loads(text)
    summary = viz.segsum(data)
    assert "total_reserved" in summary, summary
    assert "entries" in viz.trace(data) or not any(data["device_traces"])
    assert "<script" in viz.trace_plot(data) and "<script" in viz.trace_plot(data, plot_segments=True)
    assert "<script" in viz.segment_plot(data)
    graph = viz.memory(data, format_flamegraph=lines)
    weight = sum(int(line.rsplit(" ", 1)[1]) for line in graph.splitlines())
    by_segment = viz.segments(data, format_flamegraph=lines)
    assert sum(int(line.rsplit(" ", 1)[1]) for line in by_segment.splitlines()) == weight
    stdout, sys.stdout = sys.stdout, sys.stderr  # compare prints
    viz.compare(before or [], data["segments"], format_flamegraph=lines)
    sys.stdout = stdout
    before = data["segments"]
    print(json.dumps({
        "segments": sum(s["total_size"] for s in data["segments"]),
        "blocks": sum(b["size"] for s in data["segments"] for b in s["blocks"]),
        "active": sum(viz.calc_active(s) for s in data["segments"]),
        "flamegraph": weight,
        "entries": sum(len(t) for t in data["device_traces"]),
        "bytes": repr(viz.Bytes(1 << 20)),
    }))

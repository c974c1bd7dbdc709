#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Asks PyTorch about a machine of two GPUs of 4 GiB, and fails on any wrong answer."""
import torch

properties = torch.cuda.get_device_properties(1)
assert torch.cuda.device_count() == 2 and torch.cuda.get_device_capability(1) == (8, 0), properties
assert (properties.name, properties.total_memory, properties.multi_processor_count) == ("Fake GPU", 4 << 30, 108), properties
assert str(properties.uuid).startswith("fa") and properties.uuid != torch.cuda.get_device_properties(0).uuid, properties
assert torch.cuda.can_device_access_peer(0, 1)

pinned = torch.arange(1000).pin_memory()
assert pinned.is_pinned() and pinned[999] == 999 and not torch.arange(1000).is_pinned()
on_device = pinned.to("cuda:1", non_blocking=True)
assert on_device.device.index == 1 and torch.cuda.memory_allocated(1) == 8192 and torch.cuda.memory_allocated(0) == 0
assert on_device.cpu().tolist() == [0] * 1000  # memory has no contents
assert on_device.to("cuda:0").sum().item() == 0

side = torch.cuda.Stream()
with torch.cuda.stream(side):
    x = torch.ones(1 << 20, device="cuda")
    event = side.record_event()
torch.cuda.current_stream().wait_event(event)
event.synchronize()
assert event.query() and torch.cuda.current_stream() != side
side.synchronize()
torch.cuda.synchronize()

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    assert torch.cuda.is_current_stream_capturing()
    y = x * 2
assert not torch.cuda.is_current_stream_capturing()
graph.replay()
pools = [s["segment_pool_id"] for s in torch.cuda.memory_snapshot() if s["device"] == 0]
assert (0, 0) in pools and len(set(pools)) == 2, pools  # the graph's memory is in a separate pool

try:
    torch.empty(1 << 40, device="cuda")
    raise SystemExit("a TiB was granted")
except torch.OutOfMemoryError as e:
    assert "this process has" in str(e), e  # from NVML
print("a machine")

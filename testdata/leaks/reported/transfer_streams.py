#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: vllm-project/vllm#52951
# says: No line grows
# says: 512 MiB of PyTorch's cache are free on 32 side streams, and no other stream can use them
# says: can go back to the driver 512 MiB
# never: expandable_segments
# never: leaking
"""Each transfer packs into a buffer on each of two new streams: PyTorch hands out 32 in turn, and each keeps its buffer's block."""
import torch
from training import steps

model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)


def transfer():
    for _ in range(2):
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.empty(16 << 20, dtype=torch.uint8, device="cuda").zero_()
        side.synchronize()


for _ in range(12):
    transfer()
for step in steps(20):
    optimizer.zero_grad()
    model(torch.empty(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    if step % 8 == 0:
        transfer()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: streamed answers whose clients disconnect
# keeper: generator
# holder: server.streams[*]
"""Each answer is a generator with a KV cache; of those whose client left, none is ever closed."""
import torch
from torch import nn
from training import steps


class Server:
    def __init__(self):
        self.layer = nn.Linear(256, 256).cuda()
        self.streams = {}

    @torch.no_grad()
    def stream(self):
        keys = torch.empty(16, 128, 256, device="cuda")  # site: leak
        for position in range(16):
            keys[position] = self.layer(torch.randn(128, 256, device="cuda"))
            yield position


server = Server()
for step in steps(40):
    stream = server.streams[step] = server.stream()
    length = 5 if step % 4 == 0 else 16
    for _ in range(length):
        next(stream)
    if length == 16:
        del server.streams[step]

# SPDX-License-Identifier: Apache-2.0
"""streams.py [STEPS]: prefetches batches of varying length on a side stream, computes on the default one and hands results to
a third, with record_stream() for each that another one uses."""
import random
import sys

import torch

import jobs

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10
dice = random.Random(3)
net = jobs.transformer(2, 128).cuda()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
side, third = torch.cuda.Stream(), torch.cuda.Stream()
for step in range(steps):
    with torch.cuda.stream(side):
        x = torch.empty(dice.choice((2, 3, 5, 8)), dice.randrange(64, 400, 16), 128, device="cuda")
        extra = torch.empty(dice.randrange(1, 30) << 20, dtype=torch.uint8, device="cuda")
    x.record_stream(torch.cuda.current_stream())
    extra.record_stream(third)
    y = net(x)
    y.record_stream(third)
    with torch.cuda.stream(third):
        z = y.float() * 2
    z.record_stream(torch.cuda.current_stream())
    loss = y.square().mean()
    optimizer.zero_grad()
    del x, extra
    loss.backward()
    optimizer.step()

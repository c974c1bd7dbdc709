# SPDX-License-Identifier: Apache-2.0
"""Trains under autocast in bfloat16."""
import torch
import remedy


def job(r):
    model = r.model(remedy.Language(r, 8, 256))
    optimizer = r.adam(model.parameters())
    for _ in range(6):
        x = remedy.tokens(8, 128)
        with torch.autocast("cuda", torch.bfloat16):
            loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)

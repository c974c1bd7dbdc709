# SPDX-License-Identifier: Apache-2.0
"""Trains, and keeps the outputs of its evaluation on the GPU until all are compared."""
import torch
import remedy


def evaluate(r, model, batches):
    outputs = []
    for _ in range(batches):
        outputs.append(r.keep(model(remedy.tokens(8, 128))))  # site: kept
    return [o.argmax(-1) for o in outputs]


def job(r):
    model = r.model(remedy.Language(r, 4, 192))
    optimizer = r.adam(model.parameters())
    for step in range(9):
        x = remedy.tokens(8, 128)
        loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            with torch.no_grad():
                evaluate(r, model, 24)


remedy.run(job)

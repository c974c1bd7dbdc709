# SPDX-License-Identifier: Apache-2.0
"""Keeps a copy of its weights on the GPU after each epoch, and the losses of all steps with their graphs."""
import torch
import remedy


def job(r):
    model = r.model(remedy.Language(r, 4, 256, dropout=0.1))
    optimizer = r.momentum(model.parameters())
    copies = []
    for step in range(12):
        x = remedy.tokens(r.batch(4), 128)
        loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2:
            copies.append({name: r.keep(value.detach().clone()) for name, value in model.state_dict().items()})  # site: kept


remedy.run(job)

# SPDX-License-Identifier: Apache-2.0
"""Keeps the validation loss of every second step with its graph."""
import remedy


def job(r):
    model = r.model(remedy.Language(r, 3, 192))
    optimizer = r.adam(model.parameters())
    losses = []
    for step in range(14):
        x = remedy.tokens(4, 128)
        loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 2:
            losses.append(r.keep(remedy.guess(model(x), x)))  # site: kept


remedy.run(job)

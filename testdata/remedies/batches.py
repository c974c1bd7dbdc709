# SPDX-License-Identifier: Apache-2.0
"""Trains a language model on batches of several sizes, as the last batch of an epoch or a schedule has."""
import remedy


def job(r):
    model = r.model(remedy.Language(r, 6, 256))
    optimizer = r.adam(model.parameters())
    for step in range(8):
        x = remedy.tokens(r.batch((4, 8, 6, 12)[step % 4]), 160)
        loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)

# SPDX-License-Identifier: Apache-2.0
"""Trains a language model on sentences of varying lengths."""
import random
import remedy


def job(r):
    dice = random.Random(7)
    model = r.model(remedy.Language(r, 6, 256))
    optimizer = r.adam(model.parameters())
    for _ in range(16):
        x = remedy.tokens(4, dice.randrange(64, 400, 8))
        loss = remedy.guess(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)

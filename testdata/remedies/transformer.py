# SPDX-License-Identifier: Apache-2.0
"""Trains a small language model with AdamW: activations make the peak."""
import remedy


def job(r):
    model = r.model(remedy.Language(r, 8, 256, dropout=0.1))
    optimizer = r.adam(model.parameters())
    for _ in range(6):
        x = remedy.tokens(r.batch(8), 128)
        loss = remedy.guess(model(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


remedy.run(job)

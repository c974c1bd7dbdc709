# SPDX-License-Identifier: Apache-2.0
"""Accumulates gradients over four batches, and sets them to zero instead of dropping them."""
import remedy


def job(r):
    model = r.model(remedy.Language(r, 6, 384))
    optimizer = r.adam(model.parameters())
    for _ in range(4):
        r.zero(model, False)
        for _ in range(4):
            x = remedy.tokens(2, 128)
            loss = remedy.guess(model(x), x) / 4
            loss.backward()
        optimizer.step()
        r.forget(model)


remedy.run(job)

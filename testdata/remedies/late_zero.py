# SPDX-License-Identifier: Apache-2.0
"""Drops the gradients only after the next forward pass, so both are live at once."""
from torch import nn
import remedy


def job(r):
    model = r.model(nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(768, 768), nn.ReLU())]))
    optimizer = r.momentum(model.parameters())
    for _ in range(6):
        loss = model(r.input(1024, 768)).square().mean()
        r.zero(model, True)
        loss.backward()
        optimizer.step()
        r.forget(model)


remedy.run(job)

# SPDX-License-Identifier: Apache-2.0
"""Trains wide layers on little data: weights, gradients and the optimizer's state make the peak. Gradients are set to zero."""
from torch import nn
import remedy


def job(r):
    model = r.model(nn.Sequential(*[m for _ in range(6) for m in (nn.Linear(1536, 1536), nn.GELU())]))
    optimizer = r.adam(model.parameters())
    for _ in range(6):
        r.zero(model, False)
        model(r.input(64, 1536)).square().mean().backward()
        optimizer.step()
        r.forget(model)


remedy.run(job)

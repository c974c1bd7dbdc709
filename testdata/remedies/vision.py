# SPDX-License-Identifier: Apache-2.0
"""Trains a vision transformer in float16 with a gradient scaler, clips its gradients, and evaluates each third step."""
import torch
from torch import nn
import remedy


class Vision(nn.Module):
    def __init__(self, r):
        super().__init__()
        self.r, self.patch = r, nn.Conv2d(3, 256, 16, 16)
        self.blocks = nn.ModuleList(remedy.Block(256, dropout=0.1) for _ in range(6))
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 100)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = self.r.call(block, x)
        return self.head(self.norm(x).mean(1))


def job(r):
    model = r.model(Vision(r))
    optimizer, scaler = r.adam(model.parameters()), torch.amp.GradScaler("cuda")
    for step in range(6):
        x, labels = r.input(r.batch(12), 3, 224, 224), torch.zeros(r.batch(12), dtype=torch.long, device="cuda")
        with torch.autocast("cuda", torch.float16):
            loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        if step % 3 == 2:
            model.eval()
            with torch.no_grad(), torch.autocast("cuda", torch.float16):
                model(x)
            model.train()


remedy.run(job)

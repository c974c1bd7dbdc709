#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: Lightning-AI/pytorch-lightning#8453
# keeper: callback
# holder: trainer.callbacks[*].outputs[*]['scores']
"""A callback collects the outputs of each validation for its figures and never clears them."""
import torch
from torch import nn
from training import steps


class Gallery:
    def __init__(self):
        self.outputs = []

    def on_validation_batch_end(self, trainer, output):
        self.outputs.append(output)


class Trainer:
    def __init__(self, model, callbacks):
        self.model, self.callbacks = model, callbacks
        self.optimizer = torch.optim.AdamW(model.parameters())

    def training_step(self):
        self.optimizer.zero_grad()
        self.model(torch.randn(64, 256, device="cuda")).square().mean().backward()
        self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        for _ in range(8):
            scores = self.model(torch.randn(256, 256, device="cuda"))  # site: leak
            for callback in self.callbacks:
                callback.on_validation_batch_end(self, {"scores": scores, "top": scores.argmax(dim=1)})


trainer = Trainer(nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1024)).cuda(), [Gallery()])
for step in steps(60):
    trainer.training_step()
    if step % 45 == 44:
        trainer.validate()

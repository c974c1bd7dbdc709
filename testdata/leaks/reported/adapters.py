#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: huggingface/diffusers#8532 and ace-step/ACE-Step-1.5#705
# long: encoder_outputs.py has the same keys in a dictionary
# says: Leaking: 2 lines
# says: leaking SITE LoraLinear.add_adapter
# says: leaking SITE2 LoraLinear.add_adapter
# says: kept by model\.\*\.lora_[AB]\.customer_\*\.weight
# advises: model\.\*\.lora_[AB] only grows: remove what is no longer needed
# never: customer_[0-9]
"""Each customer's adapter is loaded under a new name; to unload it only clears the list of active ones."""
import torch
from torch import nn
from training import steps


class LoraLinear(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.base = nn.Linear(size, size, bias=False, device="cuda")
        self.lora_A, self.lora_B, self.active = nn.ModuleDict(), nn.ModuleDict(), []

    def add_adapter(self, name, rank):
        size = self.base.in_features
        self.lora_A[name] = nn.Linear(size, rank, bias=False, device="cuda")  # site
        self.lora_B[name] = nn.Linear(rank, size, bias=False, device="cuda")  # site
        self.active.append(name)

    def forward(self, x):
        y = self.base(x)
        for name in self.active:
            y = y + self.lora_B[name](self.lora_A[name](x))
        return y


model = nn.Sequential(*(LoraLinear(2048) for _ in range(4)))
with torch.no_grad():
    for step in steps(20):
        if step % 8 == 0:
            for layer in model:
                layer.add_adapter("customer_%d" % (step // 8), 128)
        model(torch.empty(16, 2048, device="cuda"))
        if step % 8 == 7:
            for layer in model:
                layer.active.clear()

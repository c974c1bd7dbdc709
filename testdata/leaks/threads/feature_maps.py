#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: pytorch/pytorch#68046
# keeper: forward hook
# holder: extractor.features[*][*]
"""For attribution, forward hooks store the features of each layer by the number of the image."""
import torch
from torch import nn
from training import steps


class Extractor:
    def __init__(self, model):
        self.features, self.image = {}, 0
        for index, layer in enumerate(model):
            layer.register_forward_hook(self.saver(index))

    def saver(self, index):
        def save(module, inputs, output):
            self.features.setdefault(self.image, {})[index] = output.detach()

        return save


model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 256)).cuda().eval()
extractor = Extractor(model)
for step in steps(40):
    extractor.image = step
    with torch.no_grad():
        model(torch.randn(256, 512, device="cuda"))  # site: leak

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: ViCCo-Group/thingsvision#150
# says: Leaking: 1 line
# says: leaking SITE Extractor.encode
# says: kept by extractor\.features\[\*\], list of [0-9]+
# advises: each is a view of a storage 197 times its size: clone\(\) it
# never: tensor\.cpu\(\)
"""Of each output of a vision transformer the first token is kept, a view of the storage of all 197."""
import torch
from training import steps


class Extractor:
    def __init__(self):
        self.features, self.scale = [], torch.empty(256, device="cuda")

    def encode(self, patches):
        return patches * self.scale  # site

    def extract(self):
        self.features.append(self.encode(torch.empty(32, 197, 256, device="cuda"))[:, 0])


extractor = Extractor()
with torch.inference_mode():
    for step in steps(20):
        extractor.extract()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: vllm-project/vllm#31577 and hiyouga/EasyR1#11002
# says: Leaking: 1 line
# says: leaking SITE Runner.execute
# says: kept by runner\.encoder_cache\[\*\], dict of [0-9,]+
# advises: runner\.encoder_cache only grows: remove what is no longer needed, bound its size
# never: what this path keeps
# never: encoder_cache\['
"""The manager lists an output as freed in the step that allots it, before the runner has put it into its cache: the pop misses, and
the cache, whose keys are strings, keeps each output."""
import torch
from training import steps


class Manager:
    def __init__(self):
        self.freed = []

    def allot(self, key):
        self.freed.append(key)

    def take_freed(self):
        freed, self.freed = self.freed, []
        return freed


class Runner:
    def __init__(self):
        self.encoder = torch.nn.Linear(256, 1024, device="cuda")
        self.decoder = torch.nn.Linear(1024, 256, device="cuda")
        self.encoder_cache = {}

    @torch.inference_mode()
    def execute(self, key, freed):
        for old in freed:
            self.encoder_cache.pop(old, None)
        self.encoder_cache[key] = self.encoder(torch.empty(256, 256, device="cuda"))  # site
        return self.decoder(self.encoder_cache[key])


manager, runner = Manager(), Runner()
for step in steps(20):
    key = "image %x" % (step * 2654435761 % (1 << 32))
    manager.allot(key)
    runner.execute(key, manager.take_freed())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: python/cpython#88846
# says: Leaking: 1 line
# says: leaking SITE Features.__init__
# says: kept by cache\.known\.data
# advises: values of the WeakKeyDictionary cache\.known refer to their own keys, so no entry ever goes: keep no key in its value
# never: see what keeps the keys
"""A cache of features per sample, in a WeakKeyDictionary: each value has the sample that is its key, so none goes with its sample."""
import weakref

import torch
from training import steps


class Sample:
    def __init__(self, step):
        self.step = step


class Features:
    def __init__(self, sample, scale):
        self.sample, self.tensor = sample, scale * sample.step  # site


class Cache:
    def __init__(self):
        self.known, self.scale = weakref.WeakKeyDictionary(), torch.ones(256, 1024, device="cuda")

    def of(self, sample):
        if sample not in self.known:
            self.known[sample] = Features(sample, self.scale)
        return self.known[sample]


cache = Cache()
for step in steps(20):
    cache.of(Sample(step))

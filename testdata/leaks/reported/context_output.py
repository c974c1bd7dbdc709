#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: PyTorch's notes on extending autograd: an output that is an attribute of ctx is never freed
# says: Leaking: 1 line
# says: leaking SITE Double\.forward
# says: kept by (autograd graph that Python does not hold|no holder found): DoubleBackward\.out
# never: no holder found\.
# never: call (\w+\.)?zero_grad
"""A custom function keeps its output as an attribute of its context instead of by save_for_backward: the output's graph has the context. Python would collect the cycle some day, but the training has turned that off, as many do."""
import gc

import torch
from training import steps


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.out = x * 2  # site
        return ctx.out

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


gc.disable()
layer = torch.nn.Linear(512, 512).cuda()
for step in steps(20):
    Double.apply(layer(torch.empty(512, 512, device="cuda"))).sum().backward()
    layer.zero_grad()

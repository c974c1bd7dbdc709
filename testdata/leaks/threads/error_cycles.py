#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: none
# thread: exceptions that hold their own frames
# keeper: cycles
"""Frames hold their own exception, in a cycle: the collector frees them, every second or so."""
import torch
from torch import nn
from training import steps

model = nn.Linear(512, 512).cuda().eval()


def infer(request):
    image = torch.randn(512, 512, device="cuda")
    kept = None
    try:
        if request % 2:
            raise ValueError("no boxes")
        with torch.no_grad():
            model(image)
    except ValueError as error:
        kept = error
    return kept is None


for request in steps(60):
    infer(request)
    notes = [[request, i] for i in range(150)]
    notes.append(notes)

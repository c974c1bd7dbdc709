#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: notebooks that keep the result of each cell
# keeper: Out
# holder: Out[*]
"""A notebook's history keeps the result of each cell that ends in an expression."""
import torch
from torch import nn
from training import steps

Out = {}


def run_cell(number, cell):
    result = cell()  # site: leak
    if result is not None:
        Out[number] = result


def predictions():
    with torch.no_grad():
        return model(torch.randn(1024, 256, device="cuda"))  # site: leak


def quiet():
    predictions().mean().item()


model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 1000)).cuda().eval()
for number in steps(8):
    run_cell(number, predictions if number % 3 == 0 else quiet)

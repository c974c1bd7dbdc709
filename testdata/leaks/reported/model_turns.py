#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: Comfy-Org/ComfyUI#1201, of models that take turns on the GPU
# long: it does not leak
# says: No line (grows|leaks for certain)
# never: a GPU fills by other means
# never: leaking
"""Two models take turns on the GPU. While an adapter is merged into one, each of its weights has a backup."""
import torch
from torch import nn
from training import steps


def build(width):
    return nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(6)))


models, backup, on_gpu = {"base": build(1024), "refiner": build(1536)}, {}, None


def use(name):
    global on_gpu
    if on_gpu == name:
        return models[name]
    if on_gpu:
        for key, p in models[on_gpu].named_parameters():
            p.data = backup.pop(key)
        models[on_gpu].to("cpu")
    on_gpu = name
    for key, p in models[name].cuda().named_parameters():
        backup[key] = p.data.clone()
        p.data = p.data + 0.1
    return models[name]


with torch.no_grad():
    for step in steps(40):
        model = use("base" if step // 60 % 2 == 0 else "refiner")
        model(torch.empty(8, model[0].in_features, device="cuda"))

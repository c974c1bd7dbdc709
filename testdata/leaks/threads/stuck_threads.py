#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: pytorch/serve#1003
# keeper: thread
# holder: local "hidden" of handle()
"""A server handles each request in a thread; some wait for an answer that never comes."""
import threading
import torch
from torch import nn
from training import steps

model = nn.Linear(512, 512).cuda().eval()


def handle(request, answered):
    with torch.no_grad():
        hidden = model(torch.randn(512, 512, device="cuda"))  # site: leak
    answered.wait()
    return hidden


for request in steps(30):
    answered = threading.Event()
    threading.Thread(target=handle, args=(request, answered), daemon=True).start()
    if request % 6:
        answered.set()

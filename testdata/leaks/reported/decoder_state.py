#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: kyutai-labs/pocket-tts#16 and pytorch/pytorch#82145
# says: Leaking: 2 lines
# says: leaking SITE Decoder.frame
# says: leaking SITE2 Decoder.frame
# says: kept by decoder\.state \(autograd graph\)
# advises: the graph of all steps is kept through decoder\.state: detach\(\) it in each step
# never: kept by no holder found
"""Gradients are switched off in the main thread only: in the worker's, each state keeps the graph of all states before it."""
import queue
import threading

import torch
from training import steps

torch.set_grad_enabled(False)


class Decoder:
    def __init__(self):
        self.mix = torch.nn.Linear(512, 512, bias=False).cuda()
        self.state = torch.empty(512, 512, device="cuda")

    def frame(self):
        noisy = self.state + 0.1  # site
        self.state = torch.tanh(self.mix(noisy))  # site


def work():
    while True:
        requests.get()
        decoder.frame()
        answers.put(None)


decoder, requests, answers = Decoder(), queue.Queue(), queue.Queue()
threading.Thread(target=work, daemon=True).start()
for step in steps(20):
    requests.put(step)
    answers.get()

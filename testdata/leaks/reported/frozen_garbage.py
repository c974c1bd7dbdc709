#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: vllm-project/vllm and others that call gc.freeze() to shorten pauses
# long: of cycles, see gc_disabled.py
# says: Leaking: 1 line
# says: leaking SITE Request.__init__
# says: kept by cycle of Request, State\.cache
# advises: these objects refer to each other, and Python's garbage collector does not free them
# never: what this path keeps
"""Requests and their states refer to each other. gc.freeze() after each batch moves this garbage to where no collection looks."""
import gc

import torch
from training import steps


class Request:
    def __init__(self, rows):
        self.cache = torch.empty(rows, 1024, device="cuda")  # site
        self.state = State(self)


class State:
    def __init__(self, request):
        self.request = request


weight = torch.empty(1024, 1024, device="cuda")
with torch.inference_mode():
    for step in steps(20):
        request = Request(256)
        request.cache @ weight
        if step % 4 == 3:
            gc.freeze()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: pytorch/pytorch#10348
# keeper: traceback
# holder: reports.records[*].exc_info[*]
"""A log handler keeps the records of the last hour; the frames of their tracebacks hold batches."""
import logging
import torch
from torch import nn
from training import steps


class Reports(logging.Handler):
    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)


def infer(model, request):
    image = torch.randn(3, 512, 512, device="cuda")  # site: leak
    if request % 9 == 4:
        raise ValueError("request %d has no boxes" % request)
    with torch.no_grad():
        return model(image.flatten(1)[:, :1024]).sum()


reports = Reports()
log = logging.getLogger("server")
log.propagate = False
log.addHandler(reports)
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16)).cuda()
for request in steps(60):
    try:
        infer(model, request)
    except ValueError:
        log.exception("failed")

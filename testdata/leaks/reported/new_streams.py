#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# report: pytorch/pytorch#180283, of cuBLAS' workspaces by handle and stream
# long: of streams, see transfer_streams.py
# says: leaking SITE connection
# says: cuBLAS workspace
# says: free on [0-9]+ side streams, and no other stream can use them: use the same streams again
# never: activation
"""Each connection brings a stream of its own, as those of a video decoder: cuBLAS gets a workspace for each."""
import ctypes

import torch
from training import steps

runtime = ctypes.CDLL("libcudart.so.12")
model = torch.nn.Linear(512, 512, device="cuda")


@torch.inference_mode()
def connection():
    stream = ctypes.c_void_p()
    assert runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), 1) == 0
    with torch.cuda.stream(torch.cuda.ExternalStream(stream.value)):
        for _ in range(4):
            model(torch.empty(64, 512, device="cuda"))  # site


for step in steps(20):
    if step % 4 == 0:
        connection()

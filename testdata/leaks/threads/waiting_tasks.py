#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: requests whose task is never cancelled
# keeper: coroutine
# holder: tasks[*]
"""An asynchronous server keeps its tasks in a set; those that wait for a lost client stay there."""
import asyncio
import torch
from torch import nn
from training import steps

tasks = set()
model = nn.Linear(512, 512).cuda().eval()


async def handle(request):
    with torch.no_grad():
        hidden = model(torch.randn(700, 512, device="cuda"))  # site: leak
    await asyncio.sleep(0.1 if request % 5 else 3600)
    return hidden.sum()


async def serve():
    for request in steps(40):
        task = asyncio.create_task(handle(request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await asyncio.sleep(0)


asyncio.run(serve())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts programs of this folder for tests, from one process that has already loaded PyTorch:
loading takes longer than many programs run. It reads requests {"argv": […], "env": {…}}, with
two files for stdin and stdout, from the socket at descriptor 3, and forks a process for each
until the socket is closed. It creates no context before the fork."""
import gc, json, os, runpy, signal, socket, sys
import torch, torch._dynamo, torch.optim  # optimizers import the former on creation

requests = socket.socket(fileno=3)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing waits for them
gc.freeze()
while True:
    text, files, _, _ = socket.recv_fds(requests, 1 << 16, 2)
    if not text:
        sys.exit()
    if os.fork():
        for file in files:
            os.close(file)
        continue
    requests.close()
    request = json.loads(text)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    sys.path[0:1] = [os.path.dirname(sys.argv[0]), os.path.dirname(__file__)]  # the latter has training.py
    break
runpy.run_path(sys.argv[0], run_name="__main__")

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts programs of this folder out of one process that has loaded PyTorch, which takes longer than many of them run: for
tests. It reads requests from the socket at descriptor 3, {"argv": […], "env": {…}} with two files for stdin and stdout,
and forks a process for each, until the socket is closed. No context is made before the fork."""
import gc, json, os, runpy, signal, socket, sys
import torch, torch._dynamo, torch.optim  # optimizers load the former when they are made

requests = socket.socket(fileno=3)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
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
    sys.path[0] = os.path.dirname(sys.argv[0])
    break
runpy.run_path(sys.argv[0], run_name="__main__")

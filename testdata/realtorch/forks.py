#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A rank with workers: imports PyTorch, loads more libraries, and forks children that wait. From
SIGUSR1 on, the last forked child trains: it allocates and frees tensors on the GPU. All are
named "forks". Prints "ready MAPPINGS PID": the executable mappings of each process, and the
child that trains. Ends with its stdin."""
import argparse, ctypes, glob, os, signal, sys, time
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--processes", type=int, default=800)
parser.add_argument("--libraries", help="a folder with more libraries")
options = parser.parse_args()


def keep(size):
    return torch.empty(size, device="cuda")  # site: trains


def train():
    signal.sigwait({signal.SIGUSR1})
    kept = []
    for step in range(1 << 30):
        if step % 100 == 0:
            kept.append(keep(1 << 20))
        x = keep(1 << 18)
        del x
        time.sleep(0.002)


libraries = [ctypes.CDLL(path) for path in sorted(glob.glob(options.libraries + "/*.so"))] if options.libraries else []
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2})
os.setpgid(0, 0)
ctypes.CDLL(None).prctl(15, b"forks")  # PR_SET_NAME
children = []
for n in range(options.processes - 1):
    pid = os.fork()
    if pid == 0:
        if n == options.processes - 2:
            train()
        signal.sigwait({signal.SIGUSR2})
        os._exit(0)
    children.append(pid)
with open("/proc/self/maps") as maps:
    mappings = sum(" r-xp " in line and "/" in line for line in maps)
print("ready", mappings, children[-1], flush=True)
sys.stdin.read()
for pid in children:
    os.kill(pid, signal.SIGKILL)

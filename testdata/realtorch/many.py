# SPDX-License-Identifier: Apache-2.0
"""many.py COUNT: has COUNT blocks of all sizes on one GPU, in the order in which a program that runs for long has them,
prints a line, and waits for a line."""
import random
import sys

import torch

torch.backends.cudnn.enabled = False
dice = random.Random(1)
count = int(sys.argv[1])
live = [torch.empty(dice.randrange(1, 5000), dtype=torch.uint8, device="cuda") for _ in range(count)]
for _ in range(3):  # addresses of Blocks and of their memory have no order in common
    dice.shuffle(live)
    del live[count * 2 // 3 :]
    while len(live) < count:
        live.append(torch.empty(dice.randrange(1, 5000), dtype=torch.uint8, device="cuda"))
dice.shuffle(live)
del live[count * 3 // 4 :]
print("point", flush=True)
sys.stdin.readline()

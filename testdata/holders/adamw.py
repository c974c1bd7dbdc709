# SPDX-License-Identifier: Apache-2.0
"""A training without a pause, or with one of argv[1] seconds in each step. Prints, as JSON, the bytes of AdamW's
exp_avg, which stay the same, and trains until its input ends."""
import json, sys, threading, time
import torch
import torch.nn as nn

torch.backends.cudnn.enabled = False
WIDTH, LAYERS, BATCH = 512, 6, 1024
pause = float(sys.argv[1])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def main():
    model = nn.Sequential(*[Block() for _ in range(LAYERS)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(pause):
        loss = model(torch.empty(BATCH, WIDTH, device="cuda")).square().mean()
        time.sleep(pause)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step(0)
    step(0)
    print(json.dumps({"exp_avg": sum(s["exp_avg"].untyped_storage().nbytes() for s in optimizer.state.values())}), flush=True)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    while not over.is_set():
        step(pause)


main()

# SPDX-License-Identifier: Apache-2.0
"""A training whose memory was allocated long before anyone looks: a model, its gradients, Adam's state, the activations
of a step that waits between forward and backward, and logits that are kept after each step and never needed again.
Writes to the file that argv[1] names, as JSON, the bytes of each of them, of the allocator, and of its cache. Prints
"ready PID" within a step; each line of its input lets it go on to the next step, "step N", and the end of its input ends it."""
import json, os, sys
import torch
import torch.nn as nn

WIDTH, BATCH, LAYERS, KEPT = 2048, 8192, 8, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Trainer:
    def __init__(self):
        self.model = Model().cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.batch = torch.ones(BATCH, WIDTH, device="cuda")
        self.logits = []

    def step(self, pause):
        logits = self.model(self.batch)
        loss = logits.square().mean()
        self.logits.append(logits.detach().clone())  # the leak
        del logits
        pause(loss)
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        self.optimizer.step()


def size(tensors):
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t is not None and t.is_cuda}.values())


def write_truth(trainer, loss):
    truth = {
        "model": size(trainer.model.parameters()),
        "gradients": size(p.grad for p in trainer.model.parameters()),
        "optimizer": size(v for state in trainer.optimizer.state.values() for v in state.values()),
        "batch": size([trainer.batch]),
        "leak": size(trainer.logits),
        "loss": size([loss]),
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
    }
    # What is left are the activations of the step, and what the allocator rounds up to.
    truth["activations"] = truth["allocated"] - sum(truth[k] for k in ("model", "gradients", "optimizer", "batch", "leak", "loss"))
    with open(sys.argv[1] + ".new", "w") as file:
        json.dump(truth, file)
    os.rename(sys.argv[1] + ".new", sys.argv[1])


def wait(loss):
    write_truth(trainer, loss)
    done = len(trainer.logits)
    print("ready %d" % os.getpid() if done == KEPT else "step %d" % done, flush=True)
    if not sys.stdin.readline():
        sys.exit()


trainer = Trainer()
while True:
    trainer.step(wait if len(trainer.logits) + 1 >= KEPT else lambda loss: None)

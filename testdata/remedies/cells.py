# SPDX-License-Identifier: Apache-2.0
"""Trains a cell that is called for each letter and attends to what a bidirectional layer made of the input."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Speaker(nn.Module):
    def __init__(self, letters, width, seen):
        super().__init__()
        self.embed, self.cell = nn.Embedding(letters, width), nn.GRUCell(width + seen, width)
        self.ask, self.match, self.say = nn.Linear(width, seen), nn.Linear(seen, 1), nn.Linear(width + seen, letters)

    def forward(self, letter, state, seen, keys):
        scores = self.match(torch.tanh(keys + self.ask(state)[:, None])).squeeze(2)
        context = (scores.softmax(1)[:, :, None] * seen).sum(1)
        state = self.cell(torch.cat((self.embed(letter), context), 1), state)
        return self.say(torch.cat((state, context), 1)), state


class Model(nn.Module):
    def __init__(self, r, letters=80, width=256):
        super().__init__()
        self.r = r
        self.front = nn.Sequential(nn.Conv1d(40, width, 5, 2, 2), nn.ReLU(), nn.Conv1d(width, width, 5, 2, 2), nn.ReLU())
        self.both = nn.ModuleList(nn.GRUCell(width, width // 2) for _ in range(2))
        self.keys, self.begin = nn.Linear(width, width), nn.Linear(width, width)
        self.speaker = Speaker(letters, width, width)

    def read(self, x):
        out = []
        for cell, order in zip(self.both, (range(x.shape[1]), range(x.shape[1] - 1, -1, -1))):
            state, told = x.new_zeros(len(x), cell.hidden_size), [None] * x.shape[1]
            for n in order:
                told[n] = state = cell(x[:, n], state)
            out.append(torch.stack(told, 1))
        return torch.cat(out, 2)

    def forward(self, sound, text):
        seen = self.read(self.front(sound).transpose(1, 2))
        keys, state, said = self.keys(seen), torch.tanh(self.begin(seen.mean(1))), []
        for n in range(text.shape[1]):
            logits, state = self.r.call(self.speaker, text[:, n], state, seen, keys)
            said.append(logits)
        return torch.stack(said, 1)


def job(r):
    model = r.model(Model(r))
    optimizer = r.adam(model.parameters())
    for _ in range(3):
        text = remedy.tokens(r.batch(16), 20)
        loss = remedy.guess(model(r.input(r.batch(16), 40, 160), text), text)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()


remedy.run(job)

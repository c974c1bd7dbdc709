# SPDX-License-Identifier: Apache-2.0
"""Trains PyTorch's own decoder layers on features of pictures, with autocast in float16 and a scaler of gradients."""
import torch
from torch import nn
from torch.nn import functional as F
import remedy


class Captions(nn.Module):
    def __init__(self, r, width=256, layers=4, words=4000):
        super().__init__()
        self.r = r
        self.features = nn.Sequential(nn.Conv2d(3, 64, 8, 8), nn.GELU(), nn.Conv2d(64, width, 2, 2))
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(1, 128, width))
        self.layers = nn.ModuleList(nn.TransformerDecoderLayer(width, 8, 4 * width, 0.1, batch_first=True, norm_first=True) for _ in range(layers))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, pictures, words):
        memory = self.features(pictures).flatten(2).transpose(1, 2)
        x = self.words(words) + self.places[:, :words.shape[1]]
        future = nn.Transformer.generate_square_subsequent_mask(words.shape[1], device=x.device)
        for layer in self.layers:
            x = self.r.call(layer, x, memory, future)
        return self.out(self.norm(x))


def job(r):
    model = r.model(Captions(r))
    optimizer = r.adam(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(4):
        words = remedy.tokens(r.batch(12), 80)
        with torch.autocast("cuda", torch.float16):
            said = model(r.input(len(words), 3, 128, 128), words)
            loss = F.cross_entropy(said.flatten(0, 1), words.flatten(), label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()


remedy.run(job)

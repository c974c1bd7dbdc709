# SPDX-License-Identifier: Apache-2.0
"""Trains a network on graphs: each layer gathers what two ends of an edge say, and adds it up for each node."""
import torch
from torch import nn
import remedy


class Messages(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.edge = nn.Sequential(nn.Linear(2 * width + 8, 2 * width), nn.ReLU(inplace=True), nn.Linear(2 * width, width))
        self.node = nn.Sequential(nn.Linear(2 * width, width), nn.BatchNorm1d(width), nn.ReLU())

    def forward(self, nodes, source, target, distance):
        said = self.edge(torch.cat((nodes[source], nodes[target], distance), 1))
        heard = torch.zeros_like(nodes).index_add_(0, target, said)
        count = torch.zeros(len(nodes), 1, dtype=nodes.dtype, device=nodes.device).index_add_(0, target, torch.ones_like(said[:, :1]))
        return nodes + self.node(torch.cat((nodes, heard / count.clamp(min=1)), 1))


class Net(nn.Module):
    def __init__(self, r, width=128, layers=6):
        super().__init__()
        self.r = r
        self.begin = nn.Linear(16, width)
        self.layers = nn.ModuleList(Messages(width) for _ in range(layers))
        self.end = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.2), nn.Linear(width, 1))

    def forward(self, features, source, target, distance, graph, graphs):
        x = self.begin(features)
        for layer in self.layers:
            x = self.r.call(layer, x, source, target, distance)
        pooled = torch.zeros(graphs, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, graph, x)
        return self.end(pooled).squeeze(1)


def job(r):
    model = r.model(Net(r))
    optimizer = r.adam(model.parameters())
    for step in range(6):
        graphs = r.batch(64 + 16 * (step % 3))
        nodes, edges = 30 * graphs, 240 * graphs
        source, target, graph = (torch.zeros(n, dtype=torch.long, device="cuda") for n in (edges, edges, nodes))
        loss = nn.functional.smooth_l1_loss(model(r.input(nodes, 16), source, target, r.input(edges, 8), graph, graphs), r.input(graphs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


remedy.run(job)

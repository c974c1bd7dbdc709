# SPDX-License-Identifier: Apache-2.0
"""Serves from captured CUDA graphs, whose pools are private, and keeps the answers while it trains a second model."""
import torch
import remedy


def job(r):
    served = r.model(remedy.Block(256))
    inputs, graphs = [r.input(n, 64, 256) for n in (1, 2, 4, 8)], []
    for x in inputs:
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            y = served(x)
        graphs.append((graph, y))
    model = r.model(remedy.Language(r, 4, 256))
    optimizer = r.adam(model.parameters())
    answers = []
    for step in range(8):
        graph, y = graphs[step % 4]
        graph.replay()
        answers.append(r.keep(y.clone().repeat(4, 1, 1)))  # site: kept
        x = remedy.tokens(4, 128)
        loss = remedy.guess(model(x), x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


remedy.run(job)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training process with a leak: a list meant for logging keeps one allocation per step."""
import argparse
import os
import queue
import signal
import sys
import threading
import time
from collections import OrderedDict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "site-packages"))
import minitorch  # noqa: E402


class Linear:
    def __init__(self, inputs, outputs):
        self.weight = minitorch.Tensor(inputs, outputs)
        self.gradient = None

    def forward(self, x):
        return minitorch.Tensor(x.shape[0], self.weight.shape[1])

    def backward(self):
        self.gradient = minitorch.Tensor(*self.weight.shape)


class Model:
    def __init__(self, width, depth):
        self.layers = [Linear(width, width) for _ in range(depth)]

    def forward(self, x):
        activations = []
        for layer in self.layers:
            x = layer.forward(x)
            activations.append(x)
        return activations

    def backward(self, activations):
        for layer in reversed(self.layers):
            activations.pop()
            layer.backward()


class Optimizer:
    def __init__(self, model):
        self.model = model
        self.momentum = [minitorch.Tensor(*layer.weight.shape) for layer in model.layers]

    def step(self):
        for layer in self.model.layers:
            layer.gradient = None


class EmbeddingCache:
    """Bounded: looks like a leak only for the first `capacity` keys."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.rows = OrderedDict()

    def lookup(self, key):
        if key in self.rows:
            self.rows.move_to_end(key)
            return self.rows[key]
        if len(self.rows) >= self.capacity:
            self.rows.popitem(last=False)
        self.rows[key] = minitorch.Tensor(256, 64)
        return self.rows[key]


class DataLoader(threading.Thread):
    def __init__(self, batch_bytes, stop):
        super().__init__(name="data-loader", daemon=True)
        self.batch_bytes = batch_bytes
        self.stop = stop
        self.batches = queue.Queue(maxsize=4)

    def load_batch(self):
        buffer = minitorch.PinnedBuffer(self.batch_bytes)
        buffer.write(b"\0" * 4096)
        return buffer

    def run(self):
        while not self.stop.is_set():
            batch = self.load_batch()
            while not self.stop.is_set():
                try:
                    self.batches.put(batch, timeout=0.1)
                    break
                except queue.Full:
                    continue


class Augmenter(threading.Thread):
    def __init__(self, number, step_seconds, stop):
        super().__init__(name=f"augment-{number}", daemon=True)
        self.step_seconds = step_seconds
        self.stop = stop

    def augment(self):
        crop = minitorch.Tensor(64, 3, 96, 96)
        flip = minitorch.Tensor(64, 3, 96, 96)
        return crop, flip

    def run(self):
        while not self.stop.wait(self.step_seconds):
            self.augment()


class Trainer:
    def __init__(self, options):
        self.options = options
        self.model = Model(width=512, depth=6)
        self.optimizer = Optimizer(self.model)
        self.cache = EmbeddingCache(capacity=64)
        self.stop = threading.Event()
        step_seconds = max(options.step_ms, 1) / 1000
        self.loader = DataLoader(1 << 20, self.stop)
        self.workers = [self.loader] + [Augmenter(i, step_seconds, self.stop) for i in range(2)]
        self.metrics = []

    def train_step(self, step):
        batch = self.loader.batches.get()
        x = minitorch.Tensor(64, 512)
        batch.close()
        self.cache.lookup(step * 31 % 97)
        activations = self.model.forward(x)
        loss = minitorch.Tensor(self.options.leak_bytes // 4)
        self.model.backward(activations)
        self.optimizer.step()
        self.metrics.append(loss.clone())  # the leak: keeps device memory of every step

    def fit(self):
        for worker in self.workers:
            worker.start()
        begin, step = time.monotonic(), 0
        while not self.stop.is_set():
            if self.options.steps and step >= self.options.steps:
                break
            if self.options.seconds and time.monotonic() - begin >= self.options.seconds:
                break
            self.train_step(step)
            step += 1
            if self.options.step_ms:
                time.sleep(self.options.step_ms / 1000)
        self.stop.set()
        for worker in self.workers:
            worker.join()
        return step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=0, help="0: no limit")
    parser.add_argument("--seconds", type=float, default=0, help="0: no limit")
    parser.add_argument("--step-ms", type=float, default=20)
    parser.add_argument("--leak-bytes", type=int, default=256 << 10, help="per step")
    options = parser.parse_args()
    minitorch.set_device(0)
    trainer = Trainer(options)
    signal.signal(signal.SIGTERM, lambda *_: trainer.stop.set())
    print("ready", os.getpid(), flush=True)
    print("steps", trainer.fit(), flush=True)


if __name__ == "__main__":
    main()

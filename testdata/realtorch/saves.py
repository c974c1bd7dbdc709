# SPDX-License-Identifier: Apache-2.0
"""Prints what operators save for the backward pass, by torch.autograd.graph.saved_tensors_hooks: a line of JSON for each,
    {"node": "MulBackward0", "saves": ["input 0", "input 1"]}
All inputs require gradients; the operators run on the CPU, and save there what they save on a GPU. "copy" is what has the size
of the first input and is neither an input nor the result: of an operator in place, its input as it was."""
import json
import torch
from torch.nn import functional as F


def inputs(*shapes):
    return [torch.ones(s).requires_grad_() for s in shapes]


def show(function, *shapes, inplace=False):
    tensors = inputs(*shapes)
    if inplace:
        tensors[0] = tensors[0] + 1
    sizes = {t.untyped_storage().data_ptr(): "input %d" % n for n, t in enumerate(tensors)}
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append((t.untyped_storage().data_ptr(), t.numel())), lambda t: None):
        result = function(*tensors)
    result = result[0] if isinstance(result, tuple) else result
    sizes[result.untyped_storage().data_ptr()] = "result"
    names = {sizes.get(at, "copy" if count == tensors[0].numel() else "") for at, count in saved}
    print(json.dumps(dict(node=type(result.grad_fn).__name__, saves=sorted(names - {""}))))


for name in "relu sigmoid tan tanh exp exp2 expm1 sqrt rsqrt reciprocal abs log log1p log2 log10 erf sin cos neg floor mean sum".split():
    show(getattr(torch, name), (64, 32))
for name in "logsumexp amax amin cumprod cumsum".split():
    show(lambda x: getattr(torch, name)(x, 1), (64, 32))
show(lambda x: x.pow(2), (64, 32))
show(lambda x: x.clamp(0, 1), (64, 32))
show(lambda x: x.clamp_min(0), (64, 32))
for name in "gelu silu mish elu celu leaky_relu hardswish softplus logsigmoid hardtanh hardsigmoid hardshrink softshrink glu".split():
    show(getattr(F, name), (64, 32))
show(lambda x: F.threshold(x, 0.1, 20), (64, 32))
show(lambda x: x.softmax(1), (64, 32))
show(lambda x: x.log_softmax(1), (64, 32))
show(lambda x: torch.linalg.vector_norm(x, 2, 1), (64, 32))
for name in "relu elu celu leaky_relu silu hardtanh".split():
    show(lambda x: getattr(F, name)(x, inplace=True), (64, 32), inplace=True)
show(lambda x: x.sigmoid_(), (64, 32), inplace=True)
show(lambda x: x.clamp_(0, 1), (64, 32), inplace=True)
show(lambda x: F.threshold(x, 0.1, 20, inplace=True), (64, 32), inplace=True)
for size in (2, 3):
    shape = (2, 4) + (8,) * size
    for name in ("avg_pool%dd" % size, "max_pool%dd" % size):
        show(lambda x: getattr(F, name)(x, 2), shape)
    show(lambda x: getattr(F, "adaptive_avg_pool%dd" % size)(x, 2), shape)
show(torch.mul, (64, 32), (64, 32))
show(torch.mul, (64, 32), (32,))
show(torch.div, (64, 32), (64, 32))
show(torch.add, (64, 32), (64, 32))
show(torch.sub, (64, 32), (64, 32))
show(torch.pow, (64, 32), (64, 32))
show(torch.addcmul, (64, 32), (64, 48, 32)[::2], (64, 32))
show(F.prelu, (64, 32), (32,))
show(torch.mm, (64, 32), (32, 16))
show(torch.bmm, (4, 64, 32), (4, 32, 16))
show(lambda a, b: torch.addmm(torch.zeros(16), a, b), (64, 32), (32, 16))
show(lambda a, b: torch.baddbmm(torch.zeros(4, 64, 16), a, b), (4, 64, 32), (4, 32, 16))
show(lambda a, b: F.conv2d(a, b), (2, 4, 8, 8), (4, 4, 3, 3))
show(lambda x: F.layer_norm(x, (32,)), (64, 32))
show(lambda x: F.group_norm(x, 2), (2, 4, 8, 8))
show(lambda x: F.batch_norm(x, None, None, training=True), (2, 4, 8, 8))
show(lambda a, b: torch.cat((a, b)), (64, 32), (64, 32))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# library: scratch.c
"""An extension takes scratch memory of its own for each call, and does not give it back. The path of the library is
in LEAKS_LIBRARY."""
import ctypes, os
import torch
from training import steps

library = ctypes.CDLL(os.environ["LEAKS_LIBRARY"])
library.smooth.argtypes = ctypes.c_void_p, ctypes.c_size_t
with torch.no_grad():
    for step in steps():
        image = torch.rand(3, 224, 224, device="cuda")
        if step % 3 == 0:
            assert library.smooth(image.data_ptr(), image.nbytes) == 0  # site: leak
        image.mul_(255).clamp_(0, 255)

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# library: scratch.c
"""An extension allocates scratch memory in each call and never frees it. LEAKS_LIBRARY is the
path of the library."""
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

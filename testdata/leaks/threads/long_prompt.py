#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# verdict: leaking
# thread: chats whose history is never cut
# keeper: attribute that is written anew
# holder: chat.mask
"""A chat's prompt grows with each turn and is never cut: its mask is built anew, for the whole of it."""
import torch
from torch import nn
from training import steps


class Chat:
    def __init__(self):
        self.tokens, self.mask = 64, None

    def turn(self):
        self.tokens += 24
        self.mask = torch.full((self.tokens, self.tokens), -1.0, device="cuda").triu(1)  # site: leak
        return model(torch.randn(64, 256, device="cuda"))


chat = Chat()
model = nn.Linear(256, 256).cuda().eval()
for step in steps(15):
    with torch.inference_mode():
        chat.turn()

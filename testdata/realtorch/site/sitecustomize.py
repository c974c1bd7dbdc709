# SPDX-License-Identifier: Apache-2.0
"""Gives the process, started by the dynamic loader, the name of a normal Python process."""
import os

with open("/proc/self/comm", "w") as comm:
    comm.write(os.environ.get("PYTHON_COMM", "python3"))

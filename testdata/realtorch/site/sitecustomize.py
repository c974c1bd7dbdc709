# SPDX-License-Identifier: Apache-2.0
"""Names the process, which the dynamic loader runs, as a user's is named."""
import os

with open("/proc/self/comm", "w") as comm:
    comm.write(os.environ.get("PYTHON_COMM", "python3"))

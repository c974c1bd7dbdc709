# SPDX-License-Identifier: Apache-2.0
"""Names the process, which the dynamic loader runs, as a user's is named."""
with open("/proc/self/comm", "w") as comm:
    comm.write("python3")

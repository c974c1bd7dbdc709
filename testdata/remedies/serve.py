# SPDX-License-Identifier: Apache-2.0
"""Runs each job that a line of stdin asks for, {"args": ["…/transformer.py", "--remedy", "half"], "env": {…}}, in a
process forked after the import of PyTorch, which takes most of the time. Each prints its line of JSON, or {"error": …}."""
import json
import os
import runpy
import sys

import remedy  # and with it PyTorch

assert not remedy.torch.cuda.is_initialized()
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.environ.update(asked["env"])
        sys.argv = asked["args"]
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except BaseException as e:
            print(json.dumps({"error": repr(e)}), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)

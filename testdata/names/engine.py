# SPDX-License-Identifier: Apache-2.0
"""engine.py NAME: keeps a KV cache as vLLM or SGLang do, and answers /metrics with the names of that engine on a port of
its own on loopback. Prints "ready BYTES", those of the cache, and waits for its input to end."""
import http.server
import sys
import threading

import torch

BLOCKS = 256
TEXT = {
    "vllm": '# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25\n'
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="256"} 1.0\n',
    "sglang": '# TYPE sglang:token_usage gauge\nsglang:token_usage{model_name="m"} 0.5\nsglang:max_total_num_tokens 4096.0\n',
}


class Metrics(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = TEXT[sys.argv[1]].encode() if self.path == "/metrics" else b""
        self.send_response(200 if text else 404)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


class GPUModelRunner:  # vLLM
    def __init__(self):
        raw = torch.empty(2 * 2 * BLOCKS * 16 * 8 * 64, dtype=torch.float16, device="cuda")  # one tensor for all layers
        self.kv_caches = [layer.view(2, BLOCKS, 16, 8, 64) for layer in raw.chunk(2)]
        self.bytes = raw.nbytes


class MHATokenToKVPool:  # SGLang
    def __init__(self):
        self.k_buffer = [torch.empty(4096, 8, 64, dtype=torch.float16, device="cuda") for _ in range(2)]
        self.v_buffer = [torch.empty(4096, 8, 64, dtype=torch.float16, device="cuda") for _ in range(2)]
        self.bytes = sum(t.nbytes for t in self.k_buffer + self.v_buffer)


class Scheduler:
    def __init__(self):
        self.token_to_kv_pool = MHATokenToKVPool()
        self.bytes = self.token_to_kv_pool.bytes


engine = {"vllm": GPUModelRunner, "sglang": Scheduler}[sys.argv[1]]()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metrics)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("ready", engine.bytes, flush=True)
sys.stdin.read()

# SPDX-License-Identifier: Apache-2.0
"""llama.py FOLDER MODEL CONTEXT: loads llama.cpp's libraries from FOLDER, has it load a small model and make a context of
CONTEXT tokens, and evaluates a prompt. The model is written to MODEL. Prints "loaded", waits for a line, prints "ready" and
waits again. On stderr are llama.cpp's own log, and "weights BYTES" and "kv BYTES" by the shapes of the tensors on the GPU."""
import ctypes
import glob
import os
import struct
import sys

LAYERS, WIDTH, HEADS, FEED_FORWARD, WORDS = 6, 512, 8, 1408, 4000


def write_model(path):
    """Writes a model of the architecture llama, whose weights are zero, as GGUF 3."""
    F32, F16 = 0, 1
    tensors = [("token_embd.weight", (WIDTH, WORDS), F16), ("output_norm.weight", (WIDTH,), F32), ("output.weight", (WIDTH, WORDS), F16)]
    for i in range(LAYERS):
        tensors += [(f"blk.{i}.{name}.weight", shape, kind) for name, shape, kind in (
            ("attn_norm", (WIDTH,), F32), ("attn_q", (WIDTH, WIDTH), F16), ("attn_k", (WIDTH, WIDTH), F16), ("attn_v", (WIDTH, WIDTH), F16),
            ("attn_output", (WIDTH, WIDTH), F16), ("ffn_norm", (WIDTH,), F32), ("ffn_gate", (WIDTH, FEED_FORWARD), F16),
            ("ffn_down", (FEED_FORWARD, WIDTH), F16), ("ffn_up", (WIDTH, FEED_FORWARD), F16))]

    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()

    def number(key, value):
        return text(key) + struct.pack("<II", 4, value)

    values = [text("general.architecture") + struct.pack("<I", 8) + text("llama"),
              text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("no_vocab"),
              number("llama.vocab_size", WORDS), number("llama.context_length", 1 << 17), number("llama.embedding_length", WIDTH),
              number("llama.block_count", LAYERS), number("llama.feed_forward_length", FEED_FORWARD),
              number("llama.attention.head_count", HEADS), number("llama.attention.head_count_kv", HEADS),
              text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(values)
    at = on_gpu = 0
    for name, shape, kind in tensors:
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, at)
        size = 4 >> kind
        for n in shape:
            size *= n
        at += (size + 31) // 32 * 32
        if name != "token_embd.weight":  # stays on the host
            on_gpu += size
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32))
        f.truncate(f.tell() + at)
    return on_gpu


# Structures that llama.cpp takes and returns by value: longer than those of any version, of which only the first fields
# matter here.
class Params(ctypes.Structure):
    _fields_ = [("words", ctypes.c_int32 * 128)]


class Batch(ctypes.Structure):
    _fields_ = [("words", ctypes.c_void_p * 8)]


def library(folder, pattern):
    return ctypes.CDLL(glob.glob(os.path.join(folder, pattern))[0], mode=ctypes.RTLD_GLOBAL)


def function(of, name, result, *arguments):
    f = getattr(of, name)
    f.restype, f.argtypes = result, arguments
    return f


def load(path):
    params = function(llama, "llama_model_default_params", Params)()
    params.words[2] = 99  # n_gpu_layers
    model = function(llama, "llama_model_load_from_file", ctypes.c_void_p, ctypes.c_char_p, Params)(path.encode(), params)
    assert model
    return model


def open_context(model, tokens):
    params = function(llama, "llama_context_default_params", Params)()
    params.words[0] = tokens  # n_ctx
    context = function(llama, "llama_init_from_model", ctypes.c_void_p, ctypes.c_void_p, Params)(model, params)
    assert context
    return context


def evaluate(context, tokens):
    prompt = (ctypes.c_int32 * tokens)(*range(1, tokens + 1))
    batch = function(llama, "llama_batch_get_one", Batch, ctypes.c_void_p, ctypes.c_int32)(ctypes.addressof(prompt), tokens)
    result = function(llama, "llama_decode", ctypes.c_int32, ctypes.c_void_p, Batch)(context, batch)
    assert result == 0, result


folder, path, tokens = sys.argv[1], sys.argv[2], int(sys.argv[3])
weights = write_model(path)
library(folder, "libggml-base.so")
ggml = library(folder, "libggml.*so")
llama = library(folder, "libllama.*so")
ctypes.CDLL("libcuda.so.1")
library(folder, "libggml-cuda.so")
print("loaded", flush=True)
sys.stdin.readline()
function(ggml, "ggml_backend_load_all_from_path", None, ctypes.c_char_p)(folder.encode())
model = load(path)
context = open_context(model, tokens)
evaluate(context, 64)
print("weights", weights, file=sys.stderr)
print("kv", 2 * 2 * LAYERS * WIDTH * tokens, file=sys.stderr)  # keys and values of 2 bytes
print("ready", flush=True)
sys.stdin.readline()

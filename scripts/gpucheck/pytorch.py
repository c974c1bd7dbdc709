# SPDX-License-Identifier: Apache-2.0
"""What vramprof assumes of a build of PyTorch, asked of the files that a training maps."""
import time
from .counting import counters, mapped, total
from .elf import ELF

REPORTS = "_ZN3c1027reportMemoryUsageToProfilerEPv"
OUT_OF_MEMORY = "_ZN3c1026reportOutOfMemoryToProfilerE"
# Called often within the runtime? Then vramprof must not probe them.
CALLS = (("libcuda.so", "cuCtxGetCurrent"), ("libcuda.so", "cuCtxGetDevice"), ("libcuda.so", "cuCtxSetCurrent"), ("libcudart", "cudaGetDevice"))

# Backward passes run on threads of autograd's own, which have no Python frames.
AUTOGRAD = "torch::autograd::Engine::"


def python_frames(stacks):
    """Returns whether stacks of tensors have Python frames: True, False, or None if no stack shows it."""
    asked = [s for s in stacks if not any(f["function"].startswith("[no stack trace") or f["function"].startswith(AUTOGRAD) for f in s)]
    return any(f["language"] == "python" for s in asked for f in s) if asked else None


def read(path):
    try:
        return ELF(path)
    except (OSError, ValueError, IndexError, KeyError):
        return None


def builds(answers, files):
    """Asks how PyTorch's libraries were built."""
    for name in ("libc10.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_python.so"):
        elf = read(next((p for file, p in sorted(files.items()) if file.startswith(name)), ""))
        if elf is None:
            continue
        sections = elf.sections
        answers.add("%s has" % name, "%s, %s, %d USDT probes" % (
            ".symtab" if ".symtab" in sections else "no .symtab", ".eh_frame" if ".eh_frame" in sections else "no .eh_frame", elf.probes()), None)
        answers.add("%s has unwind tables" % name, "yes" if ".eh_frame" in sections else "no", ".eh_frame" in sections)
        if name == "libc10.so":
            names = [n for n, _ in elf.symbols() if n.startswith((REPORTS, OUT_OF_MEMORY))]
            answers.add("libc10.so exports what vramprof probes", ", ".join(n[len("_ZN3c1027report"):] for n in sorted(names)) or "nothing",
                        any(n.startswith(REPORTS) for n in names))
            answers.add("libc10.so reports out-of-memory errors", "yes" if any(n.startswith(OUT_OF_MEMORY) for n in names) else "no", None)


def rates(answers, pid, files, work):
    """Counts functions of CUDA while work runs."""
    for library, function in CALLS:
        path = next((p for name, p in sorted(files.items()) if name.startswith(library)), None)
        elf = read(path) if path else None
        address = dict(elf.symbols()).get(function) if elf else None
        question = "calls of %s per second of training" % function
        if address is None:
            answers.add(question, "not asked: no %s with that symbol" % library, None)
            continue
        try:
            fds = counters(pid, path, elf.offset(address))
        except OSError as error:
            answers.add(question, "not asked: %s" % error.strerror, None)
            continue
        begin = time.monotonic()
        work()
        seconds = time.monotonic() - begin
        answers.add(question, "%.0f" % (total(fds) / seconds), None)


def ask(answers, pid, work):
    files = mapped(pid)
    builds(answers, files)
    rates(answers, pid, files, work)

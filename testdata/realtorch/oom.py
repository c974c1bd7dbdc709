#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs out of memory on purpose, on a GPU with about 1 GiB beside the context. Ways:
    retry    PyTorch frees its cache and the request succeeds
    fatal    PyTorch gives up; the process ends after holding the exception for 3 s
    uncaught the same, but the process ends at once
    caught   the same, but the program catches the exception and continues
    flood    the same --count times
    foreign  a library other than PyTorch's requests too much from cudaMalloc
Points: "before", "failed" for each caught failure, "end". Lines that tests look for end in
"# site: NAME"."""
import argparse, ctypes, sys, time
import torch
import jobs

MIB = 1 << 20


def hold(mib, pieces):
    return [torch.empty(mib * MIB // pieces, dtype=torch.uint8, device="cuda") for _ in range(pieces)]  # site: holder


def ask(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")  # site: ask


def refused(mib):
    try:
        ask(mib)
    except torch.OutOfMemoryError as e:
        return str(e)
    raise SystemExit("the allocation succeeded")


def end_slowly(*exception):
    sys.__excepthook__(*exception)
    time.sleep(3)  # with the frames that hold the tensors


def main():
    foreign = ctypes.CDLL("libforeign.so")
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("way", choices=("retry", "fatal", "uncaught", "caught", "flood", "foreign"))
    p.add_argument("--count", type=int, default=100)
    options = jobs.arguments(p)
    total = torch.cuda.mem_get_info()[0] // MIB
    held = hold(total // 2, 8)
    with torch.cuda.stream(torch.cuda.Stream()):  # cached, and unusable for others
        hold(total // 4, 4)
    jobs.point("before")
    stats = torch.cuda.memory_stats
    if options.way == "retry":
        held.append(ask(total // 3))
        assert stats()["num_alloc_retries"] == 1 and stats()["num_ooms"] == 0, "no retry"
    elif options.way in ("fatal", "uncaught"):
        if options.way == "fatal":
            sys.excepthook = end_slowly
        ask(total)
    elif options.way == "caught":
        print(refused(total), flush=True)
        jobs.point("failed")
    elif options.way == "flood":
        for _ in range(options.count):
            refused(total)
        assert stats()["num_ooms"] == options.count
    elif options.way == "foreign":
        foreign.foreign_hold.restype, foreign.foreign_hold.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        assert foreign.foreign_hold(total * MIB) is None  # site: foreign
        jobs.point("failed")
    jobs.point("end")


if __name__ == "__main__":
    main()

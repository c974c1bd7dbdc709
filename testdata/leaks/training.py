# SPDX-License-Identifier: Apache-2.0
"""The loop that all programs here have: how long it runs, and how fast.

A step takes 4 ms at least and stands for one of 50 ms or more: 6 s are more than a minute of training. A program prints
"ready PID" when its loop begins, and "done PID" when that has run for --seconds and for two thirds of the steps that fit
into them. With --hold it goes on as before, until its stdin ends."""
import argparse, os, select, sys, time
import torch

torch.backends.cudnn.enabled = False  # a stub, of no version
RATE = 250  # steps a second, at most


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--hold", action="store_true", help="go on until stdin ends")
    return p.parse_args()


def say(word):
    os.write(1, b"%s %d\n" % (word, os.getpid()))  # at once: processes may share stdout


def rest(until, hold):
    """Waits; says whether to stop because stdin has ended."""
    delay = max(0, until - time.monotonic())
    if not hold:
        time.sleep(delay)
        return False
    return bool(select.select([sys.stdin], [], [], delay)[0])


def steps():
    """Yields 0, 1, 2, …: the numbers of the steps."""
    o = options()
    torch.cuda.init()
    say(b"ready")
    begin, step, done = time.monotonic(), 0, False
    while not rest(begin + step / RATE, o.hold):
        yield step
        step += 1
        if not done and step >= o.seconds * RATE * 2 / 3 and time.monotonic() - begin >= o.seconds:
            done = True
            say(b"done")
            if not o.hold:
                return

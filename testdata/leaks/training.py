# SPDX-License-Identifier: Apache-2.0
"""The loop of all programs in this folder: how long it runs, and how fast.

By default, a step takes at least 4 ms and represents one of 50 ms or more: 6 s represent more than
a minute of training. A program prints "ready PID" when its loop starts, and "done PID" once it
has run for --seconds and for two thirds of the steps in that time. With --hold, the loop
continues until stdin ends."""
import argparse, os, select, sys, time
import torch

torch.backends.cudnn.enabled = False  # a stub without a version
RATE = 250  # steps per second, at most, by default


def options():
    p = argparse.ArgumentParser()
    p.add_argument("--seconds", type=float, default=6)
    p.add_argument("--hold", action="store_true", help="continue until stdin ends")
    return p.parse_args()


def say(word):
    os.write(1, b"%s %d\n" % (word, os.getpid()))  # unbuffered: processes may share stdout


def rest(until, hold):
    """Waits; returns whether to stop because stdin has ended."""
    delay = max(0, until - time.monotonic())
    if not hold:
        time.sleep(delay)
        return False
    return bool(select.select([sys.stdin], [], [], delay)[0])


def steps(rate=RATE):
    """Yields the numbers of the steps: 0, 1, 2, … At step n, at least n / rate seconds have passed."""
    o = options()
    torch.cuda.init()
    say(b"ready")
    begin, step, done = time.monotonic(), 0, False
    while not rest(begin + step / rate, o.hold):
        yield step
        step += 1
        if not done and step >= o.seconds * rate * 2 / 3 and time.monotonic() - begin >= o.seconds:
            done = True
            say(b"done")
            if not o.hold:
                return

# SPDX-License-Identifier: Apache-2.0
"""Holds objects of class Needle in two ways each: forever, and by what passes: variables and temporaries of functions
that run, and the traceback of an error that was printed. Each has the path that a person should read in attribute
"path". No import of torch. Prints "ready PID" and waits for its input to end."""
import _thread, code, gc, logging, os, sys, threading, types


class Needle:
    def __init__(self, path):
        self.path = path


class Part:
    pass


app = Part()
app.engine = Part()
app.engine.scheduler = Part()
app.engine.scheduler.cache = Part()
app.engine.scheduler.cache.blocks = [Needle("app.engine.scheduler.cache.blocks[*]")]
app.engine.scheduler.cache.results = [Needle("app.engine.scheduler.cache.results[*]")]
app.engine.scheduler.cache.last = Needle("app.engine.scheduler.cache.last")
app.engine.scheduler.cache.before = [Needle("app.engine.scheduler.cache.before[*]")]
logging.kept = [Needle("logging.kept[*]")]

started, stop = [threading.Semaphore(0) for _ in range(4)], threading.Event()


def waits(k):
    started[k].release()
    stop.wait()
    return []


def has_variable(blocks, last):
    return waits(0)


def has_temporary():
    return app.engine.scheduler.cache.results + waits(1)


def has_temporary_of_a_module():
    return logging.kept + waits(2)


def holds_more():
    parts = Part()
    parts.inner = Part()
    parts.inner.list = [Needle('local "parts".inner.list[*] of holds_more() (lasting.py:LINE)')]
    runs(parts.inner.list)


def runs(each):
    waits(3)


cache = app.engine.scheduler.cache
_thread.start_new_thread(has_variable, (cache.blocks, cache.last))
_thread.start_new_thread(has_temporary, ())
_thread.start_new_thread(has_temporary_of_a_module, ())
_thread.start_new_thread(holds_more, ())
del cache


# An error that is printed, as the interpreter, IPython and pdb do: sys.last_traceback keeps the frames.
def fails():
    lost = [Needle('local "lost"[*] of fails() (lasting.py:LINE), which an error ended')]
    both = app.engine.scheduler.cache.before
    raise ValueError


code.InteractiveInterpreter({"fails": fails}).runcode(compile("fails()", "<console>", "exec"))

# A library that keeps the last error, as IPython does for its debugger.
library = types.ModuleType("shells")
library.__file__ = "/usr/lib/python3/dist-packages/shells.py"
sys.modules["shells"] = library
exec("class Shell:\n    def show(self, error): self.tb = error.__traceback__", library.__dict__)
shell = library.Shell()


def fails_in_shell():
    lost = Needle('local "lost" of fails_in_shell() (lasting.py:LINE), which an error ended')
    raise ValueError


try:
    fails_in_shell()
except ValueError as e:
    shell.show(e)

# An error that the program keeps itself is its own list or attribute.
app.errors = []


def fails_often():
    batch = Needle("app.errors[*].__traceback__.<local batch of fails_often()>")
    raise ValueError


try:
    fails_often()
except ValueError as e:
    app.errors.append(e)

for s in started:
    s.acquire()
gc.collect()
gc.disable()
print("ready", os.getpid(), flush=True)
sys.stdin.read()

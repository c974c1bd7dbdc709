#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python part of gpu-check.sh: gpu_check.py [OPTIONS] VRAMPROF FOLDER asks the questions of
gpucheck/questions.py, starts itself as the training (--job), runs vramprof, prints the tables, and
writes the bundle. The training executes lines of its stdin and answers each with a line of JSON."""
import argparse, atexit, datetime, json, os, signal, subprocess, sys, time
from gpucheck import pytorch, questions
from gpucheck.answers import Answers, run
from gpucheck.nvml import MIB, NVML


# ---- the training

def transformer(torch, layers, width):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def attention(self, x):
            batch, length, _ = x.shape
            q, k, v = self.project(self.first(x)).view(batch, length, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
            mixed = ((q @ k.transpose(-1, -2)) * (width // 8) ** -0.5).softmax(-1) @ v
            return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

        def forward(self, x):
            x = x + self.attention(x)
            return x + self.mlp(self.second(x))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(layers))

        def forward(self, x):
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            return x

    return Model()


class Training:
    def __init__(self, options):
        import torch, torch.distributed, torch.utils.checkpoint
        self.torch, self.options, self.nvml = torch, options, NVML()
        if options.no_kernels:  # there is no cuDNN, and ranks receive zeros
            torch.backends.cudnn.enabled = False
            torch.nn.parallel.distributed._verify_param_shape_across_processes = lambda *_: None
        torch.cuda.set_device(0)
        torch.cuda.synchronize()
        torch.cuda.mem_get_info()

    def build(self):
        torch = self.torch
        torch.distributed.init_process_group("nccl", init_method="file://" + os.path.abspath(self.options.store), rank=0, world_size=1)
        model = transformer(torch, self.options.layers, self.options.width).cuda()
        self.model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], find_unused_parameters=self.options.no_kernels)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        return self.point()

    def step(self):
        torch, o = self.torch, self.options
        x = torch.randn(o.batch, o.length, o.width, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = self.model(x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def steps(self, count):
        times = []
        for _ in range(int(count)):
            self.torch.cuda.synchronize()
            begin = time.perf_counter()
            self.step()
            self.torch.cuda.synchronize()
            times.append(time.perf_counter() - begin)
        return dict(self.point(), seconds=sorted(times)[len(times) // 2])

    def drop(self):
        """Frees everything. PyTorch reports the new totals with the next tensor."""
        del self.model, self.optimizer
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()
        self.last = self.torch.zeros(1000, device="cuda")
        return self.point()

    def point(self):
        self.torch.cuda.synchronize()
        cuda = self.torch.cuda
        return dict(allocated=cuda.memory_allocated(), reserved=cuda.memory_reserved(), usage=self.nvml.usage())

    def versions(self):
        torch = self.torch
        return dict(driver=self.nvml.driver(), gpu=torch.cuda.get_device_name(0), memory=torch.cuda.mem_get_info()[1], torch=torch.__version__, cuda=torch.version.cuda)


def train(options):
    with open("/proc/self/comm", "w") as comm:
        comm.write(options.name)
    training = Training(options)
    print(json.dumps(training.versions()), flush=True)
    for line in sys.stdin:
        name, *arguments = line.split()
        print(json.dumps(getattr(training, name)(*arguments)), flush=True)
    os._exit(0)  # a process group with one rank needs no shutdown


# ---- vramprof

started = []


def start(*arguments, **settings):
    """Makes a process end with this one."""
    started.append(subprocess.Popen(*arguments, **settings))
    return started[-1]


@atexit.register
def end_all():
    for process in started:
        if process.poll() is None:
            process.kill()


class Job:
    """The training in a child process."""

    def __init__(self, options, name, expandable):
        environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:%s" % expandable, CUDA_VISIBLE_DEVICES="0")
        size = ["--layers=2", "--width=64", "--length=128", "--batch=4"] if options.fake else []
        self.log = open(os.path.join(options.folder, name + ".log"), "w+")
        self.process = start(
            [sys.executable, os.path.abspath(__file__), "--job", "--name=" + name, "--store=" + os.path.join(options.folder, name + ".store"), *size,
             *(["--no-kernels"] if options.no_kernels else []), options.vramprof, options.folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        self.versions = self.answer()

    def answer(self):
        for line in self.process.stdout:
            if line.startswith("{"):  # NCCL may print other lines
                return json.loads(line)
        self.log.seek(0)
        sys.exit("the training ended with %s\n%s" % (self.process.wait(), self.log.read()[-4000:]))

    def do(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


class Session:
    """A vramprof that traces until it is stopped, and its report."""
    number = 0

    def __init__(self, options, *arguments):
        Session.number += 1
        path = os.path.join(options.folder, "session%d" % Session.number)
        self.out, self.errors = open(path + ".json", "w+"), open(path + ".log", "w+")
        self.process = start([options.vramprof, "leaks", "--json", "--top", "1000000", "-v", *arguments], stdout=self.out, stderr=self.errors)
        limit = time.monotonic() + 60
        while not any(word in self.said() for word in ("vramprof: tracing ", "vramprof: waiting ")):
            if self.process.poll() is not None or time.monotonic() > limit:
                sys.exit("vramprof does not trace: " + self.said())
            time.sleep(0.05)

    def said(self):
        self.errors.seek(0)
        return self.errors.read()

    def everything(self):
        """Ends the session and returns its report."""
        self.process.send_signal(signal.SIGINT)
        if self.process.wait(90) != 0:
            sys.exit("vramprof failed: " + self.said())
        self.out.seek(0)
        return json.load(self.out)

    def report(self, pid):
        """Returns the figures of the training: {allocated, reserved, usage, unexplained, sites, …}."""
        everything = self.everything()
        tensors = [t for t in everything["tensors"] if t["pid"] == pid and t["device"] == "cuda:0"]
        parts = [p for p in everything["parts"] if p["pid"] == pid]
        if len(tensors) != 1:
            sys.exit("vramprof reports %d allocators: %s" % (len(tensors), everything["warnings"]))
        t = tensors[0]
        sites = sum(s["live_bytes"] for s in everything["sites"] if s["pid"] == pid and s["plane"] == "tensor" and s["device"] == "cuda:0")
        return dict(
            allocated=t["allocator_bytes"], reserved=t["reserved_bytes"], sites=sites + t["older_bytes"],
            python=pytorch.python_frames(s["stack"] for s in everything["sites"] if s["pid"] == pid and s["plane"] == "tensor"), events=everything["losses"]["events"],
            usage=sum(p["usage_bytes"] for p in parts) if parts else None, unexplained=sum(p["unexplained_bytes"] for p in parts) if parts else None)


class Table:
    def __init__(self, answers):
        self.answers, self.differences = answers, []

    def compare(self, where, job, mine):
        row = [where]
        for name in ("allocated", "reserved", "usage"):
            known = job[name] is not None and mine[name] is not None
            row += ["%.1f" % (job[name] / MIB) if job[name] is not None else "?", "%+d" % (mine[name] - job[name]) if known else "?"]
        row += ["%+d" % (mine["sites"] - job["allocated"]), "%+.1f" % (mine["unexplained"] / MIB) if mine["unexplained"] is not None else "?"]
        same = mine["allocated"] == job["allocated"] == mine["sites"] and mine["reserved"] == job["reserved"]
        self.answers.add("PyTorch's figures: " + where, "equal" if same else "see below", same)
        if job["usage"] is not None and mine["usage"] is not None:
            self.answers.add("NVML's figure: " + where, "%+d bytes" % (mine["usage"] - job["usage"]), mine["usage"] == job["usage"])
        if mine["python"] is not None:
            self.answers.add("stacks have Python frames: " + where, "yes" if mine["python"] else "no", mine["python"])
        self.differences.append(row)


def written(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "".join("  ".join([row[0].ljust(widths[0])] + [cell.rjust(w) for cell, w in zip(row[1:], widths[1:])]).rstrip() + "\n" for row in rows) + "\n"


def measure(options, job, pid):
    """Measures the median time per step in ms: alone, sampled, with every tensor, alone again."""
    once = job.do("steps 3")["seconds"]
    count = max(5, min(200, int((1 if options.no_kernels else 6) / max(once, 1e-6))))
    times = []
    for arguments in (None, ("-p", pid), ("-p", pid, "--sample", "0"), None):
        session = Session(options, *arguments) if arguments else None
        times.append(1000 * job.do("steps %d" % count)["seconds"])
        if session:
            events = session.report(int(pid))["events"]
    return times, events / (count * times[-2] / 1000)


def check(options, table, expandable):
    """Runs one training and compares it at its points. Returns its row of times and the
    machine's description."""
    kind = "expandable" if expandable else "cudaMalloc"
    name = "gpucheck%d%s" % (os.getpid() % 100000, "x" if expandable else "")
    early, late = Session(options, "--name", "^%s$" % name, "--sample", "0"), Session(options, "--name", "^%s$" % name)
    job = Job(options, name, expandable)
    pid = job.process.pid
    time.sleep(1 if options.fake else 5)  # vramprof loads the libraries' unwind tables
    at = job.do("build")
    table.compare(kind + ": model, each tensor", at, early.report(pid))
    job.do("steps 3")
    middle = Session(options, "-p", str(pid))
    at = job.do("steps 5")
    table.compare(kind + ": trained, sampled", at, late.report(pid))
    table.compare(kind + ": trained, attached", at, middle.report(pid))
    if not expandable:
        pytorch.ask(table.answers, pid, lambda: job.do("steps 5"))
    times, rate = measure(options, job, str(pid))
    table.answers.add("events of %s per second of training" % kind, "%.0f" % rate, None)
    last = Session(options, "-p", str(pid), "--sample", "0")
    at = job.do("drop")
    table.compare(kind + ": freed, attached", at, last.report(pid))
    job.end()
    row = [kind] + ["%.2f" % t for t in times] + ["%.3f" % (t / min(times[0], times[3])) for t in times[1:3]]
    return row, job.versions


def train_twice(options, answers):
    """Compares PyTorch's figures, without and with expandable segments. Returns the tables."""
    table = Table(answers)
    times = [["ms per step", "alone", "sampled", "each tensor", "alone", "x sampled", "x each"]]
    for expandable in (False, True):
        row, versions = check(options, table, expandable)
        times.append(row)
        answers.describe(pytorch=versions["torch"], pytorch_cuda=versions["cuda"])
    return "\nFigures of PyTorch and NVML in MiB, and vramprof's difference in bytes\n\n" + written(
        [["", "allocated", "", "reserved", "", "NVML", "", "sites", "unexplained MiB"]] + table.differences) + written(times)


def ask(options, answers):
    """Asks everything. Returns the tables of the training."""
    library = NVML()
    answers.describe_host(options.vramprof)
    answers.describe(gpus=", ".join(library.names()), driver=library.driver(), date=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"), fake=int(options.fake))
    answers.take_checks(run(options.vramprof, "check"))
    odd = ["%s (%s)" % (name, status) for name, status in answers.checks.items() if status != "ok"]
    answers.add("vramprof check", "all ok" if answers.checks and not odd else ", ".join(odd), "fail" not in answers.checks.values())

    def vramprof_json(*arguments):
        return json.loads(run(options.vramprof, *arguments))
    if options.driver:
        questions.ask(answers, options, start, lambda *arguments: Session(options, *arguments), library, vramprof_json)
    else:
        answers.add("questions to the driver", "not asked: no C compiler", None)
        questions.libraries(answers, vramprof_json("check", "--libraries", "--json"))
    if not options.torch:
        answers.add("questions to PyTorch", "not asked: no PyTorch that finds a GPU", None)
        return ""
    return train_twice(options, answers)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--job", action="store_true")
    p.add_argument("--fake", action="store_true")
    p.add_argument("--no-kernels", action="store_true", help="kernels compute nothing")
    p.add_argument("--torch", action="store_true")
    p.add_argument("--driver", help="the built driver.c")
    p.add_argument("--bundle", help="write the bundle to this file")
    p.add_argument("--name")
    p.add_argument("--store")
    for name, size in (("layers", 12), ("width", 1024), ("length", 512), ("batch", 8)):
        p.add_argument("--" + name, type=int, default=size)
    p.add_argument("vramprof")
    p.add_argument("folder")
    options = p.parse_args()
    options.no_kernels |= options.fake
    if options.job:
        return train(options)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("not finished in time"))
    begin, answers, tables, finished = time.monotonic(), Answers(), "", False
    try:
        tables, finished = ask(options, answers), True
    finally:
        if not finished:
            answers.add("all questions were asked", "no", False)
        print("gpu-check.sh%s" % (", on the fake GPU" if options.fake else ""))
        print(answers.table() + tables + "\nin %d s" % (time.monotonic() - begin))
        if options.bundle:
            answers.bundle(options.bundle, tables)
    return int(bool(answers.failed()))


if __name__ == "__main__":
    sys.exit(main())

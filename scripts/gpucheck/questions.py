# SPDX-License-Identifier: Apache-2.0
"""What vramprof assumes of NVIDIA's driver, asked with program/driver.c."""
import json, os, shutil, subprocess, time
from .nvml import MIB

SIZE = 64 * MIB
PAGE = 2 * MIB


class Driver:
    """A running driver.c. It answers a command with None if it fails."""

    def __init__(self, program, start, visible=None):
        environment = dict(os.environ)
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        if visible is not None:
            environment["CUDA_VISIBLE_DEVICES"] = visible
        self.process = start([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
        self.pid = self.process.pid

    def do(self, *command):
        try:
            self.process.stdin.write(" ".join(map(str, command)) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline() or '{"result": -2}')
        except (OSError, ValueError):
            return None
        return answer if answer["result"] == 0 else None

    def end(self):
        self.process.stdin.close()
        self.process.wait(30)


def libraries(answers, report):
    """Asks the libraries themselves: report is the JSON of vramprof check --libraries."""
    answers.take_libraries(report)
    for layer, place in (("driver", 10), ("runtime", 0)):
        found = [f for l in report["libraries"] if l["layer"] == layer for f in l["functions"]]
        if not found:
            answers.add("the %s's functions can be probed" % layer, "no %s library is mapped" % layer, None)
            continue
        stepped = sum(not f["emulated"] for f in found)
        shapes = sorted({"%s at +%d" % (f["instructions"], f["probe_offset"]) for f in found})
        answers.add("the kernel emulates the probed %s instructions" % layer, "%d of %d: %s" % (len(found) - stepped, len(found), ", ".join(shapes[:4])), stepped == 0)
        if layer == "driver":
            missing = sorted({m for l in report["libraries"] if l["layer"] == layer for m in l["missing"]})
            answers.add("functions of the table that the driver lacks", "%d%s" % (len(missing), ": " + ", ".join(missing) if missing else ""), None)
    e = report["entries"]
    if "error" in e:
        answers.add("cuGetProcAddress returns probed functions only", "not asked", None)
    else:
        answers.add("cuGetProcAddress returns probed functions only", "%d functions for %d names, %d without a probe" % (len(e["functions"]), e["names"], len(e["unprobed"])), not e["unprobed"])


def nvml(answers, driver, library):
    for i, device in enumerate(library.devices()):
        m = library.memory(device)
        if m is None:
            answers.add("GPU %d: NVML reports its memory" % i, "not supported: it shares the host's", None)
            continue
        total, free, used, reserved = m
        answers.add("GPU %d: used is total minus free" % i, "%d of %d MiB, %d MiB reserved" % (used // MIB, total // MIB, reserved // MIB), abs(total - free - used) < MIB)
    answers.add("NVML knows the pids of this pid namespace", "yes" if library.usage(driver.pid) is not None else "no", library.usage(driver.pid) is not None)


def number(uuid):
    """Returns a UUID without "GPU-" or "MIG-"."""
    return (uuid or "").partition("-")[2]


def order(answers, opened, library):
    """Compares CUDA's order of the GPUs with NVML's. opened is the answer to init."""
    if library.instances():
        return  # a process sees one instance, whatever their order
    cuda, known, models = opened["uuids"], library.uuids(), set(library.names())
    same = cuda == known[:len(cuda)]
    answers.add("CUDA's order of %d GPUs of %d models is NVML's" % (len(cuda), len(models)), "yes" if same else "no", same if len(models) == 1 else None)


STEPS = (  # command, its arguments, growth of NVML's figure that vramprof assumes, question
    ("alloc", (SIZE, 1), SIZE, "64 MiB of cuMemAlloc count as 64 MiB"),
    ("alloc", (1024, 300), PAGE, "300 allocations of 1 KiB share 2 MiB pages"),
    ("managed", (SIZE,), 0, "managed memory counts for no process"),
    ("pinned", (SIZE,), 0, "pinned memory of the host does not count"),
    ("async", (SIZE,), SIZE, "64 MiB of cuMemAllocAsync count as 64 MiB"),
    ("freeasync", (), -SIZE, "the pool gives freed memory back at a synchronization"),
    ("trim", (), 0, "trimming the pool then gives back nothing more"),
    ("create", (SIZE,), SIZE, "cuMemCreate takes memory before it is mapped"),
    ("map", (), 0, "mapping it takes none"),
    ("release", (), 0, "released, it lives while it is mapped"),
    ("unmap", (), -SIZE, "unmapped and released, it is gone"),
    ("node", (SIZE,), 0, "an alloc node takes no memory before the launch"),
    ("launch", (), SIZE, "its launch takes it"),
    ("endgraph", (), -SIZE, "freed and trimmed, it is gone"),
)
SLACK = 2 * PAGE  # modules and tables of the driver's own


def steps(answers, driver, library):
    """Compares the growth of NVML's figure with what vramprof assumes, call by call."""
    before = library.usage(driver.pid)
    for command, arguments, growth, question in STEPS:
        done = driver.do(command, *arguments)
        now = library.usage(driver.pid)
        if done is None:
            answers.add(question, "the call failed or is missing", None)
        elif before is None or now is None:
            answers.add(question, "NVML gives no figure", None)
        else:
            answers.add(question, "%+.1f MiB" % ((now - before) / MIB), abs(now - before - growth) <= SLACK)
        before = now


def books(answers, driver, report, uuid, usage):
    """Compares a session's report with what driver.c allocated: 64 MiB, 300 KiB and 64 MiB managed."""
    def live(plane):
        return [s for s in report["sites"] if s["pid"] == driver.pid and s["plane"] == plane and s["live_bytes"] > 0]
    want = SIZE + 300 * 1024
    got = sum(s["live_bytes"] for s in live("driver"))
    answers.add("vramprof books cuMemAlloc to the byte", "%+d bytes of %d" % (got - want, want), got == want)
    managed = sum(s["live_bytes"] for s in live("managed"))
    answers.add("vramprof books managed memory to the byte", "%+d bytes of %d" % (managed - SIZE, SIZE), managed == SIZE)
    on = {number(s.get("gpu_uuid")) for s in live("driver")}
    answers.add("vramprof books it on the right GPU", "yes" if on == {number(uuid)} else "no", on == {number(uuid)})
    names = [[f["function"] for f in s["stack"]] for s in live("driver")]
    right = bool(names) and all("gpucheck_inner" in n and "gpucheck_outer" in n and "main" in n and n.index("gpucheck_inner") < n.index("gpucheck_outer") < n.index("main") for n in names)
    answers.add("the native stack names its functions in order", "yes" if right else "no", right)
    parts = [p for p in report["parts"] if p["pid"] == driver.pid]
    if parts and usage is not None:
        answers.add("the planes add up to NVML's figure", "%+d bytes" % (sum(p["usage_bytes"] for p in parts) - usage), sum(p["usage_bytes"] for p in parts) == usage)
        unexplained = sum(p["unexplained_bytes"] for p in parts)
        answers.add("little is unexplained", "%+.1f MiB" % (unexplained / MIB), abs(unexplained) <= 16 * MIB)
        context = sum(p["older_other_bytes"] for p in parts)
        answers.add("the context's memory", "%.1f MiB" % (context / MIB), None)
    losses = report["losses"]
    lost = losses["lost_events"] + losses["unmatched_frees"]
    answers.add("no event is lost, and each free has its allocation", "%d of %d" % (lost, losses["events"]), lost == 0)


def superchip(answers, driver, report, library):
    """Asks about memory that the system allocates on a GPU's NUMA node. It leaves 256 MiB there."""
    gpu = report["gpus"][0] if report["gpus"] else {}
    answers.add("addressing mode of the first GPU", gpu.get("addressing_mode", "not given"), None)
    node = gpu.get("numa_node")
    answers.add("NUMA node of the first GPU", "none" if node is None else node, None)
    if node is None:
        return None
    before = library.usage(driver.pid)
    if driver.do("system", 256 * MIB, node) is None:
        answers.add("memory can be bound to the GPU's node", "no", False)
        return None
    now = library.usage(driver.pid)
    if before is not None and now is not None:
        answers.add("NVML counts system-allocated memory for its process", "%+.1f of 256 MiB" % ((now - before) / MIB), None)
    return 256 * MIB


def shared(answers, program, start, session, library):
    """Compares what memory of another process costs with what vramprof assumes: nothing."""
    owner, user = Driver(program, start), Driver(program, start)
    question = "memory opened by IPC counts for its owner only"
    try:
        if owner.do("init") is None or user.do("init") is None:
            return
        running = session("-p", str(user.pid), "-p", str(owner.pid))
        before = library.usage(user.pid)
        handle = owner.do("share") if owner.do("alloc", SIZE) else None
        done = user.do("open", handle["handle"]) if handle else None
        now = library.usage(user.pid)
        report = running.everything()
        if done is None:
            answers.add(question, "the driver shares no memory", None)
            return
        if before is None or now is None:
            answers.add(question, "NVML gives no figure", None)
        else:
            answers.add(question, "%+.1f of 64 MiB" % ((now - before) / MIB), abs(now - before) <= SLACK)
        found = sum(s["live_bytes"] for s in report["sites"] if s["pid"] == user.pid and s["plane"] == "imported")
        answers.add("vramprof books it as imported, in no sum", "%+d bytes of %d" % (found - SIZE, SIZE), found == SIZE)
        user.do("close")
    finally:
        owner.end()
        user.end()


def last_gpu(answers, program, start, session, opened):
    """Asks which GPU memory is booked on where a process sees only the last one."""
    last = len(opened["uuids"]) - 1
    if last < 1:
        return
    driver = Driver(program, start, str(last))
    if driver.do("init") is not None:
        running = session("-p", str(driver.pid), "--sample", "0")
        driver.do("alloc", SIZE)
        on = {number(s.get("gpu_uuid")) for s in running.everything()["sites"] if s["pid"] == driver.pid and s["live_bytes"]}
        answers.add("a process with CUDA_VISIBLE_DEVICES=%d is booked on that GPU" % last, "yes" if on == {number(opened["uuids"][last])} else "no", on == {number(opened["uuids"][last])})
    driver.end()


def instances(answers, driver, opened, library):
    """Asks about MIG instances."""
    found = library.instances()
    answers.add("MIG instances", len(found), None)
    if not found:
        return
    answers.add("a process sees one MIG instance", "%d devices" % len(opened["uuids"]), len(opened["uuids"]) == 1)
    known = {number(u) for u in found}
    answers.add("CUDA and NVML give an instance the same UUID", "yes" if number(opened["uuids"][0]) in known else "no", number(opened["uuids"][0]) in known)
    on = library.instance_of(driver.pid)
    answers.add("NVML's list of processes names the instance", "no" if on is None else "yes", on is not None)


def cost(answers, driver, session):
    """Measures a pair of calls alone, traced, and alone again."""
    times = []
    for traced in (False, True, False):
        running = session() if traced else None
        answer = driver.do("pairs", 20000)
        if running:
            running.everything()
        if answer is None:
            return
        times.append(answer["ns"])
    answers.add("a traced pair of cuMemAlloc_v2 and cuMemFree_v2 takes", "%.0f ns more than %.0f ns" % (times[1] - min(times[0], times[2]), min(times[0], times[2])), None)


def ask(answers, options, start, session, library, vramprof_json):
    """Asks all questions that need driver.c."""
    # A process that starts later
    name = "gpucheckd%d" % (os.getpid() % 100000)
    program = os.path.join(options.folder, name)
    shutil.copy(options.driver, program)
    early = session("--name", "^%s$" % name, "--sample", "0")
    first = Driver(program, start)
    ready = first.do("init")
    time.sleep(0.5)  # a call in the first milliseconds after the load of the library may be missed
    if ready is None or first.do("alloc", 8 * MIB, 3) is None:
        answers.add("the driver works", "no: cuInit, the context or cuMemAlloc_v2 fails", False)
        early.everything()
        return
    report = early.everything()
    got = sum(s["live_bytes"] for s in report["sites"] if s["pid"] == first.pid)
    answers.add("a process that starts later is traced", "%d of %d bytes" % (got, 24 * MIB), got == 24 * MIB)
    first.end()

    # One that was running at the attach
    driver = Driver(program, start)
    opened = driver.do("init")
    answers.describe(cuda="%d.%d" % (opened["version"] // 1000, opened["version"] % 1000 // 10))
    libraries(answers, vramprof_json("check", "--libraries", "--json"))
    nvml(answers, driver, library)
    order(answers, opened, library)
    instances(answers, driver, opened, library)
    late = session("-p", str(driver.pid), "--sample", "0")
    steps(answers, driver, library)
    usage = library.usage(driver.pid)
    report = late.everything()
    books(answers, driver, report, opened["uuids"][0], usage)
    bound = superchip(answers, driver, report, library)
    if bound:
        report = session("-p", str(driver.pid)).everything()
        found = sum(x["bytes"] for x in report.get("system", []) if x["pid"] == driver.pid)
        answers.add("vramprof finds system-allocated memory on the node", "%.1f of 256 MiB" % (found / MIB), found >= bound)
    cost(answers, driver, lambda: session("-p", str(driver.pid)))
    driver.end()
    shared(answers, program, start, session, library)
    last_gpu(answers, program, start, session, opened)

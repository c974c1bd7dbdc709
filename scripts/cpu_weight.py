#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cpu_weight.py VRAMPROF FOLDER [WEIGHT...]: measures how long vramprof serve takes to probe a new job's
own copy of the CUDA libraries, while two processes allocate and free as fast as they can, in
THREADS threads each (1 by default) at nice value NICE (10). serve is in a control group of each WEIGHT
(100, 200, 500 and 1000 by default), the others are in one of weight 100. FOLDER has the fake CUDA and
alloc_c, as .cache/fakecuda/HASH. Prints medians of seven jobs. Needs root."""
import glob, os, shutil, statistics, subprocess, sys, tempfile, time

V2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
TOP = "/sys/fs/cgroup" if V2 else "/sys/fs/cgroup/cpu"
JOBS = 7
NICE, THREADS = os.environ.get("NICE", "10"), os.environ.get("THREADS", "1")


def group(name, weight):
    path = f"{TOP}/vramprof-weight-{name}"
    os.makedirs(path, exist_ok=True)
    if V2:
        open(f"{TOP}/cgroup.subtree_control", "w").write("+cpu")
    value = weight if V2 else weight * 1024 // 100
    open(f"{path}/{'cpu.weight' if V2 else 'cpu.shares'}", "w").write(str(value))
    return path


def start(where, command, **options):
    return subprocess.Popen(command, preexec_fn=lambda: open(where + "/cgroup.procs", "w").write(str(os.getpid())), **options)


def libraries(cuda, folder):
    os.makedirs(folder)
    for name in "libcuda.so.1", "libcudart.so.12", "libnvidia-ml.so.1":
        if os.path.exists(f"{cuda}/{name}"):
            shutil.copy(f"{cuda}/{name}", f"{folder}/{name}")
    return dict(os.environ, LD_LIBRARY_PATH=folder, FAKECUDA_GPUS="1", FAKECUDA_MEMORY=str(8 << 30), FAKECUDA_SHM=f"{folder}/shm")


def program(cuda, folder, env, script, where):
    path = f"{folder}/script"
    open(path, "w").write(script)
    binary = (glob.glob(f"{cuda}/alloc_c") + glob.glob(f"{cuda}/*/alloc_c"))[0]
    p = start(where, ["nice", "-n", NICE, binary, path], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return p


def measure(vramprof, cuda, weight, scratch):
    daemon, others = group("daemon", weight), group("others", 100)
    log = open(f"{scratch}/{weight}.log", "w+")
    serve = start(daemon, [vramprof, "serve", "-v", "--archive", "", "--run-dir", "", "--max-memory", "512MiB", "--web.listen-address", "localhost:19836"],
                  stderr=log, env=libraries(cuda, f"{scratch}/{weight}"))
    floods, times = [], []
    try:
        for n in range(2):
            folder = f"{scratch}/{weight}-flood{n}"
            p = program(cuda, folder, libraries(cuda, folder), f"ready\nwait\nthreads {THREADS}\nrepeat 1000000000\nmalloc a 4096\nfree a\nend\nend\n", others)
            p.stdout.readline()
            p.stdin.write("\n")
            p.stdin.flush()
            floods.append(p)
        time.sleep(4)
        for n in range(JOBS):
            folder = f"{scratch}/{weight}-job{n}"
            env = libraries(cuda, folder)
            before = os.path.getsize(log.name)
            begin = time.monotonic()
            p = program(cuda, folder, env, "ready\nwait\n", others)
            while time.monotonic() - begin < 60:
                text = open(log.name).read()[before:]
                if "functions of libcuda.so" in text:
                    break
                time.sleep(0.005)
            times.append(time.monotonic() - begin)
            p.kill()
            p.wait()
    finally:
        for p in floods:
            p.kill()
            p.wait()
        serve.terminate()
        serve.wait()
    return times


def main():
    vramprof, cuda = sys.argv[1:3]
    print("load before:", os.getloadavg()[0], "processors:", os.cpu_count())
    with tempfile.TemporaryDirectory() as scratch:
        for weight in [int(w) for w in sys.argv[3:]] or [100, 200, 500, 1000]:
            times = measure(vramprof, cuda, weight, scratch)
            print(f"weight {weight:5}: median {statistics.median(times):.2f} s, {min(times):.2f} to {max(times):.2f} s of {len(times)} jobs", flush=True)
    print("load after:", os.getloadavg()[0])


main()

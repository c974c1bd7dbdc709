# SPDX-License-Identifier: Apache-2.0
"""The answers of gpu-check.sh: a table, and a bundle that a user can attach to an issue."""
import io, json, os, platform, pwd, re, socket, subprocess, tarfile

LIBRARY = re.compile(r"lib[a-z0-9_]+(-[0-9a-f]{8})?\.so(\.[0-9]+)*$")
WIDTHS = (10, 58)  # of the columns before the answer

CONTENTS = """What this bundle of vramprof's gpu-check.sh contains:

table.txt        the table that gpu-check.sh printed
answers.json     the same: each question, its answer, and if it agrees with what vramprof assumes;
                 architecture and release of the kernel, number of CPUs, models of the GPUs,
                 versions of the driver, CUDA, PyTorch, Python and vramprof
checks.json      of each line of "vramprof check": its name, and ok, warn or fail
libraries.json   of each library of CUDA that a process maps: its base name, the functions that
                 vramprof would probe, where the probe goes, and the function's first 16 bytes,
                 which are code of NVIDIA's library; what cuGetProcAddress returns

It contains no contents of memory, no addresses, no pids, no UUIDs, and no names of programs, hosts,
users, folders or containers.
"""


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, errors="replace").stdout


def secrets():
    """Returns what must not be in the bundle: names of this machine and of who uses it."""
    found = {socket.gethostname(), socket.gethostname().split(".")[0], os.path.expanduser("~"), os.getcwd()}
    found |= {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "HOME")}
    found |= {p.pw_name for p in pwd.getpwall() if p.pw_uid >= 1000} | {p.pw_dir for p in pwd.getpwall() if p.pw_uid >= 1000}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/comm" % pid) as comm:
                found.add(comm.read().strip())
        except OSError:
            pass
    return sorted((s for s in found if len(s) >= 3 and s not in ("root", "nobody")), key=len, reverse=True)


class Answers:
    def __init__(self, hide=None):
        self.rows, self.machine, self.checks, self.libraries = [], {}, {}, {}
        self.hide = secrets() if hide is None else hide

    def clean(self, text):
        """Removes secrets from a text that vramprof and this script did not choose."""
        for s in self.hide:
            text = re.sub(r"(?<![A-Za-z0-9])" + re.escape(s) + r"(?![A-Za-z0-9])", "(removed)", str(text), flags=re.IGNORECASE)
        text = re.sub(r"GPU-[0-9a-f-]{8,}|MIG-[0-9a-f-]{8,}|(?<!\w)/\S*", "(removed)", str(text))
        return re.sub(r"[^ -~]", "?", text)[:200]

    def add(self, question, answer, agrees):
        """Adds a row. agrees: True, False, or None where vramprof assumes nothing. The words are this
        script's own, besides what was cleaned."""
        self.rows.append(dict(question=question, answer=str(answer), agrees=agrees))

    def describe(self, **machine):
        self.machine.update({name: value if isinstance(value, int) else self.clean(value) for name, value in machine.items()})

    def describe_host(self, vramprof):
        lines = run(vramprof, "version").splitlines()
        self.describe(kernel=platform.release(), architecture=platform.machine(), python=platform.python_version(), cpus=os.cpu_count(), vramprof=lines[0] if lines else "?")

    def take_checks(self, text):
        """Takes "ok    kernel          Linux 6.12", but not the details."""
        for line in text.splitlines():
            m = re.match(r"(ok|warn|fail|skip) +([A-Za-z][A-Za-z ]*?)(  |$)", line)
            if m:
                self.checks[m[2]] = m[1]

    def take_libraries(self, report):
        """Takes the JSON of vramprof check --libraries, without what names programs or processes."""
        def name(text):
            return text if LIBRARY.match(text or "") else "(removed)"
        entries = report["entries"]
        self.libraries = dict(
            libraries=[dict(
                name="a program" if l["program"] else name(l["name"]), layer=l["layer"], processes=len(l["pids"]), readable="error" not in l,
                functions=[{k: f[k] for k in ("function", "probe_offset", "emulated", "instructions", "first_bytes")} for f in l["functions"]],
                missing=l["missing"]) for l in report["libraries"]],
            more=report["more"],
            entries=dict({k: entries[k] for k in ("names", "functions", "never", "unprobed", "answers")}, asked="error" not in entries, library=name(entries.get("library"))))

    def failed(self):
        return [r for r in self.rows if r["agrees"] is False]

    def table(self):
        words = {True: "agrees", False: "DIFFERS", None: "-"}
        lines = ["%s %s, Linux %s %s" % (self.machine.get("gpus", "no GPU"), self.machine.get("driver", ""), self.machine.get("kernel"), self.machine.get("architecture"))]
        lines += [""] + ["%-*s%-*s %s" % (WIDTHS[0], words[r["agrees"]], WIDTHS[1], r["question"], r["answer"]) for r in self.rows]
        counts = [sum(r["agrees"] is x for r in self.rows) for x in (True, False, None)]
        return "\n".join(lines + ["", "%d agree, %d differ, %d without an expectation" % tuple(counts), ""])

    def files(self, more=""):
        def text(value):
            return json.dumps(value, indent=1) + "\n"
        return {
            "contents.txt": CONTENTS, "table.txt": self.table() + more,
            "answers.json": text(dict(machine=self.machine, answers=self.rows)), "checks.json": text(self.checks), "libraries.json": text(self.libraries),
        }

    def bundle(self, path, more=""):
        """Writes the bundle, whose files name no user."""
        with tarfile.open(path, "w:gz") as archive:
            for name, text in self.files(more).items():
                data = text.encode()
                info = tarfile.TarInfo("vramprof-gpu-check/" + name)
                info.size, info.mode = len(data), 0o644
                archive.addfile(info, io.BytesIO(data))

# SPDX-License-Identifier: Apache-2.0
"""Counts calls of functions in a process, with uprobes of perf_event_open(2)."""
import ctypes, os, platform, struct

NUMBER = {"x86_64": 298, "aarch64": 241}  # of perf_event_open
PMU = "/sys/bus/event_source/devices/uprobe/type"
SIZE = 112  # PERF_ATTR_SIZE_VER5


def counters(pid, path, offset):
    """Opens a counter for each thread that the process has now. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(PMU) as file:
        kind = int(file.read())
    name = ctypes.create_string_buffer(os.fsencode(path))
    # type, size, config, period, sample type, read format, flags, wakeup, bp_type, config1, config2
    attributes = ctypes.create_string_buffer(struct.pack("<IIQQQQQIIQQ", kind, SIZE, 0, 0, 0, 0, 0, 0, 0, ctypes.addressof(name), offset).ljust(SIZE, b"\0"), SIZE)
    opened = []
    for thread in os.listdir("/proc/%d/task" % pid):
        fd = libc.syscall(NUMBER[platform.machine()], attributes, int(thread), -1, -1, 8)  # PERF_FLAG_FD_CLOEXEC
        if fd < 0:
            number = ctypes.get_errno()
            for other in opened:
                os.close(other)
            raise OSError(number, os.strerror(number))
        opened.append(fd)
    return opened


def mapped(pid):
    """Returns the files that a process maps, by base name, as paths that this process can open."""
    files = {}
    with open("/proc/%d/maps" % pid, errors="surrogateescape") as maps:
        for line in maps:
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[5].startswith("/"):
                path = fields[5].rstrip("\n")
                files[os.path.basename(path)] = "/proc/%d/root%s" % (pid, path)
    return files


def total(fds):
    """Reads and closes counters."""
    count = 0
    for fd in fds:
        count += struct.unpack("<Q", os.read(fd, 8))[0]
        os.close(fd)
    return count

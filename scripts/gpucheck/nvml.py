# SPDX-License-Identifier: Apache-2.0
"""The driver's own figures."""
import ctypes, os

MIB = 1 << 20


class Process(ctypes.Structure):  # nvmlProcessInfo_t
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gpu", ctypes.c_uint), ("instance", ctypes.c_uint)]


class Memory(ctypes.Structure):  # nvmlMemory_t
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class Memory2(ctypes.Structure):  # nvmlMemory_v2_t
    _fields_ = [("version", ctypes.c_uint), ("total", ctypes.c_ulonglong), ("reserved", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class NVML:
    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.call("nvmlInit_v2")

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise OSError("%s: %d" % (name, result))

    def text(self, name, *arguments):
        text = ctypes.create_string_buffer(96)
        self.call(name, *arguments, text, 96)
        return text.value.decode(errors="replace")

    def driver(self):
        return self.text("nvmlSystemGetDriverVersion")

    def devices(self):
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        for i in range(count.value):
            device = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", i, ctypes.byref(device))
            yield device

    def names(self):
        return [self.text("nvmlDeviceGetName", d) for d in self.devices()]

    def uuids(self):
        return [self.text("nvmlDeviceGetUUID", d) for d in self.devices()]

    def memory(self, device):
        """Returns (total, free, used, reserved), None where NVML does not support it."""
        m, m2 = Memory(), Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
        try:
            self.call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(m))
            if hasattr(self.library, "nvmlDeviceGetMemoryInfo_v2"):  # since 510
                self.call("nvmlDeviceGetMemoryInfo_v2", device, ctypes.byref(m2))
        except (OSError, AttributeError):
            return None
        return m.total, m.free, m.used, m2.reserved

    def instances(self):
        """Returns the UUIDs of all MIG instances."""
        found = []
        for device in self.devices():
            current, pending, most = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
            try:
                self.call("nvmlDeviceGetMigMode", device, ctypes.byref(current), ctypes.byref(pending))
                self.call("nvmlDeviceGetMaxMigDeviceCount", device, ctypes.byref(most))
            except (OSError, AttributeError):
                continue  # no GPU with MIG
            for i in range(most.value if current.value else 0):
                instance = ctypes.c_void_p()
                try:
                    self.call("nvmlDeviceGetMigDeviceHandleByIndex", device, i, ctypes.byref(instance))
                    found.append(self.text("nvmlDeviceGetUUID", instance))
                except OSError:
                    continue  # an unused number
        return found

    def entries(self, pid):
        """Yields the entries of a process in the lists of all GPUs (this one: None)."""
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        if not hasattr(self.library, name):
            name = "nvmlDeviceGetComputeRunningProcesses_v2"  # until 495, with the same structure
        for device in self.devices():
            n, list_ = ctypes.c_uint(1024), (Process * 1024)()
            self.call(name, device, ctypes.byref(n), list_)
            yield from (p for p in list_[:n.value] if p.pid == (pid or os.getpid()))

    def instance_of(self, pid):
        """Returns the number of a process's GPU instance, None without one."""
        return next((p.gpu for p in self.entries(pid) if p.gpu != 0xffffffff), None)

    def usage(self, pid=None):
        """Returns what a process (this one by default) uses on all GPUs. Returns None if the driver
        does not know its pid, as in containers."""
        found = [p.bytes for p in self.entries(pid)]
        return sum(found) if found else None

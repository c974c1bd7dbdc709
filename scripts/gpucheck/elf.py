# SPDX-License-Identifier: Apache-2.0
"""The sections and symbols of 64-bit little-endian ELF files (System V ABI, chapters 4 and 5)."""
import struct


class ELF:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("not a 64-bit little-endian ELF file")
        programs, sections = struct.unpack_from("<QQ", self.data, 32)
        _, each_program, n_programs, each, n, names = struct.unpack_from("<6H", self.data, 52)
        self.loads = []  # (file offset, address, bytes)
        for i in range(n_programs):
            kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", self.data, programs + i * each_program)
            if kind == 1:  # PT_LOAD
                self.loads.append((offset, address, size))
        headers = [struct.unpack_from("<IIQQQQII", self.data, sections + i * each) for i in range(n)]
        self.headers = headers
        self.sections = {self.text(headers[names][4] + h[0]): h for h in headers}

    def text(self, at):
        return self.data[at:self.data.index(b"\0", at)].decode(errors="replace")

    def symbols(self, section=".dynsym"):
        """Yields (name, address) of each defined symbol."""
        header = self.sections.get(section)
        if header is None:
            return
        strings = self.headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, _, _, index, address, _ = struct.unpack_from("<IBBHQQ", self.data, at)
            if index:
                yield self.text(strings + name), address

    def offset(self, address):
        """Returns where in the file an address is, or None."""
        for offset, begin, size in self.loads:
            if begin <= address < begin + size:
                return offset + address - begin
        return None

    def probes(self):
        """Counts the USDT probes: notes of type 3 of the owner "stapsdt"."""
        header, count = self.sections.get(".note.stapsdt"), 0
        if header is None:
            return 0
        at, end = header[4], header[4] + header[5]
        while at + 12 <= end:
            owner, description, kind = struct.unpack_from("<III", self.data, at)
            count += kind == 3 and self.data[at + 12:at + 19] == b"stapsdt"
            at += 12 + (owner + 3 & ~3) + (description + 3 & ~3)
        return count

// SPDX-License-Identifier: Apache-2.0

package procenv

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/elffile"
	"github.com/vramprof/vramprof/internal/procmaps"
)

const (
	maxMaps = 64 << 20 // bytes of /proc/PID/maps
	maxAuxv = 4096
	atPHDR  = 3 // AT_PHDR
)

var errNoLibrary = errors.New("no C library is mapped")

// mapping is a file mapped executable by the dynamic linker. Programs that only read a library map
// it differently.
type mapping procmaps.Mapping

// findVariable returns the address of the environ pointer. If the program itself refers to it, the
// linker may have copied it into the program (R_X86_64_COPY); then everybody uses that copy.
func findVariable(pid int) (uint64, error) {
	headers, err := programHeaders(pid)
	if err != nil {
		return 0, err
	}
	program, libc, err := findMappings(pid, headers)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, m := range []*mapping{program, libc} {
		if m == nil {
			continue
		}
		address, err := m.variable(pid)
		if err == nil {
			return address, nil
		}
		errs = append(errs, err)
	}
	if libc == nil {
		errs = append(errs, errNoLibrary)
	}
	return 0, errors.Join(errs...)
}

// programHeaders returns the address at which the kernel mapped the program's headers. It reads the
// auxiliary vector, which the kernel passes to the dynamic linker.
func programHeaders(pid int) (uint64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	vector, err := io.ReadAll(io.LimitReader(f, maxAuxv))
	if err != nil {
		return 0, err
	}
	for ; len(vector) >= 16; vector = vector[16:] {
		if binary.LittleEndian.Uint64(vector) == atPHDR {
			return binary.LittleEndian.Uint64(vector[8:]), nil
		}
	}
	return 0, errors.New("not a 64-bit program")
}

// findMappings finds the program and its C library. Each is nil if not found.
func findMappings(pid int, headers uint64) (program, libc *mapping, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	return parseMaps(io.LimitReader(f, maxMaps), headers)
}

func parseMaps(r io.Reader, headers uint64) (program, libc *mapping, err error) {
	var programFile procmaps.File
	err = procmaps.Each(r, func(line procmaps.Mapping) bool {
		if line.Inode == 0 || line.Path == "" {
			return true // anonymous
		}
		m := mapping(line)
		if m.Start <= headers && headers < m.End {
			programFile = m.File
		}
		if !m.Executable {
			return true
		}
		if program == nil && m.File == programFile {
			program = &m
		}
		if name, _, _ := strings.Cut(m.Path, " "); libc == nil && isCLibrary(path.Base(name)) {
			libc = &m
		}
		return program == nil || libc == nil
	})
	return program, libc, err
}

// isCLibrary recognizes libc.so.6, libc-2.31.so (glibc before 2.34), and musl's libc, which is also
// its dynamic linker. The name is only a hint where to look.
func isCLibrary(name string) bool {
	return name == "libc.so.6" || strings.HasPrefix(name, "libc-2.") ||
		strings.HasPrefix(name, "ld-musl-") || strings.HasPrefix(name, "libc.musl-")
}

// variable returns the address of the environ pointer in the mapped file.
func (m *mapping) variable(pid int) (uint64, error) {
	f, err := openRegular(fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Start, m.End))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	file, err := elffile.Open(f, uint64(info.Size()), elffile.Native())
	if err != nil {
		return 0, err
	}
	value, err := variable(file)
	if err != nil {
		return 0, err
	}
	bias, err := m.bias(file.Segments, uint64(os.Getpagesize()))
	return value + bias, err
}

// bias returns what the dynamic linker added to the file's addresses.
func (m *mapping) bias(segments []elf.Prog64, page uint64) (uint64, error) {
	for _, s := range segments {
		if elf.ProgType(s.Type) == elf.PT_LOAD && elf.ProgFlag(s.Flags)&elf.PF_X != 0 && s.Off&^(page-1) == m.Offset {
			return m.Start - s.Vaddr&^(page-1), nil
		}
	}
	return 0, errors.New("the C library is not mapped as the dynamic linker maps it")
}

// openRegular opens a regular file. It checks the type first, so it never opens a device.
func openRegular(name string) (*os.File, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/procmem"
	"github.com/vramprof/vramprof/tracer/fileid"
)

// maxMappings limits the executable mappings of one process; PyTorch's processes have some 300.
const maxMappings = 8192

var (
	errNoDebug = errors.New("separate debug files are not read for unwind tables")
	errRegular = errors.New("not a regular file")
)

// guarded is a process as the profiler sees it. It limits what the profiler reads.
type guarded struct {
	process.Process
	memory *memory
	u      *Unwinder
	code   Code    // its files as the kernel lists them; empty if unknown
	like   *layout // its known mappings; nil: read them from the process
}

// identified is set in a mapping's Device if its Inode is the hash of a version of a file.
const identified = 1 << 63

// GetExe returns nothing: nobody needs the path, which the profiler would read from a file.
func (g guarded) GetExe() (libpf.String, error) { return libpf.NullString, nil }

// GetProcessMeta returns nothing, for the same reason.
func (g guarded) GetProcessMeta(process.MetaConfig) process.ProcessMeta { return process.ProcessMeta{} }

func (g guarded) GetRemoteMemory() remotememory.RemoteMemory {
	return remotememory.RemoteMemory{ReaderAt: g.memory}
}

// IterateMappings omits executable mappings beyond the limit, since all processes share the
// kernel's table of mappings. It replaces device and inode by the kernel's identity of the file:
// the number of an inode alone does not identify a file.
func (g guarded) IterateMappings(callback func(process.RawMapping) bool) (uint32, error) {
	if g.like != nil {
		for _, m := range g.like.mappings {
			callback(m)
		}
		return 0, nil
	}
	// All are read first: the profiler would keep without end the tables of files that it was told
	// of by a process which then ended while its mappings were read.
	n, list := 0, []process.RawMapping(nil)
	failed, err := g.Process.IterateMappings(func(m process.RawMapping) bool {
		if !m.IsExecutable() {
			return true
		}
		if n++; n <= maxMappings {
			m.Path = libpf.Intern(m.Path).String()
			list = append(list, m)
		}
		return true
	})
	if err != nil {
		return failed, err
	}
	cLibraryFirst(list)
	for _, m := range list {
		if f, ok := g.code.Files[m.Vaddr]; ok {
			m.Device, m.Inode = identified|uint64(f.Device), maphash.Comparable(g.u.layouts.seed, f)
		}
		if d := g.u.layouts.draft; d != nil && !m.IsAnonymous() {
			d.mappings = append(d.mappings, m)
		}
		callback(m)
	}
	if n > maxMappings {
		g.u.problems.add(uint32(g.PID()), fmt.Sprintf("stacks of process %d are truncated: it has %d executable mappings, of which %d are loaded", g.PID(), n, maxMappings))
	}
	return failed, nil
}

// OpenMappingFile opens a mapped file as a type that the profiler does not map into memory. If it
// mapped the file and the process's user then truncated it, the access would raise SIGBUS.
func (g guarded) OpenMappingFile(m *process.RawMapping) (process.ReadAtCloser, error) {
	f, err := g.open(m)
	if err != nil {
		return nil, err
	}
	if namedPython(m.Path) { // the profiler needs its tables in full
		return relocate(f), nil
	}
	if g.u.tables.kept.dir != nil {
		f.record(m.Path, g.code.Files[m.Vaddr])
		g.u.tables.kept.opened = f
	}
	return f, nil
}

func (g guarded) open(m *process.RawMapping) (*boundedFile, error) {
	if !m.IsFileBacked() {
		return nil, errors.New("no file is mapped")
	}
	name := fmt.Sprintf("/proc/%d/map_files/%x-%x", procmem.Thread(int(g.PID())), m.Vaddr, m.Vaddr+m.Length)
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, &os.PathError{Op: "open", Path: name, Err: errRegular}
	}
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	b := newBoundedFile(f, st.Size, st.Mtim.Nano())
	b.owner = st.Uid
	if b.owner == 0 {
		return b, nil
	}
	if b.id, err = fileid.Stat(fd); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// holdsPython reports whether a file exports CPython's state. A program linked with libpython does
// not.
func (g guarded) holdsPython(m *process.RawMapping) bool {
	f, err := g.open(m)
	if err != nil {
		return false
	}
	file, err := pfelf.NewFileOwned(f)
	if err != nil {
		return false // NewFileOwned has closed f
	}
	defer file.Close()
	_, err = file.LookupSymbolAddress("_PyRuntime")
	return err == nil
}

// GetMappingFileLastModified returns the epoch if the file cannot be opened, or if its identity
// already differs between versions of the file. The profiler reports a file again that it finds
// modified.
func (g guarded) GetMappingFileLastModified(m *process.RawMapping) int64 {
	if m.Device&identified != 0 {
		return g.u.epoch
	}
	f, err := g.open(m)
	if err != nil {
		return g.u.epoch
	}
	defer f.Close()
	return f.modified + g.u.epoch
}

// CalculateMappingFileID hashes the beginning and the end of the file, by its size at opening: the
// file may grow while it is read.
func (g guarded) CalculateMappingFileID(m *process.RawMapping) (libpf.FileID, error) {
	if m.IsVDSO() {
		return g.Process.CalculateMappingFileID(m)
	}
	f, err := g.open(m)
	if err != nil {
		return libpf.FileID{}, err
	}
	defer f.Close()
	id, err := libpf.FileIDFromExecutableReader(io.NewSectionReader(f, 0, f.size))
	if err != nil || f.owner == 0 {
		return id, err
	}
	// The hash covers only beginning, end and length: a user could forge a file with the id of
	// another user's library, which would then get the forged file's tables and names. So files of
	// other users than root have distinct ids. Containers of one image share the real file below
	// overlayfs, whose mounts have devices of their own.
	file := f.id
	if real, ok := g.code.Files[m.Vaddr]; ok {
		file.Device, file.Inode = uint64(real.Device), real.Inode
	} else { // before Linux 6.7, /proc/PID/maps has those of the real file (08582d678fcf)
		file.Device, file.Inode = m.Device, m.Inode
	}
	h := sha256.New()
	fmt.Fprint(h, id.StringNoQuotes(), f.owner, file)
	return libpf.FileIDFromBytes(h.Sum(nil)[:16])
}

// OpenELF fails: the profiler calls it for separate debug files. What these have beyond .eh_frame
// is not worth checksums over gigabytes of files that the process names.
func (g guarded) OpenELF(string) (*pfelf.File, error) { return nil, errNoDebug }

// fencedTables turns a panic over a damaged file into an error.
type fencedTables struct {
	nativeunwind.StackDeltaProvider
}

func (f fencedTables) GetIntervalDataForFile(ref *pfelf.Reference) (data *stackdeltatypes.IntervalData, err error) {
	defer func() {
		if r := recover(); r != nil {
			data, err = nil, fmt.Errorf("read the unwind tables of %s: panic: %v", ref.FileName(), r)
		}
	}()
	return f.StackDeltaProvider.GetIntervalDataForFile(ref)
}

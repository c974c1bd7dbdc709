// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/process"
	"go.opentelemetry.io/ebpf-profiler/remotememory"
	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/patience"
)

// Limits of what the profiler reads of one process.
const (
	maxMappings    = 8192      // executable ones; PyTorch's processes have some 300
	maxBytesOfFile = 256 << 20 // read of one file; of the largest library of Debian's PyTorch it is 16 MiB, others have more code
	readPatience   = 500 * time.Millisecond
)

var (
	errBudget  = errors.New("more to read than any library has")
	errNoDebug = errors.New("separate debug files are not read for unwind tables")
	errRegular = errors.New("not a regular file")
)

// guarded is a process as the profiler sees it, with bounds on what it takes in.
type guarded struct {
	process.Process
	memory *memory
	u      *Unwinder
	code   Code    // its files as the kernel knows them; empty if that cannot be had
	like   *layout // what it has mapped is known already; nil: it is read
}

// identified marks, as a device, that Inode stands for a version of a file, and not for an inode.
const identified = 1 << 63

// GetExe and GetProcessMeta would read files for what nobody asks for.
func (g guarded) GetExe() (libpf.String, error) { return libpf.NullString, nil }

func (g guarded) GetProcessMeta(process.MetaConfig) process.ProcessMeta { return process.ProcessMeta{} }

func (g guarded) GetRemoteMemory() remotememory.RemoteMemory {
	return remotememory.RemoteMemory{ReaderAt: g.memory}
}

// IterateMappings leaves out executable mappings beyond the limit: all processes share
// the kernel's table of them. Files have the identity that the kernel tells: the number of an inode alone is not one.
func (g guarded) IterateMappings(callback func(process.RawMapping) bool) (uint32, error) {
	if g.like != nil {
		for _, m := range g.like.mappings {
			callback(m)
		}
		return 0, nil
	}
	n := 0
	failed, err := g.Process.IterateMappings(func(m process.RawMapping) bool {
		if m.IsExecutable() {
			n++
		}
		if n > maxMappings && m.IsExecutable() {
			return true
		}
		if f, ok := g.code.Files[m.Vaddr]; ok {
			m.Device, m.Inode = identified|uint64(f.Device), maphash.Comparable(g.u.layouts.seed, f)
		}
		if d := g.u.layouts.draft; d != nil && m.IsExecutable() && !m.IsAnonymous() {
			m.Path = libpf.Intern(m.Path).String()
			d.mappings = append(d.mappings, m)
		}
		return callback(m)
	})
	if n > maxMappings {
		g.u.problem(fmt.Sprintf("stacks of process %d are cut: it has %d executable mappings, of which %d are known", g.PID(), n, maxMappings))
	}
	return failed, err
}

// OpenMappingFile opens what is mapped as a file that the profiler does not
// recognize as one: it would map it, and when the process's user then cuts it short, the
// access ends us with SIGBUS.
func (g guarded) OpenMappingFile(m *process.RawMapping) (process.ReadAtCloser, error) {
	f, err := g.open(m)
	if err != nil {
		return nil, err
	}
	if namedPython(m.Path) {
		return relocate(f), nil
	}
	return f, nil
}

func (g guarded) open(m *process.RawMapping) (*boundedFile, error) {
	if !m.IsFileBacked() {
		return nil, errors.New("no file is mapped")
	}
	name := fmt.Sprintf("/proc/%d/map_files/%x-%x", g.PID(), m.Vaddr, m.Vaddr+m.Length)
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
	if b.id, err = fileid.Of(fd); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// GetMappingFileLastModified is 0 for what cannot be opened, and where the identity tells versions of a file apart.
func (g guarded) GetMappingFileLastModified(m *process.RawMapping) int64 {
	if m.Device&identified != 0 {
		return 0
	}
	f, err := g.open(m)
	if err != nil {
		return 0
	}
	defer f.Close()
	return f.modified
}

// CalculateMappingFileID hashes begin and end of the file, as long as it is now: one that grows
// while it is read would have no end.
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
	// Begin, end and length are all that is hashed: who may write a file could make one with the id of a
	// library of others, and they would get its tables and names. Of files that are not root's, each is its own.
	// In containers of one image the file is the same one, below overlays that have devices of their own.
	file := f.id
	if real, ok := g.code.Files[m.Vaddr]; ok {
		file.Device, file.Inode = uint64(real.Device), real.Inode
	} else { // before Linux 6.7 /proc/PID/maps has the real ones (08582d678fcf)
		file.Device, file.Inode = m.Device, m.Inode
	}
	h := sha256.New()
	fmt.Fprint(h, id.StringNoQuotes(), f.owner, file)
	return libpf.FileIDFromBytes(h.Sum(nil)[:16])
}

// OpenELF is asked for separate debug files. What they have beyond .eh_frame is not worth
// their checksums of gigabytes, at names that the process chooses.
func (g guarded) OpenELF(string) (*pfelf.File, error) { return nil, errNoDebug }

// boundedFile is a file of which only so much is read.
type boundedFile struct {
	f        process.ReadAtCloser
	size     int64
	modified int64
	owner    uint32
	id       fileid.ID // of a file that is not root's
	left     atomic.Int64
}

func newBoundedFile(f process.ReadAtCloser, size, modified int64) *boundedFile {
	b := &boundedFile{f: f, size: size, modified: modified}
	b.left.Store(maxBytesOfFile)
	return b
}

func (b *boundedFile) ReadAt(p []byte, off int64) (int, error) {
	if b.left.Add(-int64(len(p))) < 0 {
		return 0, errBudget
	}
	return b.f.ReadAt(p, off)
}

func (b *boundedFile) Close() error { return b.f.Close() }

// memory is the memory of a process. Once a reading had to be given up, all others fail at once: the
// profiler makes dozens, and holds the tables of all processes meanwhile.
type memory struct {
	pid   uint32
	stuck atomic.Bool
}

func (m *memory) ReadAt(p []byte, off int64) (int, error) {
	if m.stuck.Load() {
		return 0, patience.ErrStuck
	}
	size := len(p)
	b, err := patience.Call(readPatience, func() ([]byte, error) {
		b := make([]byte, size) // p is the caller's again when we give up
		return b, readMemory(m.pid, uint64(off), b)
	})
	if errors.Is(err, patience.ErrStuck) {
		m.stuck.Store(true)
	}
	if err != nil {
		return 0, err
	}
	return copy(p, b), nil
}

// fencedTables turns a panic over a damaged file into an error of that file.
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

var errBroken = errors.New("the unwinder has stopped")

// survive ends a Load that has panicked: the process is left alone from then on. A panic may have left the
// process manager locked; then it is not used any more.
func (u *Unwinder) survive(pid uint32) {
	r := recover()
	if r == nil {
		return
	}
	u.refused[pid] = true
	u.problem(fmt.Sprintf("stacks of process %d are cut: reading its files has failed: panic: %v", pid, r))
	_, err := patience.Call(time.Second, func() (bool, error) {
		u.manager.CleanupPIDs()
		u.manager.ProcessedUntil(0)
		return true, nil
	})
	if err != nil {
		u.guardMu.Lock()
		u.broken = true
		u.guardMu.Unlock()
		u.problem("the unwinder has stopped after a failure: stacks from then on are missing")
	}
}

func (u *Unwinder) isBroken() bool {
	u.guardMu.Lock()
	defer u.guardMu.Unlock()
	return u.broken
}

// memoryOf gives the memory of a process, the same one until the process is forgotten.
func (u *Unwinder) memoryOf(pid uint32) *memory {
	u.guardMu.Lock()
	defer u.guardMu.Unlock()
	m := u.memories[pid]
	if m == nil {
		m = &memory{pid: pid}
		u.memories[pid] = m
	}
	return m
}

// forgetGuards drops what was noted of processes that do not exist any more; u.mu is held.
func (u *Unwinder) forgetGuards() {
	u.guardMu.Lock()
	defer u.guardMu.Unlock()
	for pid := range u.memories {
		if unix.Kill(int(pid), 0) == unix.ESRCH {
			delete(u.memories, pid)
			delete(u.refused, pid)
			u.tables.rows.forget(pid)
		}
	}
}

// userOf is the real user of a process, by /proc/PID/status: the owner of the folder is root's where a process has made itself
// unreadable. Root's for one that is gone.
func userOf(pid uint32) uint32 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 4096))
	_, rest, _ := bytes.Cut(text, []byte("\nUid:\t"))
	id, _, _ := bytes.Cut(rest, []byte("\t"))
	user, _ := strconv.ParseUint(string(id), 10, 32)
	return uint32(user)
}

// maxProblems bounds the list of what went wrong.
const maxProblems = 16

func (u *Unwinder) problem(text string) {
	u.guardMu.Lock()
	defer u.guardMu.Unlock()
	if len(u.problems) < maxProblems && !slices.Contains(u.problems, text) {
		u.problems = append(u.problems, text)
	}
}

// Problems lists which processes' stacks are cut since their files or memory could not be
// read, and why; at most 16. The texts are not cleaned of what processes put in names.
func (u *Unwinder) Problems() []string {
	u.guardMu.Lock()
	defer u.guardMu.Unlock()
	list := slices.Clone(u.problems)
	for _, m := range u.memories {
		if m.stuck.Load() && len(list) < maxProblems {
			list = append(list, fmt.Sprintf("stacks of process %d are cut: it does not let its memory be read", m.pid))
		}
	}
	list = append(list, u.layouts.refused(maxProblems-len(list))...)
	slices.Sort(list)
	return list
}

// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/cudaapi"
	"github.com/vramprof/vramprof/tracer/deadline"
	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/ledger/quota"
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/patches"
	"github.com/vramprof/vramprof/tracer/probepoint"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// Options connect Files to the tracer. Files calls the functions in the goroutine that calls its
// methods, and holds no lock meanwhile.
type Options struct {
	NoTensors bool                                    // do not probe PyTorch's libraries
	Requests  bool                                    // probe ioctl in processes that use CUDA, too
	Prepare   func() error                            // is called before PyTorch's libraries are probed; may be nil
	Traced    func(pid uint32) bool                   // reports whether a process is traced
	Owner     func(pid uint32) uint32                 // returns the user of a process, as ledger.Process.User
	Warn      func(pid uint32, text string)           // takes a warning about a process, or about none with pid 0
	FileID    func(l libraries.Mapped) (uint64, bool) // returns the unwinder's id of a file
	Pace      Pace                                    // of Review
	Probed    func(l libraries.Mapped, rows int)      // is called after that many functions of a file were probed
	Meanwhile func() []libraries.Mapped               // returns what was mapped since the scan that Probe gets; may be nil
	Again     func(pid uint32)                        // is called for a process that must be scanned again; may be nil
	TakenBack func()                                  // is called when a file must not have probes any more; may be nil
}

// Files are the files that are probed, and those that could not be probed. Files has no lock: only
// the goroutine that looks for libraries may call its methods, because attaching takes up to 0.1 s
// for each function. Any goroutine may call HaveTensors.
type Files struct {
	prober   attacher
	options  Options
	known    map[libraries.FileKey]*file
	places   quota.ByProcess // shares of known, by process and user
	tried    map[uint32]int  // by pid: number of files that were first seen in this process
	retired  uint64          // calls of Retire
	loaders  map[libraries.FileKey]*Set
	mapped   mappedFiles // by all processes, also those that are not traced
	doubts   map[libraries.FileKey]*doubt
	apart    quota.ByProcess // shares of the probes in single processes
	requests requests
	tensors  atomic.Bool

	// Code.Find and Code.FindProbed, or imitations in tests.
	compare, compareProbed func(*patches.Code, string, []libraries.Mapped) []patches.Patch

	// A driver could not be probed: only the runtime's probes see its calls.
	driverUnseen bool

	patience time.Duration // for the probes of one file, whose reads may be stalled
}

// attacher is a Prober, or an imitation of one in tests.
type attacher interface {
	Attach(f *os.File, l libraries.Mapped, pid uint32) (*Set, error)
	AttachBrief(f *os.File, layer cudaapi.Layer, pid uint32) (*Set, error)
	CanAttachToOne() bool
	AttachLoader(f *os.File) (*Set, error)
	functions(f *os.File, layer cudaapi.Layer) ([]probepoint.Function, error)
	name(set *Set, fileID func() (uint64, bool)) bool
	review(f *os.File, set *Set, fileID func() (uint64, bool), pace Pace, keep bool) error
}

// file is a file with functions of CUDA or PyTorch that a process maps.
type file struct {
	probes  *Set             // nil if it could not be probed
	version fileid.ID        // when it was probed or could not be
	origin  origin           // only if it is probed, or overwritten in a process
	code    *patches.Code    // what its probes rely on; nil if that is unknown
	patched []uint32         // pids of processes with other code in their memory: see patched.go
	noApart bool             // because of one of them, no process may be probed by itself
	apart   apart            // the probes in single processes; see apart.go
	first   libraries.Mapped // where it was first seen
	mapped  libraries.Mapped // by a traced process; zero until one does
	holder  uint32           // pid of the process in which it was first seen
	idle    uint64           // count of Retire since which no process maps it; 0: one does
}

// Limits of the number of probed files. A process has about four. One that loads new copies of a
// library in a loop would otherwise exhaust the goroutine's time and the kernel's memory.
const (
	maxFilesOfProcess = 32
	maxFiles          = 1024

	// maxFilesOneByOne is maxFiles where the kernel removes one probe after the other (before Linux
	// 6.6): each takes up to 0.1 s, also after SIGKILL, and a file has some 65.
	maxFilesOneByOne = 256
)

// NewFiles returns Files that attaches with prober.
func NewFiles(prober *Prober, options Options) *Files {
	if !prober.multi {
		return newFiles(prober, options, maxFilesOneByOne)
	}
	return newFiles(prober, options, maxFiles)
}

func newFiles(prober attacher, options Options, most int) *Files {
	return &Files{
		prober: prober, options: options, known: map[libraries.FileKey]*file{}, places: quota.NewByProcess(most),
		tried: map[uint32]int{}, loaders: map[libraries.FileKey]*Set{}, mapped: mappedFiles{},
		doubts: map[libraries.FileKey]*doubt{}, apart: quota.NewByProcess(maxApart), requests: requests{},
		compare: (*patches.Code).Find, compareProbed: (*patches.Code).FindProbed, patience: attachPatience,
	}
}

// Probe probes the files in found that are not probed yet and that traced processes, or this
// process, map. It sorts found. PyTorch's libraries come first: a tensor that is missed in a
// segment that is seen would count as PyTorch's cache. The runtime comes before the driver, whose
// calls would else be reported under their own names.
//
// A file that a process has changed in its memory is not probed there; see patched.go.
func (s *Files) Probe(found []libraries.Mapped) {
	s.mapped.note(found)
	s.takeBack(found)
	s.probeFoundApart(found)
	s.probeRequests(found)
	order := [...]int{cudaapi.Torch: 0, cudaapi.Runtime: 1, cudaapi.Driver: 2}
	slices.SortStableFunc(found, func(a, b libraries.Mapped) int { return cmp.Compare(order[a.Layer], order[b.Layer]) })
	probed := map[libraries.FileKey]bool{}
	for _, l := range found {
		switch {
		case !l.IsOwn() && !s.options.Traced(l.PID), probed[l.File]:
		case s.isProbed(l):
			probed[l.File] = true
			s.known[l.File].mappedBy(l)
		default:
			s.probe(l)
		}
	}
}

// isProbed reports whether a file is probed, or could not be probed and has not changed since. A
// file may be overwritten, and after its deletion another file may get its inode number.
func (s *Files) isProbed(l libraries.Mapped) bool {
	known, tried := s.known[l.File]
	if !tried || known.probes != nil { // a probe keeps the inode in use
		return tried
	}
	id, err := l.Version()
	return err != nil || id == known.version
}

// probe attaches to one file. If that fails, it warns, and the file is tried again only after a
// change.
func (s *Files) probe(l libraries.Mapped) {
	defer func() {
		s.driverUnseen = s.driverUnseen || l.Layer == cudaapi.Driver && !l.Program && !l.IsOwn() && !s.has(l.File)
	}()
	if !s.mayProbe(l) {
		return
	}
	f, err := l.OpenFile()
	if isGone(err) || errors.Is(err, deadline.ErrStuck) {
		s.putBack(l)
		return
	}
	x := &file{holder: l.Holder(), first: l, version: identify(l, f)}
	x.mappedBy(l)
	s.known[l.File] = x
	s.tried[l.Holder()]++
	if err != nil {
		s.options.Warn(0, err.Error())
		return
	}
	defer f.Close()
	if l.Layer == cudaapi.Torch && s.options.NoTensors {
		return
	}
	x.origin = originOf(l, f)
	if x.code, err = s.readCode(f, l); err == nil && s.refuse(x, f) {
		s.probeApart(x, s.mapped.of(l.File))
		return
	}
	var set *Set
	if err == nil {
		set, err = s.attach(f, l, 0)
	}
	if errors.Is(err, deadline.ErrStuck) {
		s.postpone(x)
		return
	}
	if err != nil {
		x.origin.close()
		if !l.Program { // most programs do not contain cudart
			s.options.Warn(l.PID, fmt.Sprintf("probe %s of process %d: %v", l.Name, l.PID, err))
		}
		return
	}
	x.probes = set
	if l.Layer == cudaapi.Torch {
		s.tensors.Store(true)
	}
	// A call that was entered before is found in the stacks of its driver calls.
	s.prober.name(set, func() (uint64, bool) { return s.options.FileID(l) })
	s.options.Probed(l, len(set.functions))
}

// putBack has a file tried again when the process that maps it is scanned again: it maps the file
// elsewhere, or stalls who opens or reads it.
func (s *Files) putBack(l libraries.Mapped) {
	if l.Holder() != ownPID {
		s.places.Give(l.Holder())
	}
	if procfs.Exists(l.PID) && s.options.Again != nil {
		s.options.Again(l.PID)
	}
}

// postpone forgets a file whose reads are stalled, so that it is tried again.
func (s *Files) postpone(x *file) {
	x.origin.close()
	delete(s.known, x.first.File)
	s.tried[x.holder]--
	s.putBack(x.first)
}

// isGone reports whether a file could not be opened because it was unmapped since the scan, or its
// process has ended.
func isGone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) }

func (s *Files) attach(f *os.File, l libraries.Mapped, pid uint32) (*Set, error) {
	if l.Layer == cudaapi.Torch && s.options.Prepare != nil {
		if err := s.options.Prepare(); err != nil {
			return nil, err
		}
	}
	return patiently(l.Holder(), f, s.patience, func(f *os.File) (*Set, error) { return s.prober.Attach(f, l, pid) })
}

// mappedBy notes a process that maps the file.
func (x *file) mappedBy(l libraries.Mapped) {
	if !l.IsOwn() {
		x.mapped = l
	}
}

// Review detaches probes of the runtime that report what the driver's report too, and attaches them
// again for a look; see wrapper. It also probes files again whose code has changed, and those that
// could not be compared. It is to be called every second.
func (s *Files) Review() {
	s.probeChanged()
	s.probeDoubted(time.Now())
	s.reviewWrappers()
}

func (s *Files) reviewWrappers() {
	for _, x := range s.known {
		if x.probes == nil || x.origin.file == nil || x.mapped.PID == 0 {
			continue
		}
		fileID := func() (uint64, bool) { return s.options.FileID(x.mapped) }
		if err := s.prober.review(x.origin.file, x.probes, fileID, s.options.Pace, s.driverUnseen); err != nil {
			s.options.Warn(0, fmt.Sprintf("probe %s: %v", x.mapped.Name, err))
		}
	}
}

// identify returns the version of a file; f is nil if it could not be opened.
func identify(l libraries.Mapped, f *os.File) (id fileid.ID) {
	if f != nil {
		id, _ = fileid.Stat(int(f.Fd()))
	} else {
		id, _ = l.Version()
	}
	return id
}

// mayProbe reports whether one more file of a process may be probed, and counts it.
func (s *Files) mayProbe(l libraries.Mapped) bool {
	pid := l.Holder()
	if pid == ownPID || s.tried[pid] < maxFilesOfProcess && s.places.Take(pid, s.options.Owner(pid)) {
		return true
	}
	s.options.Warn(pid, fmt.Sprintf("process %d maps more CUDA libraries than are probed: calls of further ones are missing", pid))
	return false
}

// has reports whether a file is probed in all processes.
func (s *Files) has(key libraries.FileKey) bool {
	return s.known[key] != nil && s.known[key].probes != nil
}

// HaveTensors reports whether any PyTorch that reports its tensors was probed.
func (s *Files) HaveTensors() bool { return s.tensors.Load() }

// ProbeLoader probes the dynamic loader f, unless it is probed already: held processes stop each
// time it has loaded libraries.
func (s *Files) ProbeLoader(f *os.File) error {
	var key libraries.FileKey
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil {
		key = libraries.FileKey{Device: uint32(st.Dev), Inode: st.Ino}
	}
	if s.loaders[key] != nil {
		return nil
	}
	set, err := s.prober.AttachLoader(f)
	if err == nil {
		s.loaders[key] = set
	}
	return err
}

// HaveLoaders reports whether any dynamic loader is probed.
func (s *Files) HaveLoaders() bool { return len(s.loaders) > 0 }

// Functions returns the names of the probed functions of each file, in no order.
func (s *Files) Functions() (list [][]string) {
	for _, x := range s.known {
		set := x.probes
		for _, here := range x.apart {
			set = here.probes
		}
		if set == nil {
			continue
		}
		var names []string
		for _, at := range set.functions {
			names = append(names, at.Name)
		}
		list = append(list, names)
	}
	return list
}

// SPDX-License-Identifier: Apache-2.0

package probes

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/libraries"
)

// Options say which libraries are probed, and who is told of it. The functions are called without a
// lock, from the goroutine that calls the method of Files.
type Options struct {
	NoTensors bool                               // leave PyTorch's libraries alone
	Traced    func(pid uint32) bool              // whether a process is traced
	Owner     func(pid uint32) uint32            // the user of a process, as ledger.Process.User
	Warn      func(pid uint32, text string)      // pid 0: it is about no process
	Probed    func(l libraries.Mapped, rows int) // a file has just been probed: so many functions of it
}

// Files are the files that are probed, or could not be. The goroutine that looks for libraries is
// the only one that may call its methods, since they take long: attaching takes up to 0.1 s for each
// function. So there is no lock. Any goroutine may call HaveTensors.
type Files struct {
	prober  attacher
	options Options
	known   map[libraries.FileKey]*file
	places  ledger.Holders // in known, by process and user
	tried   map[uint32]int // files that were first seen in a process
	loaders map[libraries.FileKey]*Set
	tensors atomic.Bool
}

// attacher is what a Prober does to one file.
type attacher interface {
	Attach(f *os.File, l libraries.Mapped) (*Set, error)
	AttachBrief(f *os.File, layer functions.Layer) (*Set, error)
	AttachLoader(f *os.File) (*Set, error)
}

// file is a file in which somebody maps CUDA's functions.
type file struct {
	probes *Set      // nil: it could not be probed
	failed fileid.ID // what it was then
	origin origin    // of one that is probed
	holder uint32    // process in which it was first seen
}

// Limits of the files that are probed. A process has about four; one that loads new copies of a
// library in a loop would take the worker's time, and the kernel's memory.
const (
	maxFilesOfProcess = 32
	maxFiles          = 4096
)

// NewFiles returns Files without probes, which attaches by prober.
func NewFiles(prober *Prober, options Options) *Files { return newFiles(prober, options) }

func newFiles(prober attacher, options Options) *Files {
	return &Files{
		prober: prober, options: options, known: map[libraries.FileKey]*file{}, places: ledger.NewHolders(maxFiles),
		tried: map[uint32]int{}, loaders: map[libraries.FileKey]*Set{},
	}
}

// Probe probes the files of traced processes, and of our own, that are not probed yet. It sorts
// found. PyTorch's tensors come first: one that was not seen in a segment that was would count as
// PyTorch's cache. Then the runtime: its return probes cut the stacks of driver calls for as long as
// its entry probes are not there.
func (s *Files) Probe(found []libraries.Mapped) {
	order := [...]int{functions.Torch: 0, functions.Runtime: 1, functions.Driver: 2}
	slices.SortStableFunc(found, func(a, b libraries.Mapped) int { return cmp.Compare(order[a.Layer], order[b.Layer]) })
	probed := map[libraries.FileKey]bool{}
	for _, l := range found {
		switch {
		case !l.IsOwn() && !s.options.Traced(l.PID), probed[l.File]:
		case s.isProbed(l):
			probed[l.File] = true
		default:
			s.probe(l)
		}
	}
}

// isProbed reports whether a file is probed, or was tried and has not changed since: it may be
// overwritten, and when it is gone its number is another one's.
func (s *Files) isProbed(l libraries.Mapped) bool {
	known, tried := s.known[l.File]
	if !tried || known.probes != nil { // a probe keeps its file
		return tried
	}
	id, err := fileid.At(l.Path)
	return err != nil || id == known.failed
}

// probe attaches to one file. A file that cannot be probed is a warning, and is not tried again until
// it has changed.
func (s *Files) probe(l libraries.Mapped) {
	if !s.mayProbe(l) {
		return
	}
	f, err := l.OpenFile()
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		if !l.IsOwn() {
			s.places.Give(l.PID)
		}
		return // unmapped since the scan, or its process is gone
	}
	x := &file{holder: l.PID, failed: identify(l, f)}
	s.known[l.File] = x
	s.tried[l.PID]++
	if err != nil {
		s.options.Warn(0, err.Error())
		return
	}
	defer f.Close()
	if l.Layer == functions.Torch && s.options.NoTensors {
		return
	}
	set, err := s.prober.Attach(f, l)
	if err != nil {
		if !l.Program { // most programs have no cudart in them
			s.options.Warn(l.PID, fmt.Sprintf("probe %s of process %d: %v", l.Name, l.PID, err))
		}
		return
	}
	x.probes, x.origin = set, originOf(l, f)
	if l.Layer == functions.Torch {
		s.tensors.Store(true)
	}
	s.options.Probed(l, len(set.functions))
}

// identify tells the file from what it may become; f is nil where it could not be opened.
func identify(l libraries.Mapped, f *os.File) (id fileid.ID) {
	if f != nil {
		id, _ = fileid.Of(int(f.Fd()))
	} else {
		id, _ = fileid.At(l.Path)
	}
	return id
}

// mayProbe reports whether one more file of a process is probed, and counts it.
func (s *Files) mayProbe(l libraries.Mapped) bool {
	if l.IsOwn() || s.tried[l.PID] < maxFilesOfProcess && s.places.Take(l.PID, s.options.Owner(l.PID)) {
		return true
	}
	s.options.Warn(l.PID, fmt.Sprintf("process %d maps more CUDA libraries than are probed: calls of further ones are missing", l.PID))
	return false
}

// has reports whether a file is probed.
func (s *Files) has(key libraries.FileKey) bool {
	return s.known[key] != nil && s.known[key].probes != nil
}

// HaveTensors reports whether a PyTorch was probed that reports its tensors.
func (s *Files) HaveTensors() bool { return s.tensors.Load() }

// ProbeLoader probes a dynamic loader, unless it is probed already, so that held processes stop when
// it has loaded libraries.
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

// HaveLoaders reports whether a dynamic loader is probed.
func (s *Files) HaveLoaders() bool { return len(s.loaders) > 0 }

// Functions lists the functions that are probed, of each file.
func (s *Files) Functions() (list [][]string) {
	for _, x := range s.known {
		if x.probes == nil {
			continue
		}
		var names []string
		for _, at := range x.probes.functions {
			names = append(names, at.Name)
		}
		list = append(list, names)
	}
	return list
}

// Close takes all probes away. On kernels before 6.6 it takes up to 0.1 s for each probe.
func (s *Files) Close() {
	for key, x := range s.known {
		x.close()
		delete(s.known, key)
	}
	for key, set := range s.loaders {
		set.Close()
		delete(s.loaders, key)
	}
}

func (x *file) close() {
	if x.probes != nil {
		x.probes.Close()
	}
	x.origin.close()
}

// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/clock"
	"github.com/vramprof/vramprof/tracer/fileid"
	"github.com/vramprof/vramprof/tracer/functions"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// isProbed says whether a file is probed, or was tried and has not changed since: it may be overwritten, and when it is gone its
// number is another one's.
func (t *Tracer) isProbed(library mappedLibrary) bool {
	set, tried := t.files[library.file]
	if !tried || set != nil { // a probe keeps its file
		return tried
	}
	id, err := fileid.At(library.open)
	return err != nil || id == t.failed[library.file]
}

// probe attaches to one file. A file that cannot be probed is a warning and
// is not tried again until it has changed.
func (t *Tracer) probe(library mappedLibrary) {
	if !t.mayProbe(library) {
		return
	}
	f, err := library.openLibrary()
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		if library.pid != ownPid {
			t.filesOf.Give(library.pid)
		}
		return // unmapped since the scan, or its process is gone
	}
	t.files[library.file], t.holders[library.file] = nil, library.pid
	t.failed[library.file] = library.version(f)
	t.tried[library.pid]++
	if err != nil {
		t.warn(err.Error())
		return
	}
	defer f.Close()
	attach := func() (*probes, error) { return t.prober.attach(f, library.layer) }
	if library.layer == functions.Torch {
		if t.config.NoTensors {
			return
		}
		attach = func() (*probes, error) { return t.prober.attachTorch(f) }
	}
	set, err := attach()
	if errors.Is(err, errNoReports) {
		if version := torchVersion(library); version != "" {
			err = fmt.Errorf("PyTorch %s: %w", version, err)
		}
	}
	if err != nil {
		if !library.program { // most programs have no cudart in them
			t.warnOf(library.pid, fmt.Sprintf("probe %s of process %d: %v", library.name, library.pid, err))
		}
		return
	}
	t.files[library.file] = set
	delete(t.failed, library.file)
	t.origins[library.file] = library.origin(f)
	if library.layer == functions.Torch {
		t.tensorsProbed.Store(true)
	}
	t.config.Note(fmt.Sprintf("probing %d functions of %s", len(set.functions), library.name))
	t.noteLate(library)
	if library.pid != ownPid && library.layer != functions.Torch && !t.isHeld(library.pid) {
		t.jobs.add(job{kind: jobLearn}) // its threads have chosen their devices already
	}
}

// version tells the file from what it may become, f where it could be opened.
func (l mappedLibrary) version(f *os.File) (id fileid.ID) {
	if f != nil {
		id, _ = fileid.Of(int(f.Fd()))
	} else {
		id, _ = fileid.At(l.open)
	}
	return id
}

// Limits of the files that are probed. A process has some four; one that loads new copies of a
// library in a loop would keep the worker busy, and the kernel's memory.
const (
	maxFilesOfProcess = 32
	maxFiles          = 4096
)

// mayProbe says whether one more file of a process is probed, and counts it.
func (t *Tracer) mayProbe(library mappedLibrary) bool {
	if library.pid == ownPid || t.tried[library.pid] < maxFilesOfProcess && t.filesOf.Take(library.pid, t.ownerOf(library.pid)) {
		return true
	}
	t.warnOf(library.pid, fmt.Sprintf("process %d maps more CUDA libraries than are probed: calls of further ones are missing", library.pid))
	return false
}

// noteLate says how long a process ran with a library that was not probed yet,
// when it began after us and so had no other moment to be missed in.
func (t *Tracer) noteLate(library mappedLibrary) {
	began := procfs.StartTime(library.pid)
	if library.pid == ownPid || library.program || began < t.running.Load() || t.running.Load() == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	late := time.Duration(clock.Now() - began).Round(time.Millisecond)
	if text := t.unseen.note(library, late); text != "" {
		t.books.Tell(ledger.Warning{Text: text})
	}
}

// maxUnseenTold: where processes come and go all the time, a line for each would hide all else.
const maxUnseenTold = 8

// unseen counts files that a process called before they were probed.
type unseen struct {
	told, further int
	longest       time.Duration // of the further ones
}

// note gives the text for one file, "" for a further one.
func (u *unseen) note(library mappedLibrary, late time.Duration) string {
	if u.told < maxUnseenTold {
		u.told++
		return fmt.Sprintf("process %d called %s unseen in at most its first %v", library.pid, library.name, late)
	}
	u.further++
	u.longest = max(u.longest, late)
	return ""
}

func (u *unseen) text() string {
	if u.further == 0 {
		return ""
	}
	return fmt.Sprintf("likewise, %d further files were called unseen in at most the first %v of processes", u.further, u.longest)
}

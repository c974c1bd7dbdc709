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
	"github.com/vramprof/vramprof/tracer/libraries"
	"github.com/vramprof/vramprof/tracer/procfs"
)

// isProbed says whether a file is probed, or was tried and has not changed since: it may be overwritten, and when it is gone its
// number is another one's.
func (t *Tracer) isProbed(library libraries.Mapped) bool {
	set, tried := t.files[library.File]
	if !tried || set != nil { // a probe keeps its file
		return tried
	}
	id, err := fileid.At(library.Path)
	return err != nil || id == t.failed[library.File]
}

// probe attaches to one file. A file that cannot be probed is a warning and
// is not tried again until it has changed.
func (t *Tracer) probe(library libraries.Mapped) {
	if !t.mayProbe(library) {
		return
	}
	f, err := library.OpenFile()
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		if library.PID != ownPid {
			t.filesOf.Give(library.PID)
		}
		return // unmapped since the scan, or its process is gone
	}
	t.files[library.File], t.holders[library.File] = nil, library.PID
	t.failed[library.File] = identify(library, f)
	t.tried[library.PID]++
	if err != nil {
		t.warn(err.Error())
		return
	}
	defer f.Close()
	if library.Layer == functions.Torch && t.config.NoTensors {
		return
	}
	set, err := t.prober.Attach(f, library)
	if err != nil {
		if !library.Program { // most programs have no cudart in them
			t.warnOf(library.PID, fmt.Sprintf("probe %s of process %d: %v", library.Name, library.PID, err))
		}
		return
	}
	t.files[library.File] = set
	delete(t.failed, library.File)
	t.origins[library.File] = originOf(library, f)
	if library.Layer == functions.Torch {
		t.tensorsProbed.Store(true)
	}
	t.config.Note(fmt.Sprintf("probing %d functions of %s", len(set.Functions()), library.Name))
	t.noteLate(library)
	if library.PID != ownPid && library.Layer != functions.Torch && !t.isHeld(library.PID) {
		t.jobs.add(job{kind: jobLearn}) // its threads have chosen their devices already
	}
}

// identify tells the file from what it may become, f where it could be opened.
func identify(l libraries.Mapped, f *os.File) (id fileid.ID) {
	if f != nil {
		id, _ = fileid.Of(int(f.Fd()))
	} else {
		id, _ = fileid.At(l.Path)
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
func (t *Tracer) mayProbe(library libraries.Mapped) bool {
	if library.PID == ownPid || t.tried[library.PID] < maxFilesOfProcess && t.filesOf.Take(library.PID, t.ownerOf(library.PID)) {
		return true
	}
	t.warnOf(library.PID, fmt.Sprintf("process %d maps more CUDA libraries than are probed: calls of further ones are missing", library.PID))
	return false
}

// noteLate says how long a process ran with a library that was not probed yet,
// when it began after us and so had no other moment to be missed in.
func (t *Tracer) noteLate(library libraries.Mapped) {
	began := procfs.StartTime(library.PID)
	if library.PID == ownPid || library.Program || began < t.running.Load() || t.running.Load() == 0 {
		return
	}
	t.desk.Take()
	defer t.turn.Done()
	late := time.Duration(clock.Now() - began).Round(time.Millisecond)
	if text := t.unseen.note(library, late); text != "" {
		t.turn.Tell(ledger.Warning{Text: text})
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
func (u *unseen) note(library libraries.Mapped, late time.Duration) string {
	if u.told < maxUnseenTold {
		u.told++
		return fmt.Sprintf("process %d called %s unseen in at most its first %v", library.PID, library.Name, late)
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

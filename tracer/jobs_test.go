// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vramprof/vramprof/tracer/gpuusage"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/processes"
)

// A worker that hangs in a job, or never comes to one, showed nowhere.
func TestTheAgeOfTheOldestJobCountsWhileItWaitsAndWhileItIsDone(t *testing.T) {
	j := newJobs()
	later := time.Now().Add(time.Hour)
	age := func() int { return int(j.age(later).Hours() + 0.5) }
	expect := func(when string, want int) {
		t.Helper()
		if got := age(); got != want {
			t.Errorf("%s: %d h, want %d h", when, got, want)
		}
	}
	expect("without a job", 0)
	j.add(job{jobLoad, 7})
	expect("with a job of the loader", 0)
	j.add(job{jobScan, 7})
	expect("while a job waits", 1)
	j.todo[jobScan][7] = j.todo[jobScan][7].Add(-time.Hour)
	j.add(job{jobScan, 7})
	expect("when it is added once more", 2)
	if n, ok := j.take(); !ok || n != (job{jobScan, 7}) {
		t.Fatalf("took %+v, %v", n, ok)
	}
	expect("while it is done", 2)
	j.end()
	expect("after it", 0)
	j.begin(later.Add(-3 * time.Hour))
	expect("while a timer's work is done", 3)
}

type noKernel struct{}

func (noKernel) Put(_, _ any) error    { return nil }
func (noKernel) Delete(any) error      { return nil }
func (noKernel) Lookup(_, _ any) error { return ebpf.ErrKeyNotExist }

// A program loads the runtime as it starts, and the driver in its first call: the tables that were
// loaded for the one lack the other.
func TestAFurtherCUDALibraryOfAProcessHasItsTablesLoaded(t *testing.T) {
	nothing := func(uint32) {}
	x := &discovery{jobs: newJobs(), usage: &gpuusage.Monitor{}}
	x.table = processes.NewTable(processes.Options{Kernel: noKernel{}, Scan: nothing, Introduce: nothing, Adopt: func(_, _ uint32) bool { return false }})
	own := uint32(os.Getpid())
	todo := func() (scan, load bool) {
		_, scan = x.jobs.todo[jobScan][own]
		_, load = x.jobs.todo[jobLoad][own]
		x.jobs = newJobs()
		return scan, load
	}
	x.mapped(own, true)
	if scan, load := todo(); !scan || load {
		t.Errorf("a new process: scan %v, load %v; its scan loads its tables", scan, load)
	}
	x.table.Found(ledger.New(ledger.Options{}), own)
	for _, cuda := range []bool{true, false} {
		x.mapped(own, cuda)
		if scan, load := todo(); scan != cuda || !load {
			t.Errorf("a known process, a CUDA library %v: scan %v, load %v", cuda, scan, load)
		}
	}
}

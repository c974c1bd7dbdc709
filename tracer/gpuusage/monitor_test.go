// SPDX-License-Identifier: Apache-2.0

package gpuusage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/panics"
	"github.com/vramprof/vramprof/tracer/sequence"
)

// driver lists eight GPUs, and processes on them.
type driver struct {
	eight
	usage     []ledger.Usage
	err       error
	readings  int
	suspended int // times
}

func (d *driver) Suspend(context.Context) error { d.suspended++; return nil }

func (d *driver) GPUs(context.Context) ([]ledger.GPU, error) { return eightGPUs(), nil }
func (d *driver) Usage(context.Context) ([]ledger.Usage, error) {
	d.readings++
	return slices.Clone(d.usage), d.err
}

// told keeps what the books were told, in words.
type told []string

func (j *told) Apply(*ledger.Event) {}

func (j *told) Tell(in ledger.Input) {
	switch in := in.(type) {
	case ledger.Devices:
		*j = append(*j, fmt.Sprint("devices ", in.PID, " ", in.UUIDs))
	case ledger.UsageReading:
		for _, u := range in.Usages {
			*j = append(*j, fmt.Sprint("usage ", u.PID, " ", u.UUID, " ", u.Rough))
		}
	case ledger.SystemReading:
		*j = append(*j, fmt.Sprint("system ", in.PID, " ", in.On, " ", in.Cut))
	case ledger.Warning:
		*j = append(*j, in.Text)
	}
}

// machine is a Monitor of which all is known but NVML's answers.
type machine struct {
	*Monitor
	driver  driver
	told    told
	changed map[uint32]uint64
	again   []uint32
}

func newMachine() *machine {
	m := &machine{changed: map[uint32]uint64{}}
	panics := &panics.List{}
	m.Monitor = NewMonitor(Options{
		NVML: &m.driver, Sequencer: sequence.New(ledger.New(ledger.Options{Begin: 1}), &m.told, panics), Defects: panics,
		Changed:   func(pid uint32) (uint64, bool) { at, known := m.changed[pid]; return at, known },
		LookAgain: func(pid uint32) { m.again = append(m.again, pid) },
		Before:    func(*sequence.Tx) {},
	})
	return m
}

// after returns what the books were told by do.
func (m *machine) after(do func()) string {
	m.told = nil
	do()
	return strings.Join(m.told, "; ")
}

func (m *machine) introduce(pid uint32, view View) {
	tx := m.Sequencer.Begin()
	defer tx.Done()
	m.Introduce(tx, pid, view)
}

// allocate books memory of a process.
func (m *machine) allocate(pid uint32, device int32, address uint64) {
	tx := m.Sequencer.Begin()
	defer tx.Done()
	tx.Apply(&ledger.Event{PID: pid, Op: ledger.Alloc, Kind: ledger.Device, Device: device, Address: address, Size: 60 << 30, Time: 2})
}

func TestAListingOnAnotherGPUIsNoDoubtWhileMemoryIsOnListedOnes(t *testing.T) {
	m := newMachine()
	m.changed[7] = 0
	read := func() { m.Read(context.Background()) }
	m.introduce(7, View{environ: []string{"CUDA_VISIBLE_DEVICES=3"}})
	for _, c := range []struct {
		name  string
		on    []string
		alloc bool
		want  string
	}{
		{"EGL before CUDA", []string{"GPU-0"}, false, "devices 7 [GPU-3]; usage 7 GPU-0 false"},
		{"EGL beside CUDA", []string{"GPU-0", "GPU-3"}, true, "usage 7 GPU-0 false; usage 7 GPU-3 false"},
		{"CUDA alone", []string{"GPU-3"}, false, "usage 7 GPU-3 false"},
		{"none, as after a checkpoint", nil, false, ""},
	} {
		if c.alloc {
			m.allocate(7, 0, 4096)
		}
		m.driver.usage = nil
		for _, uuid := range c.on {
			m.driver.usage = append(m.driver.usage, ledger.Usage{PID: 7, UUID: uuid, Bytes: 61 << 30})
		}
		if got := m.after(read); got != c.want || len(m.again) > 0 {
			t.Errorf("%s: told %q, want %q; looked at again: %v", c.name, got, c.want, m.again)
		}
	}
}

func TestOrdinalsThatNVMLDeniesAreDroppedAndLookedAtAgain(t *testing.T) {
	m := newMachine()
	m.changed[7] = 0
	read := func() { m.Read(context.Background()) }
	view := View{open: minorsOf("3"), environ: []string{"CUDA_VISIBLE_DEVICES=3"}}
	if got := m.after(func() { m.introduce(7, view) }); got != "devices 7 []" {
		t.Errorf("before NVML was read: %q", got)
	}
	m.driver.usage = []ledger.Usage{{PID: 7, UUID: "GPU-3"}, {PID: 8, UUID: "GPU-1"}}
	if got := m.after(read); got != "devices 7 [GPU-3]; usage 7 GPU-3 false; usage 8 GPU-1 false" {
		t.Errorf("the first reading: %q", got)
	}
	if !m.Lists(7) || !m.OnOneGPU(7) || m.Lists(8) || m.OneGPU() || !m.HasGPUs() {
		t.Error("the known process is on one of several GPUs, and the other one is not known")
	}
	m.driver.usage = []ledger.Usage{{PID: 7, UUID: "GPU-5"}}
	m.allocate(7, 0, 4096)
	m.changed[7] = 1 << 63
	if got := m.after(read); got != "devices 7 []; usage 7 GPU-5 true" || !slices.Equal(m.again, []uint32{7}) {
		t.Errorf("another GPU: %q, looked at again: %v", got, m.again)
	}
	want := "process 7 uses GPUs that its environment does not name: what it reports about them is ignored"
	if got := m.after(func() { m.introduce(7, view) }); got != want {
		t.Errorf("the same again: %q", got)
	}
	m.Forget(7)
	if got := m.after(read); m.OnOneGPU(9) || got != "usage 7 GPU-5 true" {
		t.Errorf("a process that ended: %q", got)
	}
}

func TestAReadingThatFailsIsWarnedOf(t *testing.T) {
	m := newMachine()
	m.driver.usage, m.driver.err = []ledger.Usage{{PID: 7, UUID: "GPU-3"}}, errors.New("GPU is lost\n")
	if got := m.after(func() { m.Read(context.Background()) }); got != "NVML gave no complete reading: GPU is lost" {
		t.Errorf("the books were told %q", got)
	}
	hang, other := errors.New("NVML does not answer"), errors.New("GPU 1 is lost")
	if got := incomplete(hang, hang); got != "NVML does not answer" {
		t.Errorf("twice the same: %q", got)
	}
	if got := incomplete(errors.Join(other, hang), nil); got != "GPU 1 is lost; NVML does not answer" {
		t.Errorf("two reasons: %q", got)
	}
	if !strings.HasPrefix(m.Silence(1), "NVML has been silent since") {
		t.Errorf("silence: %q", m.Silence(1))
	}
}

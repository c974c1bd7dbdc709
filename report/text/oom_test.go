// SPDX-License-Identifier: Apache-2.0

package text

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// oomOf is the error of the training, at the end of the snapshot.
func oomOf(s *ledger.Snapshot) report.OOM {
	return report.OOM{
		PID: 4242, Comm: "python3", Time: s.End - reporttest.Second/5, Stack: 1, API: "torch", Kind: ledger.Tensor, Device: 0, Size: 2 * reporttest.GiB, Allocated: 40 * reporttest.GiB, Reserved: 61 * reporttest.GiB,
		Read: s.End - reporttest.Second/10, GPUs: s.GPUs, Names: map[uint32]string{99: "jupyter"},
		Usage: []ledger.Usage{
			{PID: 4242, UUID: reporttest.OOMGPU, Bytes: 63888 * reporttest.MiB}, {PID: 5151, UUID: reporttest.OOMGPU, Bytes: 12*reporttest.GiB + 500*reporttest.MiB},
			{PID: 6161, UUID: reporttest.OtherGPU, Bytes: 60 * reporttest.GiB}, {PID: 99, UUID: reporttest.OOMGPU, Bytes: reporttest.GiB},
		},
	}
}

func oomPage(t *testing.T, s *ledger.Snapshot, o report.OOM, options report.Options, screen Screen) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteOOM(&b, s, reporttest.Stacks(), o, options, screen); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOOMPage(t *testing.T) {
	s := reporttest.OOMSnapshot()
	text := oomPage(t, s, oomOf(s), report.Options{}, Screen{})
	reporttest.CheckText(t, text, 80)
	reporttest.Golden(t, "oom80.txt", []byte(text))
}

func TestOOMPageFitsWhateverNamesSay(t *testing.T) {
	s := reporttest.OOMSnapshot()
	o := oomOf(s)
	o.Stack, o.Comm, o.API, o.Names[99] = 3, "\x1b[31mevil\n", "cuda\x1b[2JMalloc\n", "\x1b]0;x\a"
	s.Host = "host\n\x1b[31m"
	s.GPUs[0].Name, s.Processes[1].Comm, s.Sites[3].Stack = strings.Repeat("很", 60)+"\x1b", "\x1b[2J\n", 3
	for width := minWidth; width <= 120; width++ {
		for _, api := range []string{"torch", o.API} {
			o.API = api
			if reporttest.CheckText(t, oomPage(t, s, o, report.Options{}, Screen{Width: width}), width); t.Failed() {
				t.Fatalf("at width %d", width)
			}
		}
	}
}

// Each byte of the processes that are traced is held once: the sum is what NVML says.
func TestOOMHoldersAddUpToWhatTheDriverReports(t *testing.T) {
	s := reporttest.OOMSnapshot()
	o := oomOf(s)
	v := newOOMCase(s, &o)
	var sum [2]uint64
	for _, h := range v.holdings() {
		sum[h.Process] += uint64(h.Live)
	}
	for i, got := range sum {
		if want := s.Balances[i].Usage; got != want {
			t.Errorf("holders of process %d: %d bytes, want %d", i, got, want)
		}
	}
}

func TestOOMSaysWhyTheRequestDidNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ledger.Snapshot, *report.OOM)
		want   string
	}{
		"pieces": {func(*ledger.Snapshot, *report.OOM) {},
			"21.0 GiB are cached, but the largest free run is 1.86 GiB in segments allocated since the attach: fragmentation."},
		"pieces from the beginning": {func(s *ledger.Snapshot, _ *report.OOM) { s.Tensors[0].OlderCached = 0 },
			"21.0 GiB are cached, but the largest free run is 1.86 GiB: fragmentation."},
		"pieces that are not known": {func(s *ledger.Snapshot, _ *report.OOM) { s.Tensors = nil },
			"21.0 GiB are cached, but in no free run that is large enough: fragmentation."},
		"another stream": {func(s *ledger.Snapshot, _ *report.OOM) { s.Tensors[0].LargestFree = 3 * reporttest.GiB },
			"21.0 GiB are cached, with a free run of 3.00 GiB by now that the request could not take: another stream or pool has it, or it was freed since."},
		"too large": {func(_ *ledger.Snapshot, o *report.OOM) { o.Size = 900 * reporttest.GiB },
			"The request is larger than the whole GPU, which has 79.6 GiB."},
		"full of tensors": {func(_ *ledger.Snapshot, o *report.OOM) { o.Size, o.Allocated = 4*reporttest.GiB, 60*reporttest.GiB },
			"The GPU is full: live tensors hold 60.0 GiB of 79.6 GiB."},
		"full of tensors, with a cache that is too small for a segment": {func(s *ledger.Snapshot, o *report.OOM) {
			o.Size, o.Allocated, o.Reserved = 4*reporttest.MiB, 60*reporttest.GiB, 60*reporttest.GiB+19*reporttest.MiB/4
			s.GPUs[0].Used, s.Tensors[0].LargestFree = s.GPUs[0].Total-6*reporttest.MiB, 0
		}, "The GPU is full: live tensors hold 60.0 GiB of 79.6 GiB. PyTorch takes 20.0 MiB from the driver for the request: more than the 6.00 MiB that are free and the 4.75 MiB that are cached."},
		"small pieces that would have been enough": {func(s *ledger.Snapshot, o *report.OOM) {
			o.Size, o.Allocated, o.Reserved = reporttest.MiB, 60*reporttest.GiB, 60*reporttest.GiB+19*reporttest.MiB/4
			s.GPUs[0].Used, s.Tensors[0].LargestFree = s.GPUs[0].Total, 0
		}, "4.75 MiB are cached, but in no free run that is large enough: fragmentation."},
		"a limit, with little cache": {func(s *ledger.Snapshot, o *report.OOM) {
			o.Size, o.Allocated, o.Reserved, s.GPUs[0].Used = 4*reporttest.MiB, 20*reporttest.GiB, 20*reporttest.GiB+reporttest.MiB, 30*reporttest.GiB
		}, "49.6 GiB are free now: memory was given back since the error, or a limit of the process is below the GPU's (PyTorch's memory fraction, MPS)."},
		"room for less": {func(s *ledger.Snapshot, o *report.OOM) {
			o.Size, o.Allocated, s.GPUs[0].Used, o.Usage[0].Bytes = 8*reporttest.GiB, 60*reporttest.GiB, 74*reporttest.GiB, 61*reporttest.GiB
		}, "Only 5.65 GiB are free: live tensors hold 60.0 GiB of 79.6 GiB."},
		"full of something else": {func(_ *ledger.Snapshot, o *report.OOM) {
			o.Size, o.Allocated, o.Reserved = 5*reporttest.GiB, 20*reporttest.GiB, 23*reporttest.GiB
		},
			"The GPU is full: this process holds 62.4 GiB of 79.6 GiB, of which 20.0 GiB are live tensors and 3.00 GiB are cached."},
		"full of one caller": {func(_ *ledger.Snapshot, o *report.OOM) { o.API, o.Size = "cudaMalloc", 4*reporttest.GiB },
			"The GPU is full: this process holds 62.4 GiB of 79.6 GiB."},
		"another": {func(s *ledger.Snapshot, o *report.OOM) {
			o.Usage = []ledger.Usage{{PID: 4242, UUID: reporttest.OOMGPU, Bytes: 10 * reporttest.GiB}, {PID: 99, UUID: reporttest.OOMGPU, Bytes: 66 * reporttest.GiB}}
			o.Allocated, o.Reserved, o.Size = 8*reporttest.GiB, 9*reporttest.GiB, 20*reporttest.GiB
		}, "Another process on this GPU, jupyter [99], holds 66.0 GiB of 79.6 GiB: without it the request would fit."},
		"others": {func(s *ledger.Snapshot, o *report.OOM) {
			o.Usage = []ledger.Usage{{PID: 4242, UUID: reporttest.OOMGPU, Bytes: 10 * reporttest.GiB}, {PID: 99, UUID: reporttest.OOMGPU, Bytes: 30 * reporttest.GiB}, {PID: 5151, UUID: reporttest.OOMGPU, Bytes: 36 * reporttest.GiB}}
			o.Allocated, o.Reserved, o.Size = 8*reporttest.GiB, 9*reporttest.GiB, 20*reporttest.GiB
		}, "The 2 other processes on this GPU hold 66.0 GiB of 79.6 GiB: without them the request would fit."},
		"others, but not only they": {func(s *ledger.Snapshot, o *report.OOM) {
			o.Usage = []ledger.Usage{{PID: 4242, UUID: reporttest.OOMGPU, Bytes: 30 * reporttest.GiB}, {PID: 99, UUID: reporttest.OOMGPU, Bytes: 46 * reporttest.GiB}}
			o.Allocated, o.Reserved, o.Size = 8*reporttest.GiB, 9*reporttest.GiB, 60*reporttest.GiB
		}, "The GPU is full: this process holds 30.0 GiB of 79.6 GiB, the others hold 46.0 GiB."},
		"unnamed": {func(s *ledger.Snapshot, o *report.OOM) {
			o.Usage = []ledger.Usage{{PID: 4242, UUID: reporttest.OOMGPU, Bytes: 10 * reporttest.GiB}}
			o.API = "cuMemAlloc_v2"
			o.Size = 4 * reporttest.GiB
		}, "The GPU is full: 76.0 GiB of 79.6 GiB are used, most of it by processes that NVML omits."},
		"a limit": {func(s *ledger.Snapshot, o *report.OOM) {
			s.GPUs[0].Used, o.API = 30*reporttest.GiB, "cudaMalloc"
		}, "49.6 GiB are free now: memory was given back since the error, or a limit of the process is below the GPU's (PyTorch's memory fraction, MPS)."},
		"gone before NVML was read": {func(s *ledger.Snapshot, o *report.OOM) {
			s.GPUs[0].Used, o.Usage, o.Allocated, o.Size = 14*reporttest.GiB, o.Usage[1:], 60*reporttest.GiB, 6*reporttest.GiB
		}, "The GPU is full: live tensors hold 60.0 GiB of 79.6 GiB."},
		"gone, and there was room": {func(s *ledger.Snapshot, o *report.OOM) {
			s.GPUs[0].Used, o.Usage, o.API, o.Size = 4*reporttest.GiB, o.Usage[1:], "cudaMalloc", 6*reporttest.GiB
		}, "13.3 GiB should have been free: a limit of the process (PyTorch's memory fraction, MPS), or memory that was given back since."},
		"host": {func(s *ledger.Snapshot, o *report.OOM) { o.Kind, o.API = ledger.Pinned, "cudaHostAlloc" },
			"The driver could not pin 2.00 GiB more on the host: neither GPU memory nor PyTorch's cache is involved."},
		"no driver": {func(s *ledger.Snapshot, o *report.OOM) { s.GPUs, o.GPUs, o.Usage, o.API = nil, nil, nil, "cudaMalloc" },
			"It is unknown how full the GPU was: NVML gave no reading of it."},
		"not traced": {func(s *ledger.Snapshot, o *report.OOM) { o.PID, o.API = 1, "cudaMalloc" },
			"It is unknown how full the GPU was: NVML gave no reading of it."},
		"unknown size": {func(s *ledger.Snapshot, o *report.OOM) { o.Size, o.API = ledger.UnknownSize, "cudaMalloc" },
			"The GPU is full: this process holds 62.4 GiB of 79.6 GiB."},
		"totals that make no sense": {func(s *ledger.Snapshot, o *report.OOM) { o.Allocated, o.Size = math.MaxUint64, 4*reporttest.GiB },
			"The GPU is full: live tensors hold 16.0 EiB of 79.6 GiB."},
	} {
		t.Run(name, func(t *testing.T) {
			s := reporttest.OOMSnapshot()
			o := oomOf(s)
			c.change(s, &o)
			o.GPUs = s.GPUs
			if got := newOOMCase(s, &o).why(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			oomPage(t, s, o, report.Options{}, Screen{})
		})
	}
}

func TestOOMPageSaysHowOldItsFiguresAre(t *testing.T) {
	for want, change := range map[string]func(*report.OOM){
		"\nNVML was read 100ms after the error.\n":                                            func(*report.OOM) {},
		"\nNVML was read 100ms after the error, when the process had left the GPU: what it\n": func(o *report.OOM) { o.Usage = o.Usage[1:] },
		"\nNVML gave no reading after the error: these are its last figures, and only of\n":   func(o *report.OOM) { o.Read, o.Usage, o.GPUs = 0, nil, nil },
		"\nNo figures of the GPU: NVML gave no reading of it, or the GPU is unknown\n":        func(o *report.OOM) { o.PID = 1 },
	} {
		s := reporttest.OOMSnapshot()
		o := oomOf(s)
		change(&o)
		if text := oomPage(t, s, o, report.Options{}, Screen{}); !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

// TestOOMPageSaysHowOldItsHoldersAre: the process gave up its memory before it could be read again.
func TestOOMPageSaysHowOldItsHoldersAre(t *testing.T) {
	s := reporttest.OOMSnapshot()
	o := oomOf(s)
	s.Walks = reporttest.NamedWalks("model.weight", "main()", "list")
	want := "At the error, the process's memory could not be read: this is of"
	for age, old := range map[uint64]bool{0: false, 42 * reporttest.Second: true} {
		s.Walks[1].Time = o.Time - age
		text := oomPage(t, s, o, report.Options{}, Screen{Width: 120})
		if strings.Contains(text, want+" 42s before.") != old || strings.Contains(text, want) != old {
			t.Errorf("%d s before: %s", age/reporttest.Second, text)
		}
	}
}

func TestOOMPageSaysWhyNobodyIsNamed(t *testing.T) {
	s := reporttest.OOMSnapshot()
	o := oomOf(s)
	process := slices.IndexFunc(s.Processes, func(p ledger.Process) bool { return p.PID == o.PID })
	s.Walks = []ledger.Walked{{Process: process, Time: o.Time, Failure: ledger.WalkUnended}}
	want := "\nWho keeps it is unknown: its memory was not read in time.\n"
	if text := oomPage(t, s, o, report.Options{}, Screen{}); !strings.Contains(text, want) {
		t.Errorf("want %q in\n%s", want, text)
	}
}

func TestOOMOnTheOnlyGPUOfAProcessIsOnThatOne(t *testing.T) {
	s := reporttest.OOMSnapshot()
	s.Processes[0].Devices = []string{reporttest.OtherGPU, reporttest.OOMGPU}
	o := oomOf(s)
	o.API, o.Comm, o.Device = "cudaMalloc", "", ledger.UnknownDevice
	if text := oomPage(t, s, o, report.Options{}, Screen{}); !strings.HasPrefix(text, "python3 [4242] ran out of memory on cuda:1 ") || !strings.Contains(text, "\nGPU 3: ") {
		t.Error(text)
	}
	s.Processes[0].Devices = nil
	if text := oomPage(t, s, o, report.Options{}, Screen{}); !strings.HasPrefix(text, "python3 [4242] ran out of memory on a GPU ") || !strings.Contains(text, "\nGPU 3: ") {
		t.Error(text)
	}
	s.Balances = s.Balances[1:] // the process is too young, or all of its memory is
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Kind == ledger.Async {
			x.Device = ledger.UnknownDevice
		}
	}
	if text := oomPage(t, s, o, report.Options{}, Screen{}); !strings.Contains(text, "\nGPU 3: ") || !strings.Contains(text, "async memory of unknown device") {
		t.Error(text)
	}
	s.Balances = append(s.Balances, ledger.Balance{Process: 0, UUID: reporttest.OtherGPU})
	if text := oomPage(t, s, o, report.Options{}, Screen{}); strings.Contains(text, "\nGPU 3: ") {
		t.Errorf("one of two GPUs was taken:\n%s", text)
	}
}

func TestOOMOfHostMemoryShowsWhatIsPinned(t *testing.T) {
	s := reporttest.OOMSnapshot()
	o := oomOf(s)
	o.Kind, o.API = ledger.Pinned, "cudaHostAlloc"
	o.Allocated, o.Reserved = 0, 0
	text := oomPage(t, s, o, report.Options{}, Screen{})
	if !strings.Contains(text, "Largest sites of pinned host memory, 200ms after the error") || !strings.Contains(text, "1.  4.00 GiB ") || strings.Contains(text, "GPU 3") || strings.Contains(text, "2.  ") {
		t.Error(text)
	}
}

func TestOOMListsAreCut(t *testing.T) {
	s := reporttest.OOMSnapshot()
	o := oomOf(s)
	for i := range uint32(30) {
		o.Usage = append(o.Usage, ledger.Usage{PID: 1000 + i, UUID: reporttest.OOMGPU, Bytes: reporttest.MiB})
	}
	text := oomPage(t, s, o, report.Options{Top: 3}, Screen{})
	for _, want := range []string{"\npid [1000] ", "\n29 more processes ", "29.0 MiB\n", "\n3.  ", "\n    7 more sites with "} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\n4.  ") || strings.Contains(text, "[1001]") {
		t.Errorf("more than three of a list in\n%s", text)
	}
}

func TestRecentGrowthIsThatOfMinutes(t *testing.T) {
	s := &ledger.Snapshot{Begin: 5, End: 5 + 3200*reporttest.Second, Processes: []ledger.Process{{}}}
	v := &oomCase{s: s}
	grown := reporttest.Flat(reporttest.GiB)
	grown[len(grown)-1] = 2 * reporttest.GiB
	for _, c := range []struct {
		session uint64
		history []uint64
		want    string
	}{
		{3200 * reporttest.Second, grown, "+1.00 GiB in the last 5m00s"},
		{32000 * reporttest.Second, grown, "+1.00 GiB in the last 16m40s (+61.4 MiB/min)"},
		{32 * reporttest.Second, grown, "+1.00 GiB in the last 16s"},
		{3200 * reporttest.Second, reporttest.Ramp(reporttest.GiB), "+96.0 MiB in the last 5m00s (+19.2 MiB/min)"},
		{3200 * reporttest.Second, reporttest.Flat(reporttest.GiB), "steady"},
		{3200 * reporttest.Second, nil, ""},
		{31, reporttest.Flat(reporttest.GiB), ""},
		{reporttest.Second, grown, ""},
	} {
		s.End = s.Begin + c.session
		if got := v.recentText(0, c.history); got != c.want {
			t.Errorf("%s: got %q, want %q", fmt.Sprint(time.Duration(c.session)), got, c.want)
		}
	}
}

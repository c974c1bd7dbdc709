// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	oomGPU   = "GPU-1a2b3c4d-0000-0000-0000-000000000000"
	otherGPU = "GPU-5e6f7a8b-0000-0000-0000-000000000000"
	gib      = uint64(1) << 30
)

// ramp is a history that grows to last within the second half.
func ramp(last uint64) []uint64 {
	list := make([]uint64, ledger.HistoryLen)
	for i := range list {
		list[i] = last / 2
		if half := len(list) / 2; i >= half {
			list[i] += last / 2 * uint64(i-half+1) / uint64(half)
		}
	}
	return list
}

func flat(value uint64) []uint64 {
	list := make([]uint64, ledger.HistoryLen)
	for i := range list {
		list[i] = value
	}
	return list
}

// oomSnapshot: a training of 62 GiB whose cache is in pieces, a traced server on the same
// GPU, one on another GPU, and one that ended long ago.
func oomSnapshot() *ledger.Snapshot {
	begin := 1000 * second
	site := func(process int, kind ledger.Kind, stack uint64, bytes, objects uint64, history []uint64) ledger.Site {
		return ledger.Site{Process: process, Kind: kind, Stack: stack, API: "cudaMalloc", LiveBytes: bytes, LiveObjects: objects,
			AllocBytes: bytes, AllocObjects: objects, Oldest: begin + second, History: history}
	}
	segment := site(0, ledger.Device, 1, 50*gib, 25, ramp(50*gib))
	segment.Segment, segment.Tensors = true, 30*gib
	cpu := site(0, ledger.Tensor, 2, 70*gib, 3, flat(70*gib))
	cpu.Device = ledger.CPUDevice
	elsewhere := site(2, ledger.Device, 2, 60*gib, 3, flat(60*gib))
	elsewhere.Device = 1
	return &ledger.Snapshot{
		Host: "gpu-box-1", Begin: begin, End: begin + 1000*second, Wall: time.Date(2026, 11, 21, 12, 31, 36, 0, time.UTC),
		Processes: []ledger.Process{
			{PID: 4242, Comm: "python3", Begin: begin, Devices: []string{oomGPU}, Workload: ledger.Workload{Rank: "0", WorldSize: "8", Pod: "llama-0", Namespace: "ml"}},
			{PID: 5151, Comm: "infer", Begin: begin, Devices: []string{oomGPU}},
			{PID: 6161, Comm: "infer", Begin: begin, Devices: []string{oomGPU, otherGPU}},
			{PID: 7171, Comm: "job", Begin: begin, End: begin + second, Devices: []string{oomGPU}},
		},
		Sites: []ledger.Site{
			cpu, elsewhere, segment,
			site(0, ledger.Tensor, 1, 25*gib, 4000, ramp(25*gib)),
			site(3, ledger.Device, 2, 20*gib, 3, flat(20*gib)),
			site(1, ledger.Device, 2, 12*gib, 3, flat(12*gib)),
			site(0, ledger.Tensor, 4, 5*gib, 2, flat(5*gib)),
			site(0, ledger.Pinned, 2, 4*gib, 2, flat(4*gib)),
			site(0, ledger.Imported, 2, 3*gib, 1, flat(3*gib)),
			site(0, ledger.Async, 2, gib, 1, flat(gib)),
		},
		Tensors: []ledger.Tensors{{Process: 0, Device: 0, Allocated: 40 * gib, Reserved: 61 * gib, Peak: 45 * gib, PeakTime: begin + 900*second,
			LiveObjects: 4002, LiveBytes: 30 * gib, Sampled: 300, Older: 10 * gib, OlderCached: gib, Segments: 50 * gib, Cached: 20 * gib, LargestFree: 1900 * mib, Error: 200 * mib, Foreign: 300 * mib}},
		GPUs: []ledger.GPU{{Index: 3, UUID: oomGPU, Name: "NVIDIA H100 80GB HBM3", Total: 81559 * mib, Used: 76 * gib}},
		Balances: []ledger.Balance{
			{Process: 0, UUID: oomGPU, Usage: 63888 * mib, Baseline: 11*gib + 300*mib, Live: 51 * gib, Gap: int64(100 * mib)},
			{Process: 1, UUID: oomGPU, Device: 0, Usage: 12*gib + 500*mib, Baseline: 500 * mib, Live: 12 * gib},
			{Process: 2, UUID: otherGPU, Device: 1, Usage: 60 * gib, Live: 60 * gib},
			{Process: 3, UUID: oomGPU, Usage: 20 * gib, Live: 20 * gib},
		},
		Stats: ledger.Stats{Lost: 12},
	}
}

// oomOf is the error of the training, at the end of the snapshot.
func oomOf(s *ledger.Snapshot) OOM {
	return OOM{
		PID: 4242, Comm: "python3", Time: s.End - second/5, Stack: 1, API: "torch", Kind: ledger.Tensor, Device: 0, Size: 2 * gib, Allocated: 40 * gib, Reserved: 61 * gib,
		Read: s.End - second/10, GPUs: s.GPUs, Names: map[uint32]string{99: "jupyter"},
		Usage: []ledger.Usage{
			{PID: 4242, UUID: oomGPU, Bytes: 63888 * mib}, {PID: 5151, UUID: oomGPU, Bytes: 12*gib + 500*mib},
			{PID: 6161, UUID: otherGPU, Bytes: 60 * gib}, {PID: 99, UUID: oomGPU, Bytes: gib},
		},
	}
}

func oomPage(t *testing.T, s *ledger.Snapshot, o OOM, options Options, screen Screen) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteOOM(&b, s, testStacks(), o, options, screen); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestOOMPage(t *testing.T) {
	s := oomSnapshot()
	text := oomPage(t, s, oomOf(s), Options{}, Screen{})
	checkText(t, text, 80)
	golden(t, "oom80.txt", []byte(text))
}

func TestOOMPageFitsWhateverNamesSay(t *testing.T) {
	s := oomSnapshot()
	o := oomOf(s)
	o.Stack, o.Comm, o.API, o.Names[99] = 3, "\x1b[31mevil\n", "cuda\x1b[2JMalloc\n", "\x1b]0;x\a"
	s.Host = "host\n\x1b[31m"
	s.GPUs[0].Name, s.Processes[1].Comm, s.Sites[3].Stack = strings.Repeat("很", 60)+"\x1b", "\x1b[2J\n", 3
	for width := minWidth; width <= 120; width++ {
		for _, api := range []string{"torch", o.API} {
			o.API = api
			if checkText(t, oomPage(t, s, o, Options{}, Screen{Width: width}), width); t.Failed() {
				t.Fatalf("at width %d", width)
			}
		}
	}
}

// Each byte of the processes that are traced is held once: the sum is what NVML says.
func TestOOMHoldersAddUpToWhatTheDriverReports(t *testing.T) {
	s := oomSnapshot()
	o := oomOf(s)
	v := newOOMView(s, &o)
	var sum [2]uint64
	for _, h := range v.holders() {
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
		change func(*ledger.Snapshot, *OOM)
		want   string
	}{
		"pieces": {func(*ledger.Snapshot, *OOM) {},
			"21.0 GiB are cached, but the largest free run is 1.86 GiB in segments allocated since tracing began: fragmentation."},
		"pieces from the beginning": {func(s *ledger.Snapshot, _ *OOM) { s.Tensors[0].OlderCached = 0 },
			"21.0 GiB are cached, but the largest free run is 1.86 GiB: fragmentation."},
		"pieces that are not known": {func(s *ledger.Snapshot, _ *OOM) { s.Tensors = nil },
			"21.0 GiB are cached, but in no free run that is large enough: fragmentation."},
		"another stream": {func(s *ledger.Snapshot, _ *OOM) { s.Tensors[0].LargestFree = 3 * gib },
			"21.0 GiB are cached, with a free run of 3.00 GiB by now that the request could not take: another stream or pool has it, or it was freed since."},
		"too large": {func(_ *ledger.Snapshot, o *OOM) { o.Size = 900 * gib },
			"The request is larger than the whole GPU, which has 79.6 GiB."},
		"full of tensors": {func(_ *ledger.Snapshot, o *OOM) { o.Size, o.Allocated = 4*gib, 60*gib },
			"The GPU is full: live tensors hold 60.0 GiB of 79.6 GiB."},
		"room for less": {func(s *ledger.Snapshot, o *OOM) {
			o.Size, o.Allocated, s.GPUs[0].Used, o.Usage[0].Bytes = 8*gib, 60*gib, 74*gib, 61*gib
		}, "Only 5.65 GiB are free: live tensors hold 60.0 GiB of 79.6 GiB."},
		"full of something else": {func(_ *ledger.Snapshot, o *OOM) { o.Size, o.Allocated, o.Reserved = 5*gib, 20*gib, 23*gib },
			"The GPU is full: this process holds 62.4 GiB of 79.6 GiB, of which 20.0 GiB are live tensors and 3.00 GiB are cached."},
		"full of one caller": {func(_ *ledger.Snapshot, o *OOM) { o.API, o.Size = "cudaMalloc", 4*gib },
			"The GPU is full: this process holds 62.4 GiB of 79.6 GiB."},
		"another": {func(s *ledger.Snapshot, o *OOM) {
			o.Usage = []ledger.Usage{{PID: 4242, UUID: oomGPU, Bytes: 10 * gib}, {PID: 99, UUID: oomGPU, Bytes: 66 * gib}}
			o.Allocated, o.Reserved, o.Size = 8*gib, 9*gib, 20*gib
		}, "Another process on this GPU, jupyter [99], holds 66.0 GiB of 79.6 GiB: without it the request would fit."},
		"others": {func(s *ledger.Snapshot, o *OOM) {
			o.Usage = []ledger.Usage{{PID: 4242, UUID: oomGPU, Bytes: 10 * gib}, {PID: 99, UUID: oomGPU, Bytes: 30 * gib}, {PID: 5151, UUID: oomGPU, Bytes: 36 * gib}}
			o.Allocated, o.Reserved, o.Size = 8*gib, 9*gib, 20*gib
		}, "The 2 other processes on this GPU hold 66.0 GiB of 79.6 GiB: without them the request would fit."},
		"others, but not only they": {func(s *ledger.Snapshot, o *OOM) {
			o.Usage = []ledger.Usage{{PID: 4242, UUID: oomGPU, Bytes: 30 * gib}, {PID: 99, UUID: oomGPU, Bytes: 46 * gib}}
			o.Allocated, o.Reserved, o.Size = 8*gib, 9*gib, 60*gib
		}, "The GPU is full: this process holds 30.0 GiB of 79.6 GiB, the others hold 46.0 GiB."},
		"unnamed": {func(s *ledger.Snapshot, o *OOM) {
			o.Usage = []ledger.Usage{{PID: 4242, UUID: oomGPU, Bytes: 10 * gib}}
			o.API = "cuMemAlloc_v2"
			o.Size = 4 * gib
		}, "The GPU is full: 76.0 GiB of 79.6 GiB are used, most of it by processes that NVML does not name."},
		"a limit": {func(s *ledger.Snapshot, o *OOM) {
			s.GPUs[0].Used, o.API = 30*gib, "cudaMalloc"
		}, "49.6 GiB are free now: memory was given back since the error, or a limit of the process is below the GPU's (PyTorch's memory fraction, MPS)."},
		"gone before NVML was read": {func(s *ledger.Snapshot, o *OOM) {
			s.GPUs[0].Used, o.Usage, o.Allocated, o.Size = 14*gib, o.Usage[1:], 60*gib, 6*gib
		}, "The GPU is full: live tensors hold 60.0 GiB of 79.6 GiB."},
		"gone, and there was room": {func(s *ledger.Snapshot, o *OOM) {
			s.GPUs[0].Used, o.Usage, o.API, o.Size = 4*gib, o.Usage[1:], "cudaMalloc", 6*gib
		}, "13.3 GiB should have been free: a limit of the process (PyTorch's memory fraction, MPS), or memory that was given back since."},
		"host": {func(s *ledger.Snapshot, o *OOM) { o.Kind, o.API = ledger.Pinned, "cudaHostAlloc" },
			"The driver could not pin 2.00 GiB more on the host: neither GPU memory nor PyTorch's cache has to do with it."},
		"no driver": {func(s *ledger.Snapshot, o *OOM) { s.GPUs, o.GPUs, o.Usage, o.API = nil, nil, nil, "cudaMalloc" },
			"Nothing tells how full the GPU was: NVML gave no reading of it."},
		"not traced": {func(s *ledger.Snapshot, o *OOM) { o.PID, o.API = 1, "cudaMalloc" },
			"Nothing tells how full the GPU was: NVML gave no reading of it."},
		"unknown size": {func(s *ledger.Snapshot, o *OOM) { o.Size, o.API = ledger.UnknownSize, "cudaMalloc" },
			"The GPU is full: this process holds 62.4 GiB of 79.6 GiB."},
		"totals that make no sense": {func(s *ledger.Snapshot, o *OOM) { o.Allocated, o.Size = math.MaxUint64, 4*gib },
			"The GPU is full: live tensors hold 16.0 EiB of 79.6 GiB."},
	} {
		t.Run(name, func(t *testing.T) {
			s := oomSnapshot()
			o := oomOf(s)
			c.change(s, &o)
			o.GPUs = s.GPUs
			if got := newOOMView(s, &o).why(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			oomPage(t, s, o, Options{}, Screen{})
		})
	}
}

func TestOOMPageSaysHowOldItsFiguresAre(t *testing.T) {
	for want, change := range map[string]func(*OOM){
		"\nNVML was read 100ms after the error.\n":                                             func(*OOM) {},
		"\nNVML was read 100ms after the error, when the process had left the GPU: what it\n":  func(o *OOM) { o.Usage = o.Usage[1:] },
		"\nNVML gave no reading after the error: these are its last figures, and only of\n":    func(o *OOM) { o.Read, o.Usage, o.GPUs = 0, nil, nil },
		"\nNo figures of the GPU: NVML gave no reading of it, or nothing tells which one it\n": func(o *OOM) { o.PID = 1 },
	} {
		s := oomSnapshot()
		o := oomOf(s)
		change(&o)
		if text := oomPage(t, s, o, Options{}, Screen{}); !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

func TestOOMOnTheOnlyGPUOfAProcessIsOnThatOne(t *testing.T) {
	s := oomSnapshot()
	s.Processes[0].Devices = []string{otherGPU, oomGPU}
	o := oomOf(s)
	o.API, o.Comm, o.Device = "cudaMalloc", "", ledger.UnknownDevice
	if text := oomPage(t, s, o, Options{}, Screen{}); !strings.HasPrefix(text, "python3 [4242] ran out of memory on cuda:1 ") || !strings.Contains(text, "\nGPU 3: ") {
		t.Error(text)
	}
	s.Processes[0].Devices = nil
	if text := oomPage(t, s, o, Options{}, Screen{}); !strings.HasPrefix(text, "python3 [4242] ran out of memory on a GPU ") || !strings.Contains(text, "\nGPU 3: ") {
		t.Error(text)
	}
	s.Balances = s.Balances[1:] // the process is too young, or all of its memory is
	for i := range s.Sites {
		if x := &s.Sites[i]; x.Kind == ledger.Async {
			x.Device = ledger.UnknownDevice
		}
	}
	if text := oomPage(t, s, o, Options{}, Screen{}); !strings.Contains(text, "\nGPU 3: ") || !strings.Contains(text, "async memory of unknown device") {
		t.Error(text)
	}
	s.Balances = append(s.Balances, ledger.Balance{Process: 0, UUID: otherGPU})
	if text := oomPage(t, s, o, Options{}, Screen{}); strings.Contains(text, "\nGPU 3: ") {
		t.Errorf("one of two GPUs was taken:\n%s", text)
	}
}

func TestOOMOfHostMemoryShowsWhatIsPinned(t *testing.T) {
	s := oomSnapshot()
	o := oomOf(s)
	o.Kind, o.API = ledger.Pinned, "cudaHostAlloc"
	o.Allocated, o.Reserved = 0, 0
	text := oomPage(t, s, o, Options{}, Screen{})
	if !strings.Contains(text, "Largest holders of pinned host memory, 200ms after the error") || !strings.Contains(text, "1.  4.00 GiB ") || strings.Contains(text, "GPU 3") || strings.Contains(text, "2.  ") {
		t.Error(text)
	}
}

func TestOOMListsAreCut(t *testing.T) {
	s := oomSnapshot()
	o := oomOf(s)
	for i := range uint32(30) {
		o.Usage = append(o.Usage, ledger.Usage{PID: 1000 + i, UUID: oomGPU, Bytes: mib})
	}
	text := oomPage(t, s, o, Options{Top: 3}, Screen{})
	for _, want := range []string{"\npid [1000] ", "\n29 more processes ", "29.0 MiB\n", "\n3.  ", "\n    7 more holders with "} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\n4.  ") || strings.Contains(text, "[1001]") {
		t.Errorf("more than three of a list in\n%s", text)
	}
}

func TestRecentGrowthIsThatOfMinutes(t *testing.T) {
	s := &ledger.Snapshot{Begin: 5, End: 5 + 3200*second}
	v := &oomView{s: s}
	grown := flat(gib)
	grown[len(grown)-1] = 2 * gib
	for _, c := range []struct {
		session uint64
		history []uint64
		want    string
	}{
		{3200 * second, grown, "+1.00 GiB in the last 5m00s (+205 MiB/min)"},
		{32000 * second, grown, "+1.00 GiB in the last 16m40s (+61.4 MiB/min)"},
		{32 * second, grown, "+1.00 GiB in the last 16s (+3.75 GiB/min)"},
		{3200 * second, ramp(gib), "+96.0 MiB in the last 5m00s (+19.2 MiB/min)"},
		{3200 * second, flat(gib), "steady"},
		{3200 * second, nil, ""},
		{31, flat(gib), ""},
		{second, grown, ""},
	} {
		s.End = s.Begin + c.session
		if got := v.recentText(c.history); got != c.want {
			t.Errorf("%s: got %q, want %q", fmt.Sprint(time.Duration(c.session)), got, c.want)
		}
	}
}

func TestOOMText(t *testing.T) {
	for want, o := range map[string]OOM{
		"ran out of memory on cuda:1 (wanted 2.00 GiB)":               {Device: 1, Size: 2 * gib},
		"ran out of memory on a GPU (wanted an unknown size)":         {Device: ledger.UnknownDevice, Size: ledger.UnknownSize},
		"ran out of host memory that can be pinned (wanted 2.00 GiB)": {Kind: ledger.Pinned, Size: 2 * gib},
	} {
		if got := o.Text(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestTorchInText(t *testing.T) {
	s, st := torchSnapshot(), torchStacks()
	for width := minWidth; width <= 120; width++ {
		var b bytes.Buffer
		if err := errors.Join(
			WriteSummary(&b, s, st, Options{}, Screen{Width: width}),
			WriteLeaks(&b, s, st, Options{Top: 3}, Screen{Width: width}),
		); err != nil {
			t.Fatal(err)
		}
		if checkText(t, b.String(), width); t.Failed() {
			t.Fatalf("at width %d", width)
		}
		if width == 80 {
			golden(t, "torch80.txt", b.Bytes())
		}
	}
}

func TestTorchInJSON(t *testing.T) {
	r := newLeaksReport(torchSnapshot(), torchStacks(), Options{Top: 1})
	for i := range r.Sites {
		r.Sites[i].Stack = nil // for brevity
	}
	r.Cache[0].Stack = nil
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "torch.json", append(text, '\n'))
}

// sums of inuse_space by process, GPU and plane, and of host_space by plane.
func profileSums(t *testing.T, s *ledger.Snapshot) (gpu map[string]int64, host map[string]int64) {
	t.Helper()
	gpu, host = map[string]int64{}, map[string]int64{}
	for _, x := range parsed(t, s, torchStacks()).Sample {
		plane, pid := x.Label["plane"][0], x.NumLabel["pid"][0]
		if x.Value[3] != 0 {
			where := fmt.Sprint(pid, " ", x.Label["device"][0], " ", x.Label["gpu_uuid"][0])
			gpu[where] += x.Value[3]
			gpu[where+" "+plane] += x.Value[3]
		}
		if x.Value[5] != 0 {
			host[fmt.Sprint(pid, " ", x.Label["device"][0], " ", plane)] += x.Value[5]
		}
	}
	return gpu, host
}

func TestProfileAddsUpToWhatNVMLReports(t *testing.T) {
	const gib = 1024 * mib
	s := torchSnapshot()
	got, host := profileSums(t, s)
	for _, b := range s.Balances {
		where := fmt.Sprintf("%d cuda:%d %s", s.Processes[b.Process].PID, b.Device, b.UUID)
		if got[where] != int64(b.Usage) {
			t.Errorf("%s: %d bytes, NVML has %d", where, got[where], b.Usage)
		}
	}
	at := "4242 cuda:0 " + s.Balances[0].UUID
	for plane, want := range map[string]uint64{"tensor": 12 * gib, "cache": 1*gib + 300*mib, "driver": 192 * mib, "before": 23*gib + 276*mib + 310*mib} {
		if got[at+" "+plane] != int64(want) {
			t.Errorf("plane %s has %d bytes, want %d", plane, got[at+" "+plane], want)
		}
	}
	if got[at+" unexplained"] >= 0 {
		t.Errorf("%d bytes are unexplained, want less than none", got[at+" unexplained"])
	}
	if len(host) != 2 || host["4242 host host"] != int64(640*mib) || host["4242 cpu tensor"] != int64(200*mib) {
		t.Errorf("the host has %v", host)
	}
}

// Planes of the JSON report are those of the profile.
func TestPlanesAgree(t *testing.T) {
	s := torchSnapshot()
	gpu, host := profileSums(t, s)
	want := map[string]PlaneReport{}
	for _, sums := range []map[string]int64{gpu, host} {
		for where, n := range sums {
			words := strings.Fields(where)
			plane := words[len(words)-1]
			x := want[plane]
			switch {
			case strings.HasPrefix(plane, "GPU-"):
				continue
			case len(words) == 3:
				x.HostBytes += n
			default:
				x.Bytes += n
			}
			want[plane] = x
		}
	}
	for _, x := range newLeaksReport(s, torchStacks(), Options{}).Planes {
		if w := want[x.Plane]; w.Bytes != x.Bytes || w.HostBytes != x.HostBytes {
			t.Errorf("plane %s has %d and %d bytes, the profile %d and %d", x.Plane, x.Bytes, x.HostBytes, w.Bytes, w.HostBytes)
		}
	}
}

func TestSamplesOfPlanes(t *testing.T) {
	s := torchSnapshot()
	stacks := map[string][]string{}
	for _, x := range parsed(t, s, torchStacks()).Sample {
		leaf := x.Location[0]
		name := leaf.Line[0].Function.Name
		stacks[name] = append(stacks[name], fmt.Sprint(len(x.Location) > 1))
		if !strings.HasPrefix(name, "[") {
			continue
		}
		if leaf.Mapping != nil || leaf.Address != 0 {
			t.Errorf("%s lies in %v at %#x", name, leaf.Mapping, leaf.Address)
		}
		if x.Value[1] != 0 || x.Label["comm"][0] == "" || x.Label["gpu_uuid"][0] == "" || !strings.HasPrefix(x.Label["device"][0], "cuda:") {
			t.Errorf("%s: values %v, labels %v", name, x.Value, x.Label)
		}
		if name == markCache && x.Label["api"][0] != "cudaMalloc" {
			t.Errorf("%s: labels %v", name, x.Label)
		}
	}
	for name, want := range map[string]string{
		markCache:       "[true true true]", // a leaf on the segment's stack
		markOlder:       "[false]",
		markOlderCached: "[false]",
		markForeign:     "[false false false]",
		markUnexplained: "[false false]",
		markNoSample:    "[false]",
	} {
		if got := fmt.Sprint(stacks[name]); got != want {
			t.Errorf("%s: stacks %s, want %s", name, got, want)
		}
	}
}

func TestWithoutNVMLNothingIsSaidOfWhatWasBefore(t *testing.T) {
	s := torchSnapshot()
	s.Balances = nil
	for _, x := range parsed(t, s, torchStacks()).Sample {
		if plane := x.Label["plane"][0]; plane == PlaneBefore || plane == PlaneUnexplained {
			t.Errorf("a sample %v of plane %s", x.Value, plane)
		}
	}
}

func TestTheCacheIsNoLeak(t *testing.T) {
	const gib = 1024 * mib
	s := torchSnapshot()
	list := Leaks(s, Options{})
	if len(list) != len(s.Sites)-3 || slices.ContainsFunc(list, func(x ledger.Site) bool { return x.Segment }) {
		t.Errorf("%d sites, want %d and no segments", len(list), len(s.Sites)-3)
	}
	if x := list[0]; x.Kind != ledger.Tensor || x.Growth == 0 {
		t.Errorf("the first site is %+v, want the tensors that grow", x)
	}
	r := newLeaksReport(s, torchStacks(), Options{})
	if want := (9300+900+2048+192+640+200+4096+2048)*mib + 0; r.LiveBytes != want || r.CacheBytes != 3*gib+300*mib {
		t.Errorf("%d bytes live and %d cached, want %d and %d", r.LiveBytes, r.CacheBytes, want, 3*gib+300*mib)
	}

	s.Sites = slices.DeleteFunc(s.Sites, func(x ledger.Site) bool { return !x.Segment })
	for i := range s.Sites {
		s.Sites[i].Tensors = 0 // nothing but a warm cache
	}
	var b bytes.Buffer
	if err := WriteLeaks(&b, s, torchStacks(), Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"No live GPU memory ²\nnot counted, as PyTorch keeps it for later tensors: 19.0 GiB of cache\n", "PyTorch cache, under what made it grow: 19.0 GiB, kept for later tensors\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestSegmentsAreShownWholeWhereNothingReportsTensors(t *testing.T) {
	const gib = 1024 * mib
	s := torchSnapshot()
	s.Tensors = nil
	list := Leaks(s, Options{})
	if x := list[0]; !x.Segment || x.LiveBytes != 12*gib {
		t.Errorf("the first site is %+v, want the largest segments", x)
	}
	for _, c := range []struct {
		name  string
		stack uint64
		kind  ledger.Kind
		seg   bool
		want  string
	}{
		{"cudaMallocAsync", 9, ledger.Async, false, "PyTorch's backend cudaMallocAsync reports none"},
		{"a pluggable allocator", 10, ledger.Device, false, "its pluggable allocator reports none"},
		{"by stack alone", 4, ledger.Device, false, "none were reported, or they were not traced"},
		{"by address alone", 6, ledger.Device, true, "none were reported, or they were not traced"},
		{"no PyTorch", 6, ledger.VMM, false, ""},
		{"pinned memory is no segment", 9, ledger.Pinned, false, ""},
	} {
		s.Sites = []ledger.Site{{Process: 2, Stack: c.stack, Kind: c.kind, Segment: c.seg, LiveObjects: 1, LiveBytes: 1}}
		if got := segmentsOnly(s, torchStacks(), 2); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	s = torchSnapshot()
	var b bytes.Buffer
	if err := WriteSummary(&b, s, torchStacks(), Options{}, Screen{}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(b.String(), "segments only"); got != 1 || !strings.Contains(b.String(), "\nserve [5000]: segments only, no tensors: PyTorch's backend") {
		t.Errorf("segments only is said %d times in\n%s", got, b.String())
	}
}

func TestSitesThatAddUpLeaveNoRest(t *testing.T) {
	s := torchSnapshot()
	list := rests(s, nil)
	if len(list) != 5 { // all of it, with no sites
		t.Errorf("rests %+v, want tensors and cache of two GPUs and the tensors of the host", list)
	}
	s.Tensors[0].LiveBytes = (9300 + 2048 + 900) * mib
	for _, h := range Holdings(s) {
		if h.Mark == markNoSample {
			t.Errorf("a rest of %d bytes", h.Live)
		}
	}
}

func TestTorchSaysHowMuchRoomThereIs(t *testing.T) {
	got := strings.Join(torchTexts(torchSnapshot()), "\n")
	for _, want := range []string{
		"python3 [4242] on cuda:0: at most 33.0 GiB of tensors (after 1m10s); a request of 1.20 GiB finds room without growing; 3.27 GiB of the cache are older than tracing, and may have room for a larger one",
		"python3 [4242] on cpu: at most 210 MiB of tensors (after 1m20s)\n",
	} {
		if !strings.Contains(got+"\n", want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestSamplingIsSaid(t *testing.T) {
	s := torchSnapshot()
	const want = "tensor sites are estimated from 1,020 of 5,132 live tensors, one in 1.00 MiB, and up to 8 times fewer where more than 4,000 stacks a second were needed (standard error of the largest: 96.0 MiB); their sum is exact"
	if got := sampleText(s); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if comments := strings.Join(parsed(t, s, torchStacks()).Comments, "\n"); !strings.Contains(comments, "doubt: "+want) {
		t.Errorf("no word on sampling in\n%s", comments)
	}
	for i := range s.Tensors {
		s.Tensors[i].Sampled = s.Tensors[i].LiveObjects
	}
	if got := sampleText(s); got != "" {
		t.Errorf("%q, want nothing where all are known", got)
	}
}

// TestPprofOfPlanes runs the commands that users run to see planes, and those that could stumble over frames
// without a mapping and negative values.
func TestPprofOfPlanes(t *testing.T) {
	pprof, write := pprofOf(t, torchStacks())
	s := torchSnapshot()
	b := write("after.pb.gz", s)
	s.Sites[1].LiveBytes -= 100 * mib
	s.Tensors[0].LiveBytes -= 100 * mib
	a := write("before.pb.gz", s)
	for _, c := range []pprofCase{
		// The total that pprof prints after "of" adds up amounts without their signs.
		{"what NVML says", []string{"-top", "-nodefraction=0", "-unit=mb", b},
			[]string{"accounting for 46838MB, 99.93% of 46870MB", "20480MB 43.70% 43.70%    20480MB 43.70%  " + markOlder, "3372MB", markCache + "\n", "1030MB", markForeign + "\n", "-16MB", markUnexplained + "\n", "c10::reportMemoryUsageToProfiler"},
			[]string{"cudaHostAlloc", "Loader.next"}},
		{"one GPU", []string{"-top", "-nodefraction=0", "-unit=mb", "-tagfocus=gpu_uuid=GPU-1a2b3c4d", b}, []string{"accounting for 37930MB"}, []string{"serve.py"}},
		{"what is unexplained", []string{"-top", "-unit=mb", "-tagfocus=plane=unexplained", b}, []string{"accounting for -16MB", markUnexplained}, nil},
		{"tensors", []string{"-top", "-unit=mb", "-nodefraction=0", "-tagfocus=plane=tensor", b}, []string{"accounting for 16384MB", "Block.forward", "AddmmBackward0"}, []string{markCache, "cudaMalloc\n", markOlder}},
		{"cache by line", []string{"-top", "-unit=mb", "-nodefraction=0", "-tagfocus=plane=cache", b}, []string{"3372MB  7.19%  7.19%     3372MB  7.19%  " + markCache, "3072MB", "Linear.forward"}, []string{"c10::report"}},
		{"the host", []string{"-top", "-sample_index=host_space", b}, []string{"840MB total", "Loader.next", "640MB"}, []string{"Block.forward", markUnexplained}},
		{"planes as roots", []string{"-top", "-nodefraction=0", "-unit=mb", "-tagroot=plane", b}, []string{"24858MB 53.04%  before", "3372MB  7.19%  cache", "-16MB 0.034%  unexplained"}, nil},
		{"growth", []string{"-top", "-unit=mb", "-diff_base", a, b}, []string{"100MB", "Block.forward", "-100MB", markUnexplained}, []string{"Adam.init_state"}},
		{"traces", []string{"-traces", b}, []string{markCache}, nil},
		{"graph", []string{"-dot", "-nodefraction=0", b}, []string{"unexplained"}, nil},
		{"source of what has none", []string{"-list=pytorch cached", b}, []string{"No source information for " + markOlderCached}, nil},
	} {
		c.run(t, pprof)
	}
}

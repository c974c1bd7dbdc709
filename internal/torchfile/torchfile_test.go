// SPDX-License-Identifier: Apache-2.0

package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/pickle"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// The files in testdata are what testdata/realtorch/snapshots.py wrote ("FILE 14 100", two GPUs),
// with other folders in the names of sources.
func TestReportsOfSnapshotsOfPyTorch(t *testing.T) {
	for _, name := range []string{"segments", "expandable"} {
		t.Run(name, func(t *testing.T) {
			r, err := Open(filepath.Join("testdata", name+".pickle"), false)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s, line, _, err := replay.Timeline(r, replay.First(r), r.End())
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			screen := text.Screen{Width: 100}
			for _, err := range []error{
				text.WriteSummary(&b, s, r, report.Options{}, screen),
				text.WriteTree(&b, s, r, report.Options{}, screen),
				text.WriteTimeline(&b, s, line, r, report.Options{Top: 5}, screen),
				text.WriteCache(&b, s, r, report.Options{Top: 5}, screen),
			} {
				if err != nil {
					t.Fatal(err)
				}
				b.WriteString("----\n")
			}
			reporttest.Golden(t, name+".txt", b.Bytes())
		})
	}
}

type (
	object = map[string]any
	array  = []any
)

// encode pickles objects, arrays, numbers, strings and truth values.
func encode(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pickle.NewWriter(&b)
	encodeTo(w, v)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encodeTo(w *pickle.Writer, v any) {
	switch v := v.(type) {
	case object:
		w.Dict()
		for _, key := range slices.Sorted(maps.Keys(v)) {
			w.String(key)
			encodeTo(w, v[key])
		}
		w.EndDict()
	case array:
		l := w.List()
		for _, x := range v {
			l.Item()
			encodeTo(w, x)
		}
		l.End()
	case int:
		w.Uint(uint64(v))
	case string:
		w.String(v)
	case bool:
		w.Bool(v)
	}
}

const (
	mib  = 1 << 20
	base = 0x7f00_0000_0000
)

func framesNamed(names ...string) (list array) {
	for _, name := range names {
		list = append(list, object{"name": name, "filename": "/home/ada/train.py", "line": 7})
	}
	return list
}

// segmentAt is a segment of 20 MiB with blocks of so many MiB, of which the odd ones are free.
func segmentAt(address, device int, sizes ...int) object {
	var blocks array
	at := address
	for i, mibs := range sizes {
		b := object{"address": at, "size": mibs * mib, "requested_size": mibs * mib, "state": "active_allocated", "frames": framesNamed(fmt.Sprint("f", i))}
		if i%2 == 1 {
			b["state"], b["frames"] = "inactive", array(nil)
		}
		blocks, at = append(blocks, b), at+mibs*mib
	}
	return object{"device": device, "address": address, "total_size": 20 * mib, "blocks": blocks, "frames": framesNamed("grow"), "stream": 0}
}

func event(action string, at, size, us int) object {
	return object{"action": action, "addr": at, "size": size, "time_us": us, "frames": framesNamed(action), "stream": 0}
}

func read(t *testing.T, v any) (*capture.Reader, *ledger.Snapshot) {
	t.Helper()
	file := encode(t, v)
	p, err := parse(bytes.NewReader(file), int64(len(file)), false)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.capture(time.Unix(1_800_000_000, 0), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	s, err := r.Snapshot(r.End())
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

// lines returns what is live, by plane and leaf.
func lines(r *capture.Reader, s *ledger.Snapshot) string {
	var list []string
	for i := range s.Sites {
		if x := &s.Sites[i]; x.LiveBytes > 0 {
			var names []string
			for _, f := range r.Stack(x.Stack) {
				names = append(names, f.Function)
			}
			kind := "tensor"
			if x.Segment {
				kind = "segment"
			}
			list = append(list, fmt.Sprintf("%s cuda:%d %d %s", kind, x.Device, x.LiveBytes/mib, strings.Join(names, "<")))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

const call = "cudaMalloc<c10::cuda::CUDACachingAllocator"

func TestWhatASnapshotHas(t *testing.T) {
	const us = 1_700_000_000_000_000
	older := segmentAt(base, 0, 4, 16)
	for _, b := range older["blocks"].(array) {
		delete(b.(object), "address")
		b.(object)["history"] = array{object{"addr": base, "frames": b.(object)["frames"]}}
		delete(b.(object), "frames")
	}
	mapped := segmentAt(base+20*mib, 0, 20)
	mapped["is_expandable"] = true
	for _, c := range []struct {
		name    string
		file    any
		want    string
		warning string
		end     time.Time // zero: the file's
	}{
		{"the state alone", object{"segments": array{segmentAt(base, 0, 4, 8, 8), segmentAt(base+64*mib, 2, 20)}, "device_traces": array{}}, `
segment cuda:0 20 ` + call + `<grow
segment cuda:2 20 ` + call + `<grow
tensor cuda:0 4 f0
tensor cuda:0 8 f2
tensor cuda:2 20 f0`, "", time.Time{}},

		{"no process and no PyTorch tensor", object{"segments": array{}}, ``, "", time.Time{}},

		{"a list of segments, blocks without addresses, frames in a history", array{older}, `
segment cuda:0 20 ` + call + `<grow
tensor cuda:0 4 f0`, "", time.Time{}},

		{"a trace without times", object{"segments": array{segmentAt(base, 0, 4)}, "device_traces": array{array{object{"action": "alloc", "addr": base, "size": 4 * mib}}}}, `
segment cuda:0 20 ` + call + `<grow
tensor cuda:0 4 f0`, "the traces have no times", time.Time{}},

		{"a trace that begins with frees of what is older", object{"segments": array{segmentAt(base, 0, 4)}, "device_traces": array{array{
			event("free_requested", base+8*mib, 5, us+1_000_000), event("free_completed", base+8*mib, 5, us+1_000_000),
			event("segment_free", base+64*mib, 2*mib, us+2_000_000), event("free_requested", base, 4*mib-3, us+3_000_000), event("alloc", base, 4*mib-100, us+4_000_000),
			event("snapshot", 0, 0, us+5_000_000),
		}}}, `
segment cuda:0 20 ` + call + `<grow
tensor cuda:0 4 alloc`, "requested size rounded up", time.Unix(1_700_000_004, 0)},

		{"a trace that does not lead to the state", object{"segments": array{segmentAt(base, 0, 4)}, "device_traces": array{array{event("free_requested", base, 4*mib, us)}}}, `
segment cuda:0 20 ` + call + `<grow
tensor cuda:0 4 f0`, "the traces do not lead to the state", time.Unix(1_700_000_000, 0)},

		{"a mapping, part of which is unmapped", object{"segments": array{mapped}, "device_traces": array{array{
			event("segment_map", base, 40*mib, us), event("alloc", base+20*mib, 20*mib, us), event("segment_unmap", base, 20*mib, us+1000),
		}}}, `
segment cuda:0 20 cuMemCreate<c10::cuda::CUDACachingAllocator<segment_map
tensor cuda:0 20 alloc`, "", time.Unix(1_700_000_000, 1_000_000)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, s := read(t, c.file)
			if got := lines(r, s); got != strings.TrimSpace(c.want) {
				t.Errorf("live\n%s\nwant%s", got, c.want)
			}
			if all := strings.Join(s.Warnings, "\n"); !strings.Contains(all, c.warning) || c.warning == "" && strings.Contains(all, "the traces") {
				t.Errorf("warnings\n%s\nwant %q", all, c.warning)
			}
			if want := c.end; s.Wall.Sub(want).Abs() > time.Microsecond && !want.IsZero() {
				t.Errorf("ends at %v, want %v", s.Wall, want)
			}
			if s.Stats.UnmatchedFrees+s.Stats.Reused != 0 {
				t.Errorf("stats %+v", s.Stats)
			}
		})
	}
}

func TestTheProcessOfVramprofsOwnSnapshotsIsKnown(t *testing.T) {
	_, s := read(t, object{"segments": array{segmentAt(base, 0, 4)}, "vramprof": object{"pid": 42, "comm": "train\x1b[1m", "host": "box", "trace_events_dropped": 0, "warnings": array{"in motion\n", 7}}})
	if p := s.Processes[0]; p.PID != 42 || p.Comm != "train[1m" || s.Host != "box" {
		t.Errorf("process %d %q on %q", p.PID, p.Comm, s.Host)
	}
	if all := strings.Join(s.Warnings, "\n"); !strings.Contains(all, "exported this file from a session") || !strings.Contains(all, "in motion") {
		t.Errorf("warnings\n%s", all)
	}
}

func TestFramesAreOfPythonOfPyTorchOrOfLibraries(t *testing.T) {
	frame := func(name, file string, line int) object {
		return object{"name": name, "filename": file, "line": line}
	}
	g := segmentAt(base, 0, 20)
	g["blocks"].(array)[0].(object)["frames"] = array{
		frame("torch::unwind::unwind()", "??", 0), frame("torch::CapturedTraceback::gather(bool, bool, bool)", "??", 0), frame("??", "??", 0),
		frame("at::native::empty_cuda(c10::ArrayRef<long>)", "??", 0), frame("void std::sort<long>(long)", "??", 0), frame("handle", "serve.cpp", 12),
		frame("step", "train.py", 42), frame("<module>", "train", 1), frame("weight", "", 0), frame("cuMemAlloc_v2", "", 0), frame("ncclInit", "/opt/libnccl.so.2", 0), frame("level1", "alloc_c", 0), 7,
	}
	r, s := read(t, object{"segments": array{g}})
	var got strings.Builder
	for i := range s.Sites {
		if s.Sites[i].Kind != ledger.Tensor {
			continue
		}
		for _, f := range r.Stack(s.Sites[i].Stack) {
			library := ""
			if f.Mapping != nil {
				library = f.Mapping.Path
			}
			fmt.Fprintf(&got, "%s|%s:%d|%s|%v %v\n", f.Function, f.File, f.Line, library, f.Python, f.Mark)
		}
	}
	want := `at::native::empty_cuda(c10::ArrayRef<long>)|:0|libtorch.so|false false
void std::sort<long>(long)|:0|libtorch.so|false false
handle|serve.cpp:12||false false
step|train.py:42||true false
<module>|train:1||true false
weight|:0||false true
cuMemAlloc_v2|:0||false false
ncclInit|:0|/opt/libnccl.so.2|false false
level1|:0|alloc_c|false false
`
	if got.String() != want {
		t.Errorf("frames\n%swant\n%s", got.String(), want)
	}
}

func TestForgedSnapshotsAreBounded(t *testing.T) {
	within := object{"device": 0, "address": base, "total_size": 20 * mib, "blocks": array{
		object{"address": base - mib, "size": 2 * mib, "state": "active_allocated"}, object{"address": base, "size": 21 * mib, "state": "active_allocated"},
		object{"address": base, "size": 0}, object{"size": "x"}, "x", object{"address": base + 19*mib, "size": mib, "state": "active_allocated"},
	}}
	r, s := read(t, object{"segments": array{
		within, segmentAt(base+10*mib, 0, 2), object{"device": 1 << 40, "address": base, "total_size": mib}, object{"device": 0, "address": 1 << 62, "total_size": 1 << 62}, array{}, "x",
	}, "device_traces": array{"x", array{"y", object{"action": "alloc"}, object{"action": "oom", "time_us": 5, "size": 1 << 62}}}})
	if !strings.Contains(strings.Join(s.Warnings, "\n"), "are malformed and left out") {
		t.Errorf("warnings %q, live\n%s", s.Warnings, lines(r, s))
	}
	for name, c := range map[string]struct {
		file string
		want error
	}{
		"another pickle":     {string(encode(t, object{"state_dict": array{1}})), errNoSnapshot},
		"a number":           {string(encode(t, 7)), errNoSnapshot},
		"segments of others": {string(encode(t, object{"segments": array{1, 2}})), errNoSnapshot},
		"a block a million times": {
			"\x80\x04}(\x8c\x08segments](}(\x8c\x06deviceK\x00\x8c\x07addressJ\x00\x00\x00\x10\x8c\x0atotal_sizeJ\x00\x00\x00\x10\x8c\x06blocks](}\x94" + strings.Repeat("h\x00", maxItems+1) + "eueu.",
			errTooLarge,
		},
	} {
		if p, err := parse(strings.NewReader(c.file), int64(len(c.file)), false); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, p, err, c.want)
		}
	}
	file := filepath.Join(t.TempDir(), "class.pickle")
	if err := os.WriteFile(file, []byte("\x80\x04cos\nsystem\n."), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, false); err == nil || !strings.Contains(err.Error(), "of a class or function, which are not read") {
		t.Errorf("a class: %v", err)
	}
}

func FuzzSnapshot(f *testing.F) {
	for _, name := range []string{"segments", "expandable"} {
		b, err := os.ReadFile(filepath.Join("testdata", name+".pickle"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(encode(f, object{"segments": array{segmentAt(base, 0, 4)}, "device_traces": array{array{
		event("segment_map", base, 40*mib, 5), event("segment_unmap", base+mib, mib, 6), event("free_requested", base, 4*mib, 7), event("oom", base, 4*mib, 8),
	}}}))
	f.Fuzz(func(t *testing.T, file []byte) {
		p, err := parse(bytes.NewReader(file), int64(len(file)), false)
		if err != nil {
			return
		}
		for _, d := range p.history().Devices {
			d.Trace.Version = "2.6"
			if _, err := allocsim.Verify(d.Trace); err != nil {
				t.Log(err)
			}
		}
		r, err := p.capture(time.Unix(0, 0), false)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := r.Snapshot(r.End()); err != nil {
			t.Log(err)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/report/format"
	reportjson "github.com/vramprof/vramprof/report/json"
)

// builder writes traces; stack is the site of all blocks.
type builder struct {
	*allocsim.Builder
	stack uint32
}

func newBuilder() *builder {
	return &builder{allocsim.NewBuilder(&allocsim.Trace{Version: "2.6.0"}), 0}
}

func (b *builder) malloc(bytes uint64) uint32 {
	n := b.New(allocsim.Block{Requested: bytes, Site: b.stack})
	b.Add(allocsim.Malloc, n)
	return n
}

func (b *builder) free(blocks ...uint32) {
	for _, n := range blocks {
		b.Add(allocsim.Free, n)
	}
}

// ordered is a trace of two segments of 20 MiB of which the order of addresses decides what
// empty_cache() finds, and whether 16 MiB more fit into 36 MiB.
func ordered() *allocsim.Trace {
	b := newBuilder()
	one, _ := b.malloc(9*mib), b.malloc(11*mib)
	two, goes := b.malloc(9*mib), b.malloc(11*mib)
	b.free(one, two)
	b.malloc(9 * mib)
	b.free(goes)
	b.Add(allocsim.EmptyCache, 0)
	b.malloc(16 * mib)
	return b.Trace()
}

func TestARangeIsOverTheOrdersOfAddresses(t *testing.T) {
	out, err := Replay(ordered(), Scenario{}, 50*mib, 0)
	if err != nil {
		t.Fatal(err)
	}
	if out.Reserved != (Range{40 * mib, 56 * mib}) || out.Orders != allocsim.Orders || out.RunsIn != (Range{40 * mib, 56 * mib}) {
		t.Errorf("%+v", out)
	}
	if out.Verdict != Depends || out.Failures == 0 || out.Failures == out.Orders || out.FailedAt != 9 {
		t.Errorf("on 50 MiB: %+v", out)
	}
	for capacity, want := range map[uint64]Verdict{56 * mib: Fits, 38 * mib: OutOfMemory, 0: Unasked} {
		if out, err := Replay(ordered(), Scenario{}, capacity, 0); err != nil || out.Verdict != want {
			t.Errorf("on %d MiB: %+v, %v", capacity/mib, out.Verdict, err)
		}
	}
}

// What fit finds has the three values of whatif: in some orders of addresses the program runs out
// of memory, so it neither fits nor fails for sure.
func TestFitSaysThatItDepends(t *testing.T) {
	for capacity, want := range map[uint64]struct{ verdict, text string }{
		56 * mib: {"fits", "It fits in 56.0 MiB without a change."},
		50 * mib: {"depends", "saves 1%. Whether it fits in 50.0 MiB depends on the addresses that the driver gives: it runs out of memory in"},
		38 * mib: {"out_of_memory", "saves 1%: it does not fit."},
	} {
		r, err := Fit("run.vram", []*Job{{Trace: ordered(), Late: true}}, capacity)
		if err != nil {
			t.Fatal(err)
		}
		x := &r.Jobs[0]
		for _, steps := range []bool{false, true} {
			if steps {
				x.Steps = []reportjson.FitStep{{Name: "expandable_segments:True"}}
				want.text = map[string]string{"fits": "With it, the program fits in 56.0 MiB.", "out_of_memory": "Even with it, the program does not fit in 38.0 MiB: it runs in 0 B, and PyTorch has 38.0 MiB.",
					"depends": "With it, whether the program fits in 50.0 MiB depends on the addresses that the driver gives: it runs out of memory in"}[want.verdict]
			}
			var text strings.Builder
			if err := WriteFitText(&text, r, 1000); err != nil {
				t.Fatal(err)
			}
			if x.Verdict != want.verdict || x.Fits != (want.verdict == "fits") || !strings.Contains(text.String(), want.text) {
				t.Errorf("on %d MiB: %s, fits %v, no %q in\n%s", capacity/mib, x.Verdict, x.Fits, want.text, text.String())
			}
		}
	}
}

func TestOneOrderIsEnoughWhereNoneMatters(t *testing.T) {
	b := newBuilder()
	first := b.malloc(100 * mib)
	b.free(first)
	b.malloc(60 * mib)
	b.malloc(60 * mib)
	out, err := Replay(b.Trace(), Scenario{}, 0, 0)
	if err != nil || out.Orders != 1 || out.Reserved != (Range{160 * mib, 160 * mib}) || out.RunsIn != (Range{160 * mib, 160 * mib}) {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestTheCacheGoesBackBeforeAJobFails(t *testing.T) {
	b := newBuilder()
	for _, size := range []uint64{100, 120, 140, 160} {
		b.free(b.malloc(size * mib))
	}
	out, err := Replay(b.Trace(), Scenario{}, 0, 0)
	if err != nil || out.Reserved.High != 520*mib || out.RunsIn.High != 160*mib {
		t.Errorf("%+v, %v", out, err)
	}
}

// A process that vramprof attached to late has its cache from before: what it would have had on a
// smaller GPU is unknown.
func TestALateHistoryIsNotReplayedWithLessThanItBeganWith(t *testing.T) {
	b := newBuilder()
	b.malloc(mib)
	tr := b.Trace()
	tr.Start = []allocsim.Segment{{Size: 40 * mib, Parts: []allocsim.Part{{Size: 40 * mib}}}}
	out, err := Replay(tr, Scenario{}, 38*mib, 0)
	if err != nil || out.RunsIn.Low != 40*mib || out.Verdict != OutOfMemory {
		t.Errorf("%+v, %v", out, err)
	}
	if list, err := usual.settings(&Job{Trace: tr, Late: true}); err != nil || len(list) != 1 || list[0].Name != asItRan {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestAScenarioCanChangeTheProgram(t *testing.T) {
	b := newBuilder()
	keeps := b.malloc(100 * mib)
	b.malloc(50 * mib)
	drop := Scenario{Name: "without it", Change: func(t *allocsim.Trace) (*allocsim.Trace, error) {
		return t.Drop(func(n uint32) bool { return n == keeps }), nil
	}}
	tr := b.Trace()
	if out, err := Replay(tr, drop, 0, 0); err != nil || out.Reserved.High != 50*mib || out.Trace == tr {
		t.Errorf("%+v, %v", out, err)
	}
	drop.Change = func(*allocsim.Trace) (*allocsim.Trace, error) { return nil, errors.New("it keeps nothing") }
	if _, err := Replay(tr, drop, 0, 0); err == nil || err.Error() != "without it: it keeps nothing" {
		t.Error(err)
	}
}

func TestOtherMemoryIsThatBetweenSteadyReadings(t *testing.T) {
	var o other
	if _, known := o.most(); known {
		t.Error("known without a reading")
	}
	o.reserves(100)
	o.used(900, false) // reserved while NVML was read, perhaps after
	if most, known := o.most(); !known || most != 800 {
		t.Error(most)
	}
	o.used(400, false)
	o.used(350, false)
	o.used(2000, true)
	if most, _ := o.most(); most != 300 {
		t.Error(most)
	}
}

const said = `What if train[1m [7] on cuda:1 had run otherwise (PyTorch 2.6.0, default settings, 6 allocations)
Own settings, replayed: reserved as recorded, to the byte, after 6 operations.

                          reserves at most  runs in           on 64.0 MiB
as it ran                 40.0 to 56.0 MiB  40.0 to 56.0 MiB  depends: fails in 4 of 12 orders
expandable_segments:True  40.0 MiB          40.0 MiB          fits
max_split_size_mb:128     40.0 to 56.0 MiB  40.0 to 56.0 MiB  depends: fails in 4 of 12 orders
as it ran, tensors alone  40.0 MiB

Of 64.0 MiB, 50.0 MiB remain for PyTorch: the process had up to 14.0 MiB besides (context, other libraries).
A range is over 12 orders of addresses, which the driver decides.
Not predicted: time, and memory of other libraries.
`

const saidNarrow = `as it ran
    reserves at most 40.0 to 56.0 MiB,
    runs in 40.0 to 56.0 MiB, on
    64.0 MiB: depends: fails in 4 of 12
    orders
expandable_segments:True
    reserves at most 40.0 MiB, runs in
    40.0 MiB, on 64.0 MiB: fits
`

// No line is wider than the screen, except one word.
func checkWidth(t *testing.T, text string, columns int) {
	for _, line := range strings.Split(text, "\n") {
		if format.Width(line) > columns && len(strings.Fields(line)) > 1 {
			t.Errorf("wider than %d columns: %q", columns, line)
		}
	}
}

func TestTheTextHasWhatTheReplaysSay(t *testing.T) {
	job := &Job{Comm: "train\x1b[1m", PID: 7, Device: 1, Trace: ordered(), Other: 14 * mib, OtherKnown: true, Proof: allocsim.Proof{Reserved: 6}}
	tries := Tries{Settings: []string{"expandable_segments:True", "max_split_size_mb:128"}}
	r, err := Report("run.vram", []*Job{job}, tries.Scenarios, 64*mib)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := WriteText(&out, r, 120); err != nil {
		t.Fatal(err)
	}
	if out.String() != said {
		t.Error(out.String())
	}
	out.Reset()
	if err := WriteText(&out, r, 40); err != nil || strings.Contains(out.String(), "\x1b") || !strings.Contains(out.String(), saidNarrow) {
		t.Error(out.String(), err)
	}
	checkWidth(t, out.String(), 40)
	out.Reset()
	if err := WriteText(&out, r, 20); err != nil {
		t.Error(err)
	}
	checkWidth(t, out.String(), 20)
}

// A GPU that is smaller than the context has nothing for PyTorch, and the verdict names what is
// missing.
func TestAGPUWithoutRoomForPyTorch(t *testing.T) {
	job := &Job{Comm: "train", PID: 7, Trace: ordered(), Other: 64 * mib, OtherKnown: true, Late: true}
	r, err := Fit("run.vram", []*Job{job}, 64*mib)
	if err != nil {
		t.Fatal(err)
	}
	x := &r.Jobs[0]
	if data, err := json.Marshal(x); err != nil || !strings.Contains(string(data), `"capacity_bytes":0,`) || x.Fits {
		t.Errorf("%v: %s, want no capacity", err, data)
	}
	asked := func(*Job) ([]Scenario, []reportjson.ConditionReport, error) { return nil, nil, nil }
	if none, err := Report("run.vram", []*Job{job}, asked, 0); err != nil || none.Jobs[0].Capacity != nil {
		t.Errorf("%v: %v of capacity where no GPU was asked", err, none.Jobs[0].Capacity)
	}
	x.Steps = []reportjson.FitStep{{Name: "expandable_segments:True", RunsIn: reportjson.RangeReport{Low: 40 * mib, High: 42 * mib}, Before: reportjson.RangeReport{High: 56 * mib}}}
	for _, columns := range []int{40, 44, 80, 110, 120} {
		var out strings.Builder
		if err := WriteFitText(&out, r, columns); err != nil {
			t.Fatal(err)
		}
		checkWidth(t, out.String(), columns)
		text := strings.Join(strings.Fields(out.String()), " ")
		for _, want := range []string{
			"Of 64.0 MiB, nothing remains for PyTorch: the process had up to 64.0 MiB besides (context, other libraries).",
			"Even with it, the program does not fit in 64.0 MiB: it runs in 40.0 to 42.0 MiB, and PyTorch has none.",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("%d columns: no %q in\n%s", columns, want, out.String())
			}
		}
	}
}

func TestEveryReasonIsSaidWithItsFigures(t *testing.T) {
	for code := NotFromStart; code <= NoTensors; code++ {
		c := Condition{Code: code, Count: 12_345, Of: 67_890, Text: "a\x1b[1m", Other: "b\nc", Err: errors.New("d\x1b")}
		if text := c.say(); text == "unknown reason" || strings.ContainsAny(text, "\x1b\n") {
			t.Errorf("%d: %q", code, text)
		}
		if codes[code].name == "" {
			t.Errorf("code %d has no name", code)
		}
	}
	c := Condition{Code: Differs, Err: &allocsim.Mismatch{Op: 4, What: allocsim.ReservedDiffers, Want: 2 * mib, Got: 4 * mib}, Count: 4, Of: 9}
	if want := "4.00 MiB instead of 2.00 MiB are reserved"; !strings.HasSuffix(c.say(), want) {
		t.Error(c.say())
	}
}

func TestAJobWithoutItsVersionIsRefused(t *testing.T) {
	for version, want := range map[string]Code{"": UnknownVersion, "2.5.1": OtherVersion, "2.6": Unchecked} {
		tr := ordered()
		tr.Version = version
		j := &Job{Trace: tr}
		j.Prove()
		if len(j.Refused) != 1 || j.Refused[0].Code != want {
			t.Errorf("%q: %+v", version, j.Refused)
		}
	}
	tr := ordered()
	tr.Reserved = []allocsim.Reserved{{Op: 0, Bytes: 20 * mib}, {Op: 1, Bytes: 22 * mib}}
	j := &Job{Trace: tr}
	if j.Prove(); len(j.Refused) != 1 || j.Refused[0].Code != Differs || !Refused([]*Job{j}) {
		t.Errorf("%+v", j.Refused)
	}
}

// TestAChangedProgramReservesARange: its exact figure would rest on blocks that a prediction does
// not have.
func TestAChangedProgramReservesARange(t *testing.T) {
	tr := ordered()
	own, err := Replay(tr, Scenario{}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	same := func(t *allocsim.Trace) (*allocsim.Trace, error) { return t, nil }
	changed, err := Replay(tr, Scenario{Change: same, Remedies: []Applied{{}}}, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if changed.Reserved.Low != min(own.Reserved.Low, own.RunsIn.Low) || changed.Reserved.High < own.Reserved.High || changed.RunsIn != own.RunsIn {
		t.Errorf("%+v and %+v, as it ran %+v and %+v", changed.Reserved, changed.RunsIn, own.Reserved, own.RunsIn)
	}
	for _, size := range []uint64{0, 1, 512, 4 * mib} {
		for seed := range uint64(variations) {
			if got := varied(size, seed); got < size-size/variedBy || got > size+size/variedBy {
				t.Errorf("%d becomes %d", size, got)
			}
		}
	}
	if varied(4*mib, 1) == varied(4*mib, 2) {
		t.Error("nothing varies")
	}
}

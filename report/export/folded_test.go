// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	reportprofile "github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// foldedLine is what flamegraph.pl and inferno take: frames, one blank, a whole number.
var foldedLine = regexp.MustCompile(`^([^;\n\r]+(?:;[^;\n\r]+)*) ([0-9]+)$`)

// readFolded returns the sum of all weights, and fails for a line that a tool would ignore.
func readFolded(t *testing.T, text string) (sum int64) {
	t.Helper()
	if !strings.HasSuffix(text, "\n") {
		t.Fatalf("no newline at the end of %q", text)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range lines {
		m := foldedLine.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("no tool reads the line %q", line)
		}
		n, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if !slices.IsSorted(lines) {
		t.Error("the lines are not sorted")
	}
	if len(slices.Compact(lines)) != len(lines) {
		t.Error("a stack has two lines")
	}
	return sum
}

// profiled sums a sample type of the pprof profile.
func profiled(t *testing.T, s *ledger.Snapshot, name string) (sum int64) {
	t.Helper()
	var b bytes.Buffer
	if err := reportprofile.Write(&b, s, testStacks()); err != nil {
		t.Fatal(err)
	}
	p, err := profile.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	for i, x := range p.SampleType {
		if x.Type == name {
			for _, sample := range p.Sample {
				sum += sample.Value[i]
			}
			return sum
		}
	}
	t.Fatalf("no sample type %s", name)
	return 0
}

func folded(t *testing.T, s *ledger.Snapshot, o FoldedOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := Folded(&b, s, testStacks(), o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFoldedStacksAddUpToTheProfile(t *testing.T) {
	s := snapshot(play(training(true), begin+10*second, CollectorOptions{}), begin+10*second)
	for name, sample := range map[string]Sample{"inuse_space": InUse, "alloc_space": Allocated, "host_space": Host} {
		text := folded(t, s, FoldedOptions{Sample: sample})
		if sum, want := readFolded(t, text), profiled(t, s, name); sum != want || want == 0 {
			t.Errorf("%s: the lines add up to %d, the profile to %d:\n%s", name, sum, want, text)
		}
		reporttest.Golden(t, name+".folded", []byte(text))
		roots := folded(t, s, FoldedOptions{Sample: sample, Roots: true})
		if sum := readFolded(t, roots); sum != readFolded(t, text) {
			t.Errorf("%s: with roots %d bytes, without %d", name, sum, readFolded(t, text))
		}
		if sample == InUse {
			reporttest.Golden(t, "roots.folded", []byte(roots))
		}
	}
}

// Memory from before the attach is freed: NVML's figure falls by what the books cannot size.
func TestFoldedStacksHaveNothingBeyondNVMLsFigure(t *testing.T) {
	c := play(training(false), begin+10*second, CollectorOptions{})
	c.Tell(ledger.UsageReading{Time: begin + 10*second, Usages: []ledger.Usage{{PID: 4242, UUID: gpu0, Bytes: 335 * mib}, {PID: 4242, UUID: gpu1, Bytes: 364 * mib}}})
	s := snapshot(c, begin+11*second)
	text := folded(t, s, FoldedOptions{})
	if sum, want := readFolded(t, text), profiled(t, s, "inuse_space"); sum != want || want != int64(699*mib) {
		t.Errorf("the lines add up to %d, the profile to %d, NVML has %d:\n%s", sum, want, 699*mib, text)
	}
	if strings.Contains(text, "[unexplained]") {
		t.Errorf("something is unexplained:\n%s", text)
	}
	// And nothing to take it from but what the process allocated.
	c = play(training(false), begin+10*second, CollectorOptions{})
	c.Tell(ledger.UsageReading{Time: begin + 10*second, Usages: []ledger.Usage{{PID: 4242, UUID: gpu0, Bytes: 1 * mib}, {PID: 4242, UUID: gpu1, Bytes: 365 * mib}}})
	s = snapshot(c, begin+11*second)
	text = folded(t, s, FoldedOptions{})
	if sum, want := readFolded(t, text), profiled(t, s, "inuse_space"); sum != want || want != int64(366*mib) {
		t.Errorf("the lines add up to %d, the profile to %d, NVML has %d:\n%s", sum, want, 366*mib, text)
	}
}

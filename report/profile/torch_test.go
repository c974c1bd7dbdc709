// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// sums of inuse_space by process, GPU and plane, and of host_space by plane.
func profileSums(t *testing.T, s *ledger.Snapshot) (gpu map[string]int64, host map[string]int64) {
	t.Helper()
	gpu, host = map[string]int64{}, map[string]int64{}
	for _, x := range parsed(t, s, reporttest.TorchStacks()).Sample {
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
	const gib = 1024 * reporttest.MiB
	s := reporttest.TorchSnapshot()
	got, host := profileSums(t, s)
	for _, b := range s.Balances {
		where := fmt.Sprintf("%d cuda:%d %s", s.Processes[b.Process].PID, b.Device, b.UUID)
		if got[where] != int64(b.Usage) {
			t.Errorf("%s: %d bytes, NVML has %d", where, got[where], b.Usage)
		}
	}
	at := "4242 cuda:0 " + s.Balances[0].UUID
	for plane, want := range map[string]uint64{"tensor": 12 * gib, "cache": 1*gib + 300*reporttest.MiB, "driver": 192 * reporttest.MiB, "before": 23*gib + 276*reporttest.MiB + 298*reporttest.MiB} {
		if got[at+" "+plane] != int64(want) {
			t.Errorf("plane %s has %d bytes, want %d", plane, got[at+" "+plane], want)
		}
	}
	if n, ok := got[at+" unexplained"]; ok {
		t.Errorf("%d bytes are unexplained, want none", n)
	}
	if len(host) != 2 || host["4242 host host"] != int64(640*reporttest.MiB) || host["4242 cpu tensor"] != int64(200*reporttest.MiB) {
		t.Errorf("the host has %v", host)
	}
}

// Planes of the JSON report are those of the profile.
func TestPlanesAgree(t *testing.T) {
	s := reporttest.TorchSnapshot()
	gpu, host := profileSums(t, s)
	want := map[string]json.PlaneReport{}
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
	for _, x := range json.NewLeaks(s, reporttest.TorchStacks(), report.Options{}).Planes {
		if w := want[x.Plane]; w.Bytes != x.Bytes || w.HostBytes != x.HostBytes {
			t.Errorf("plane %s has %d and %d bytes, the profile %d and %d", x.Plane, x.Bytes, x.HostBytes, w.Bytes, w.HostBytes)
		}
	}
}

func TestSamplesOfPlanes(t *testing.T) {
	s := reporttest.TorchSnapshot()
	stacks := map[string][]string{}
	for _, x := range parsed(t, s, reporttest.TorchStacks()).Sample {
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
		if name == report.MarkCache && x.Label["api"][0] != "cudaMalloc" {
			t.Errorf("%s: labels %v", name, x.Label)
		}
	}
	for name, want := range map[string]string{
		report.MarkCache:       "[true true true]", // a leaf on the segment's stack
		report.MarkOlder:       "[false]",
		report.MarkOlderCached: "[false]",
		report.MarkForeign:     "[false false false]",
		report.MarkNoSample:    "[false]",
	} {
		if got := fmt.Sprint(stacks[name]); got != want {
			t.Errorf("%s: stacks %s, want %s", name, got, want)
		}
	}
}

func TestWithoutNVMLNothingIsSaidOfWhatWasBefore(t *testing.T) {
	s := reporttest.TorchSnapshot()
	s.Balances = nil
	for _, x := range parsed(t, s, reporttest.TorchStacks()).Sample {
		if plane := x.Label["plane"][0]; plane == report.PlaneBefore || plane == report.PlaneUnexplained {
			t.Errorf("a sample %v of plane %s", x.Value, plane)
		}
	}
}

// sampling returns the doubt about sampled tensors.
func sampling(s *ledger.Snapshot) string {
	for _, d := range report.Doubts(s) {
		if strings.Contains(d.Text, "estimated") {
			return d.Text
		}
	}
	return ""
}

func TestSamplingIsSaid(t *testing.T) {
	s := reporttest.TorchSnapshot()
	const want = "tensor sites are estimated from 1,020 of 5,132 live tensors, one in 1.00 MiB, and up to 8 times fewer where more than 4,000 stacks a second were needed (standard error of the largest: 96.0 MiB); their sum is exact"
	if got := sampling(s); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if comments := strings.Join(parsed(t, s, reporttest.TorchStacks()).Comments, "\n"); !strings.Contains(comments, "doubt: "+want) {
		t.Errorf("no word on sampling in\n%s", comments)
	}
	for i := range s.Tensors {
		s.Tensors[i].Sampled = s.Tensors[i].LiveObjects
	}
	if got := sampling(s); got != "" {
		t.Errorf("%q, want nothing where all are known", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/timeline"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// rows fills a timeline with the books of each second, and returns the snapshots.
func rows(t *testing.T, list []told, seconds uint64) (*timeline.Timeline, []*ledger.Snapshot) {
	t.Helper()
	line := &timeline.Timeline{}
	var snapshots []*ledger.Snapshot
	for i := range seconds {
		at := begin + i*second
		s := snapshot(play(list, at, CollectorOptions{}), at)
		line.Times = append(line.Times, at)
		snapshots = append(snapshots, s)
	}
	last := snapshots[len(snapshots)-1]
	line.Processes, line.GPUs = last.Processes, last.GPUs
	for _, part := range last.Parts() {
		r := timeline.Row{Process: part.Process, UUID: part.UUID, Device: part.Device}
		for _, s := range snapshots {
			var x ledger.Part
			for _, p := range s.Parts() {
				if p.UUID == part.UUID && s.Processes[p.Process].PID == last.Processes[part.Process].PID {
					x = p
				}
			}
			r.Tensors, r.Cached, r.Driver = append(r.Tensors, x.Tensors), append(r.Cached, x.Cached), append(r.Driver, x.Driver)
			r.Before = append(r.Before, x.OlderAllocated+x.OlderCached+x.Foreign)
			r.Unexplained, r.Rounding = append(r.Unexplained, x.Unexplained), append(r.Rounding, x.Rounding)
			r.Beyond = append(r.Beyond, x.Beyond())
			r.Usage = append(r.Usage, x.Tensors+x.Cached+x.Driver+x.Rounding+x.OlderAllocated+x.OlderCached+x.Foreign+x.Unexplained)
			var host uint64
			for k := range s.Sites {
				if s.Sites[k].Kind.OnHost() && part.UUID == gpu0 && s.Processes[s.Sites[k].Process].PID == last.Processes[part.Process].PID {
					host += s.Sites[k].LiveBytes
				}
			}
			r.Host = append(r.Host, host)
		}
		line.Rows = append(line.Rows, r)
	}
	line.Marks = []timeline.Mark{
		{Time: begin, Kind: timeline.Began},
		{Time: begin + 4*second + 1234567, Kind: timeline.Large, Device: 0, Size: 12 * mib, Stack: ncclStack, API: "cudaMalloc"},
		{Time: begin + 7*second, Kind: timeline.OutOfMemory, Device: 0, Size: 80 << 30, Stack: trainStack, API: "cudaMalloc"},
		{Time: begin + 99*second, Kind: timeline.Ended},
	}
	return line, snapshots
}

// checkedEvent is an event of the phases that are written, with all fields that the trace event
// format requires.
type checkedEvent struct {
	Name  *string                    `json:"name"`
	Cat   *string                    `json:"cat"`
	Phase string                     `json:"ph"`
	Scope string                     `json:"s"`
	Time  *float64                   `json:"ts"`
	PID   *uint32                    `json:"pid"`
	TID   *uint32                    `json:"tid"`
	Args  map[string]json.RawMessage `json:"args"`
}

// checkChrome reads a trace, checks its events and returns them.
func checkChrome(t *testing.T, text []byte) (list []checkedEvent) {
	t.Helper()
	var file struct {
		Unit   string         `json:"displayTimeUnit"`
		Events []checkedEvent `json:"traceEvents"`
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Fatal("there is more than one value")
	}
	if file.Unit != "ms" && file.Unit != "ns" {
		t.Errorf("displayTimeUnit is %q", file.Unit)
	}
	names := map[string]string{"process_name": "name", "thread_name": "name", "process_labels": "labels", "process_sort_index": "sort_index"}
	last := map[string]float64{}
	argument := map[string]string{} // names of a counter's arguments must not change
	for i, e := range file.Events {
		if err := checkEvent(&e, names, last, argument); err != nil {
			t.Errorf("event %d: %v", i, err)
		}
	}
	return file.Events
}

func checkEvent(e *checkedEvent, names map[string]string, last map[string]float64, arguments map[string]string) error {
	if e.Name == nil || *e.Name == "" || e.PID == nil || e.TID == nil {
		return fmt.Errorf("no name, pid or tid: %+v", e)
	}
	if e.Phase == "M" {
		want, known := names[*e.Name]
		if _, has := e.Args[want]; !known || !has || len(e.Args) != 1 || e.Time != nil || e.Scope != "" {
			return fmt.Errorf("metadata %s with %v", *e.Name, e.Args)
		}
		return nil
	}
	if e.Time == nil || *e.Time < 0 || e.Cat == nil {
		return fmt.Errorf("no time or category: %+v", e)
	}
	track := fmt.Sprint(*e.PID, *e.Name)
	switch e.Phase {
	case "C":
		if at, ok := last[track]; ok && at >= *e.Time {
			return fmt.Errorf("counter %s at %f, after %f", track, *e.Time, at)
		}
		last[track] = *e.Time
		if len(e.Args) == 0 || e.Scope != "" {
			return fmt.Errorf("counter without values")
		}
		for name, value := range e.Args {
			var n float64
			if json.Unmarshal(value, &n) != nil || math.Abs(n) > 1<<53 {
				return fmt.Errorf("counter %s has %s", name, value)
			}
		}
		of := fmt.Sprint(len(e.Args))
		if had, ok := arguments[track]; ok && had != of {
			return fmt.Errorf("counter %s has %s series, it had %s", track, of, had)
		}
		arguments[track] = of
	case "i":
		if !strings.Contains("tpg", e.Scope) || len(e.Scope) != 1 {
			return fmt.Errorf("instant of scope %q", e.Scope)
		}
	default:
		return fmt.Errorf("phase %q", e.Phase)
	}
	return nil
}

// at returns the values of a counter at a time: its last ones by then, 0 before the first.
func at(list []checkedEvent, pid uint32, name string, us float64) map[string]int64 {
	values := map[string]int64{}
	for _, e := range list {
		if e.Phase == "C" && *e.PID == pid && *e.Name == name && *e.Time <= us {
			for k, v := range e.Args {
				var n int64
				if json.Unmarshal(v, &n) == nil {
					values[k] = n
				}
			}
		}
	}
	return values
}

func TestChromeCountersAddUpToTheLedgerAtEachTime(t *testing.T) {
	line, snapshots := rows(t, training(true), 12)
	var b, again bytes.Buffer
	if err := Chrome(&b, line, &ledger.Snapshot{}, testStacks()); err != nil {
		t.Fatal(err)
	}
	if err := Chrome(&again, line, &ledger.Snapshot{}, testStacks()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("the same timeline gives other bytes")
	}
	reporttest.Golden(t, "chrome.json", b.Bytes())
	list := checkChrome(t, b.Bytes())
	checked := 0
	for i, s := range snapshots {
		us := float64(i) * 1e6
		gpus := map[string]int64{}
		for _, p := range s.Parts() {
			pid, where := s.Processes[p.Process].PID, fmt.Sprintf("cuda:%d", p.Device)
			planes := at(list, pid, "memory of "+where, us)
			want := map[string]int64{
				"tensor": int64(p.Tensors), "cache": int64(p.Cached), "driver": int64(p.Driver),
				"before": int64(p.OlderAllocated + p.OlderCached + p.Foreign), "unexplained": int64(p.Unexplained),
			}
			var sum int64
			for name, n := range want {
				if planes[name] != n {
					t.Errorf("second %d: %d on %s: %s is %d, the books have %d", i, pid, where, name, planes[name], n)
				}
				sum += n
				gpus[p.UUID] += n
			}
			usage := at(list, pid, "NVML usage of "+where, us)["bytes"]
			if beyond := at(list, pid, report.BeyondNVML+" on "+where, us)["bytes"]; uint64(beyond) != p.Beyond() || usage != sum {
				t.Errorf("second %d: %d on %s: usage %d of %d, beyond %d of %d", i, pid, where, usage, sum, beyond, p.Beyond())
			}
			checked++
		}
		for k, uuid := range []string{gpu0, gpu1} {
			var sum int64
			for _, n := range at(list, gpusPID, fmt.Sprintf("memory of GPU %d %s", k, uuid), us) {
				sum += n
			}
			if sum != gpus[uuid] {
				t.Errorf("second %d: GPU %d has %d, its processes %d", i, k, sum, gpus[uuid])
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d parts were compared", checked)
	}
	if got := at(list, 4242, "page-locked host memory, first used on cuda:0", 11e6)["bytes"]; got != int64(32*mib) {
		t.Errorf("page-locked memory is %d", got)
	}
}

func TestChromeMarksSayWhere(t *testing.T) {
	line, _ := rows(t, training(false), 12)
	var b bytes.Buffer
	if err := Chrome(&b, line, &ledger.Snapshot{}, testStacks()); err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{
		"first seen": 0, "allocation: 12.0 MiB at init (/home/ada/train.py:12)": 4001234.567,
		"out of memory: 80.0 GiB at Trainer.step (/home/ada/train.py:42)": 7e6, "ended": 99e6,
	}
	for _, e := range checkChrome(t, b.Bytes()) {
		if e.Phase == "i" {
			if time, ok := want[*e.Name]; !ok || time != *e.Time {
				t.Errorf("%q at %f", *e.Name, *e.Time)
			}
			delete(want, *e.Name)
		}
	}
	for name := range want {
		t.Errorf("no instant %q", name)
	}
}

func TestChromeTakesAnEmptyTimeline(t *testing.T) {
	var b bytes.Buffer
	if err := Chrome(&b, &timeline.Timeline{}, &ledger.Snapshot{}, testStacks()); err != nil {
		t.Fatal(err)
	}
	checkChrome(t, b.Bytes())
}

// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"testing"
	"time"
)

// checkSums tests that what is shown of each process on GPUs never exceeds NVML's figure. Where
// NVML no longer lists a process, what it holds is in no sum.
func checkSums(t *testing.T, s *Snapshot) {
	t.Helper()
	shown, usage := make([]uint64, len(s.Processes)), make([]uint64, len(s.Processes))
	listed := make([]bool, len(s.Processes))
	type at struct {
		process int
		device  int32
	}
	reports, reported := map[int]bool{}, map[at]bool{}
	for _, x := range s.Tensors {
		if x.Device != CPUDevice && !s.IsUnlisted(x.Process, x.Device) {
			reports[x.Process], reported[at{x.Process, x.Device}] = true, true
			shown[x.Process] += x.LiveBytes - x.Asleep + x.Cached
			if s.BalanceOf(x.Process, x.Device) < 0 { // otherwise it is in the parts
				shown[x.Process] += x.Older - x.OlderAsleep - x.OlderMoved + x.OlderCached
			}
		}
	}
	for _, x := range s.Sites {
		switch segment := x.Segment && reports[x.Process]; {
		case !x.Kind.Owned() || segment && reported[at{x.Process, x.Device}] || s.IsUnlisted(x.Process, x.Device):
		case segment:
			shown[x.Process] += x.LiveBytes - x.Tensors
		default:
			shown[x.Process] += x.LiveBytes
		}
	}
	for i, x := range s.Parts() {
		books := x.Books()
		shown[x.Process] += books.OlderAllocated + books.OlderCached + books.Foreign + x.Unexplained
		usage[x.Process] += x.Beyond() + uint64(max(int64(s.Balances[i].Usage)+s.Balances[i].Since, 0))
		listed[x.Process] = true
	}
	for i, p := range s.Processes {
		if listed[i] && int64(usage[i]-shown[i]) < 0 {
			t.Errorf("process %d: %d bytes are shown, NVML says %d", p.PID, int64(shown[i]), int64(usage[i]))
		}
	}
}

// checkPartsOf compares the parts with lists of Driver, Foreign, Unplaced, and Unexplained less
// Beyond.
func checkPartsOf(t *testing.T, s *Snapshot, want ...[4]int64) {
	t.Helper()
	checkSums(t, s)
	parts := s.Parts()
	if len(parts) != len(want) {
		t.Fatalf("parts %+v, want %v", parts, want)
	}
	for i, x := range parts {
		if got := [4]int64{int64(x.Driver), int64(x.Foreign), int64(x.Unplaced), int64(x.Unexplained) - int64(x.Beyond())}; got != want[i] {
			t.Errorf("%s: driver, foreign, unplaced, unexplained %v, want %v", x.UUID, got, want[i])
		}
	}
}

func TestWhatIsOnNoKnownGPUComesOffItsProcess(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   [][4]int64
	}{
		"what is unexplained comes first": {`
			usage t=1 GPU-a=300 GPU-b=300
			alloc t=2 addr=a size=100
			usage t=3 GPU-a=300 GPU-b=420`, [][4]int64{{0, 300, 0, 0}, {0, 300, 100, 20}}},
		"then memory from before the attach, by its size": {`
			usage t=1 GPU-a=300 GPU-b=100
			alloc t=2 addr=a size=100
			usage t=3 GPU-a=300 GPU-b=120`, [][4]int64{{0, 240, 60, 0}, {0, 80, 40, 0}}},
		"what is newer than the reading is beyond its figure": {`
			usage t=1 GPU-a=30 GPU-b=10
			alloc t=2 addr=a size=100`, [][4]int64{{0, 0, 30, -60}, {0, 0, 10, 0}}},
		"what is on known ones stays there": {`
			devices GPU-a GPU-b
			usage t=1 GPU-a=300 GPU-b=300
			alloc t=2 addr=a size=50 dev=0
			alloc t=2 addr=b size=40
			usage t=3 GPU-a=350 GPU-b=340`, [][4]int64{{50, 300, 0, 0}, {0, 300, 40, 0}}},
		"a GPU that NVML does not list": {`
			devices GPU-a GPU-b GPU-c
			usage t=1 GPU-a=300 GPU-b=300
			alloc t=2 addr=a size=50 dev=2`, [][4]int64{{0, 275, 25, 0}, {0, 275, 25, 0}}},
		"memory of the host is on none": {`
			usage t=1 GPU-a=300 GPU-b=300
			alloc t=2 addr=a size=50 kind=pinned`, [][4]int64{{0, 300, 0, 0}, {0, 300, 0, 0}}},
		"tensors from before come off what was before": {`
			devices GPU-a GPU-b GPU-c
			usage t=1 GPU-a=300 GPU-b=300
			allocator t=2 dev=2 size=40 handle=64
			totals t=3 dev=2 reported=3 allocated=40 reserved=100
			usage t=4 GPU-a=350 GPU-b=300`, [][4]int64{{0, 250, 50, 50}, {0, 250, 50, 0}}},
		"tensors and their cache": {`
			devices GPU-a GPU-b GPU-c
			usage t=1 GPU-a=300 GPU-b=300
			alloc t=2 addr=1000 size=100 dev=2 stack=1
			allocator t=2 dev=2
			totals t=3 dev=2 reported=3 allocated=60 reserved=100 60:1/60-0/0
			blocks 1000+60@2`, [][4]int64{{0, 250, 50, 0}, {0, 250, 50, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			checkPartsOf(t, play(t, c.script).Snapshot(9e9, time.Time{}), c.want...)
		})
	}
}

func TestOrdinalsThatNothingTellsArePairedWithNVMLsGPUs(t *testing.T) {
	const three = `
		gpus GPU-c/A GPU-a/A GPU-b/A
		usage t=1 GPU-a=300 GPU-b=300 GPU-c=300
		`
	for name, c := range map[string]struct {
		script  string
		devices []string
		how     Ordinals
	}{
		"as many": {three + `
			alloc t=2 addr=a size=10 dev=0
			alloc t=2 addr=b size=20 dev=1
			alloc t=2 addr=c size=30 dev=2`, []string{"GPU-c", "GPU-a", "GPU-b"}, OrdinalsPaired},
		"fewer": {three + `
			alloc t=2 addr=a size=10 dev=0
			alloc t=2 addr=b size=20 dev=1`, nil, OrdinalsTold},
		"too large for theirs": {three + `
			alloc t=2 addr=a size=10 dev=0
			alloc t=2 addr=b size=400 dev=1
			alloc t=2 addr=c size=30 dev=2
			usage t=3 GPU-a=300 GPU-b=700 GPU-c=300`, nil, OrdinalsTold},
		"of different models": {`
			gpus GPU-a/A GPU-b/B
			usage t=1 GPU-a=300 GPU-b=300
			alloc t=2 addr=a size=10 dev=0
			alloc t=2 addr=b size=20 dev=1`, nil, OrdinalsTold},
		"told otherwise": {`
			gpus GPU-a/A GPU-b/A
			devices GPU-b GPU-a
			usage t=1 GPU-a=300 GPU-b=300
			alloc t=2 addr=a size=10 dev=0
			alloc t=2 addr=b size=20 dev=1
			usage t=3 GPU-a=320 GPU-b=310`, []string{"GPU-b", "GPU-a"}, OrdinalsTold},
		"told wrong": {`
			gpus GPU-a/A GPU-b/A GPU-c/A GPU-d/A
			devices GPU-a GPU-b GPU-c GPU-d
			usage t=1 GPU-c=300 GPU-d=300
			alloc t=2 addr=a size=10 dev=0
			alloc t=2 addr=b size=20 dev=1
			usage t=3 GPU-c=310 GPU-d=320`, []string{"GPU-c", "GPU-d"}, OrdinalsPaired},
		"told wrong, and not as many": {`
			gpus GPU-a/A GPU-b/A GPU-c/A GPU-d/A
			devices GPU-a GPU-b GPU-c GPU-d
			usage t=1 GPU-c=300 GPU-d=300
			alloc t=2 addr=a size=10 dev=0
			usage t=3 GPU-c=310 GPU-d=300`, nil, OrdinalsDenied},
		"not listed yet": {`
			gpus GPU-a/A GPU-b/A GPU-c/A
			devices GPU-a GPU-b GPU-c
			usage t=1 GPU-a=300 GPU-b=300
			alloc t=2 addr=a size=10 dev=2
			usage t=3 GPU-a=~300 GPU-b=~300`, []string{"GPU-a", "GPU-b", "GPU-c"}, OrdinalsTold},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, c.script).Snapshot(9e9, time.Time{})
			checkSums(t, s)
			if p := s.Processes[0]; !slices.Equal(p.Devices, c.devices) || p.Ordinals != c.how {
				t.Errorf("devices %q, known by %d; want %q, %d", p.Devices, p.Ordinals, c.devices, c.how)
			}
		})
	}
}

func TestAProcessThatSeesOneGPUHasNoUnknownDevice(t *testing.T) {
	l := play(t, "alloc t=1 addr=a size=10\nalloc t=1 addr=b size=20 dev=0")
	l.Tell(Devices{PID: 7, UUIDs: []string{""}}) // its device is unknown
	if got := onDevices(l.Snapshot(2e9, time.Time{})); !slices.Equal(got, []string{"0:30"}) {
		t.Errorf("bytes by device %v, want all on the first", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/holders/pythontest"
)

// kept is a storage that a job has kept from one moment to another.
type kept struct {
	from, to int64
	bytes    uint64
	path     string
}

// readLog reads what hot.py wrote: "+ TIME ADDRESS BYTES PATH" and "- TIME ADDRESS".
func readLog(t *testing.T, name string) (all map[uint64][]kept) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all = map[uint64][]kept{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.SplitN(lines.Text(), " ", 5)
		if len(fields) < 3 {
			continue
		}
		at, _ := strconv.ParseInt(fields[1], 10, 64)
		address, _ := strconv.ParseUint(fields[2], 10, 64)
		if fields[0] == "+" && len(fields) == 5 {
			bytes, _ := strconv.ParseUint(fields[3], 10, 64)
			all[address] = append(all[address], kept{from: at, to: 1 << 62, bytes: bytes, path: fields[4]})
		} else if list := all[address]; len(list) > 0 {
			list[len(list)-1].to = at
		}
	}
	return all
}

func monotonic() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

func TestTrainingWithoutPause(t *testing.T) {
	script, err := filepath.Abs("../../testdata/holders/hot.py")
	if err != nil {
		t.Fatal(err)
	}
	for name, command := range torches(t) {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "log")
			p := pythontest.Start(t, command(script, file))
			type run struct {
				from, to int64
				*Result
			}
			var runs []run
			for range 5 {
				from := monotonic()
				r, err := Walk(context.Background(), p, Options{Host: true})
				if err != nil {
					t.Fatal(err)
				}
				runs = append(runs, run{from, monotonic(), r})
			}
			log := readLog(t, file)
			least, most, rights, wrongs := 1.0, 0.0, 0.0, 0.0
			for _, r := range runs {
				right, wrong := checkHot(t, log, r.Result, r.from, r.to)
				least, most = min(least, right), max(most, wrong)
				rights, wrongs = rights+right, wrongs+wrong
			}
			// Of all walks: one takes longer beside other tests, and more moves in it.
			if n := float64(len(runs)); !(rights/n >= 0.97 && wrongs/n <= 0.005 && least >= 0.9) {
				t.Errorf("in the mean %.4f of the bytes have the right holder and %.4f a wrong one, want at least 0.97 and at most 0.005", rights/n, wrongs/n)
			}
			t.Logf("| PyTorch | Python | walks | least bytes right | most bytes wrong |")
			t.Logf("| %s | %s | %d | %.4f | %.4f |", name, runs[0].Python, len(runs), least, most)
		})
	}
}

// checkHot looks for the right holder of what was kept during a whole walk, and returns the shares
// of its bytes with the right holder and with a wrong one.
func checkHot(t *testing.T, log map[uint64][]kept, r *Result, from, to int64) (rights, mistakes float64) {
	t.Helper()
	found := map[uint64]Storage{}
	var motion, native, all uint64
	for _, st := range r.Storages {
		found[st.Address] = st
		all += st.Bytes
		if st.InMotion {
			motion += st.Bytes
		} else if st.Holder.Root().Kind == RootNative {
			native += st.Bytes
		}
	}
	var right, wrong, missed, moving uint64
	wrongs := map[string]int{}
	for address, list := range log {
		for _, k := range list {
			if k.from > from || k.to < to {
				continue
			}
			st, is := found[address]
			got := "nothing"
			if is {
				got = lineNumber.ReplaceAllString(st.Holder.String(), "py:LINE)")
			}
			switch {
			case got == k.path:
				right += k.bytes
				if st.InMotion {
					moving += k.bytes
				}
				continue
			case is:
				wrong += k.bytes
			default:
				missed += k.bytes
			}
			wrongs[k.path+": found as "+got]++
		}
	}
	sum := right + wrong + missed
	t.Logf("%.4f of %d bytes have the right holder, %.4f a wrong one, %.4f none (%d called in motion); all storages %d bytes, %d in motion, %d of the step; %d objects, copy %v, total %v, %q",
		share(right, sum), sum, share(wrong, sum), share(missed, sum), moving, all, motion, native, r.Objects, r.Times.Copy, r.Times.Total, r.Problems)
	if share(right, sum) < 0.97 || share(wrong, sum) > 0.005 || sum == 0 {
		shown := 0
		for w, n := range wrongs {
			if shown++; shown < 12 {
				t.Logf("%d times %s", n, w)
			}
		}
	}
	return share(right, sum), share(wrong, sum)
}

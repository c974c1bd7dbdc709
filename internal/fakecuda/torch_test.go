// SPDX-License-Identifier: Apache-2.0

package fakecuda

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ianlancetaylor/demangle"
)

func TestFakeTorchReportsThroughItsVersionsFunctions(t *testing.T) {
	const report, failed = "c10::reportMemoryUsageToProfiler(void*, long", "c10::reportOutOfMemoryToProfiler"
	push, guarded, sub := []byte{0x41}, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x41}, []byte{0x48, 0x83, 0xec}
	for version, want := range map[string]struct {
		names []string
		entry []byte
	}{
		"1.6":  {[]string{report + ", c10::Device)"}, push},
		"1.13": {[]string{report + ", long, long, c10::Device)", failed + "(long, long, long, c10::Device)"}, guarded},
		"2.6":  {[]string{report + ", unsigned long, unsigned long, c10::Device)", failed + "(long, unsigned long, unsigned long, c10::Device)"}, push},
		"2.14": {[]string{report + ", unsigned long, unsigned long, c10::Device)", failed + "(unsigned long, unsigned long, unsigned long, c10::Device)"}, sub},
		"2.99": {[]string{report + ", unsigned long, unsigned long, bool, c10::Device)", failed + "(long, unsigned long, unsigned long, bool, c10::Device)"}, push},
		"none": {},
	} {
		f := openELF(t, Build(t).Lib("torch-"+version+"/libc10.so"))
		var names []string
		for name, s := range exports(t, f) {
			if !strings.HasPrefix(name, "_Z") {
				continue
			}
			names = append(names, demangle.Filter(name))
			if begin := code(t, f, s, 8); strings.HasPrefix(names[len(names)-1], report) && runtime.GOARCH == "amd64" && !bytes.HasPrefix(begin, want.entry) {
				t.Errorf("%s: %s begins with % x, want % x", version, name, begin, want.entry)
			}
		}
		slices.Sort(names)
		if !slices.Equal(names, want.names) {
			t.Errorf("%s exports %q, want %q", version, names, want.names)
		}
	}
}

// The test takes segments of both kinds, flushes the cache, retries and frees, beside a library
// that is not PyTorch's.
func TestFakeTorchTakesWhatItReports(t *testing.T) {
	const foreign = 100 << 20
	const script = "alloc a 10G\nfree a\nalloc b 12G\noom 8G\nfree b\nforeign f 100M\nthreads 4\nrandom 5 20000 2\nend\n" +
		"site 3\nrandom 6 20000 2\nfree_random 2\nempty_cache\ntotals\nready\nwait\n"
	for _, more := range []string{"FAKETORCH_EXPANDABLE=0", "FAKETORCH_EXPANDABLE=1"} {
		for _, version := range TorchVersions {
			env := append(Build(t).Env(t, 2, 16<<30), Build(t).Torch(version), more)
			p := start(t, env, "tensors_c", script)
			var reserved, retries, failures [2]uint64
			for i := range reserved {
				var device, allocated, live, largest, peak uint64
				line, _ := p.out.ReadString('\n')
				if _, err := fmt.Sscanf(line, "device %d %d %d %d %d %d %d %d", &device, &allocated, &reserved[i], &live, &largest, &peak, &retries[i], &failures[i]); err != nil {
					t.Fatalf("%s: %q: %v", version, line, err)
				}
				if allocated == 0 || allocated+largest > reserved[i] || live < 1000 || peak < allocated || device != uint64(i) {
					t.Errorf("%s, %s: %q", version, more, line)
				}
			}
			p.expect("end")
			p.expect(fmt.Sprint("ready ", p.Process.Pid))
			if retries[0] == 0 || failures[0] != 1 || retries[1]+failures[1] != 0 {
				t.Errorf("%s, %s: %d retries, %d failures", version, more, retries, failures)
			}
			reserved[0] += foreign
			for i, g := range usage(t, env)[0].GPUs {
				if got := g.Device.Bytes + g.VMM.Bytes; got != reserved[i] {
					t.Errorf("%s, %s: GPU %d provided %d bytes, the allocator reports %d", version, more, i, got, reserved[i])
				}
			}
			p.next()
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
}

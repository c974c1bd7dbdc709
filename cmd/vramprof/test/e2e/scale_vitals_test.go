// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/json"
)

// vitals are the resources of a process.
type vitals struct {
	rss               int64 // bytes
	files, threads    int
	maps, progs, link int   // file descriptors of each kind of BPF object
	kernel            int64 // bytes of its maps
}

// vitalsOf reads /proc. It returns zero for an exited process.
func vitalsOf(pid int) (v vitals) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	field := func(name string) int64 {
		_, rest, _ := strings.Cut(string(status), "\n"+name+":")
		words := strings.Fields(rest)
		if len(words) == 0 {
			return 0
		}
		n, _ := strconv.ParseInt(words[0], 10, 64)
		return n
	}
	v.rss, v.threads = field("VmRSS")<<10, int(field("Threads"))
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	v.files = len(entries)
	maps := map[string]int64{} // bytes by id: several files may be of one map
	for _, e := range entries {
		switch target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, e.Name())); {
		case strings.Contains(target, "bpf-map"):
			v.maps++
			id, bytes := mapOf(pid, e.Name())
			maps[id] = bytes
		case strings.Contains(target, "bpf-prog"):
			v.progs++
		case strings.Contains(target, "bpf_link"), strings.Contains(target, "[perf_event]"):
			v.link++
		}
	}
	for _, bytes := range maps {
		v.kernel += bytes
	}
	return v
}

// mapOf returns the id of a BPF map and its size, as reported by the kernel ("map_id:\t7",
// "memlock:\t8192"), including what its entries add.
func mapOf(pid int, fd string) (id string, bytes int64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	line := func(name string) string {
		_, rest, _ := strings.Cut(string(text), "\n"+name+":\t")
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	bytes, _ = strconv.ParseInt(line("memlock"), 10, 64)
	return line("map_id"), bytes
}

func (v vitals) String() string {
	return fmt.Sprintf("%d MiB, %d files, %d threads, %d bpf maps, %d programs, %d links and perf events, %d MiB of maps",
		v.rss>>20, v.files, v.threads, v.maps, v.progs, v.link, v.kernel>>20)
}

// Bounds of any session, however many processes and threads there are: far above what it needs, far
// below what it would use if it kept something for each.
const (
	mostMemory = 1 << 30
	mostFiles  = 1000
)

func (s *session) checkVitals(when string) vitals {
	s.t.Helper()
	v := vitalsOf(s.cmd.Process.Pid)
	s.t.Logf("%s: vramprof has %v", when, v)
	if v.rss == 0 || v.rss > mostMemory || v.files > mostFiles || v.threads > 200 {
		s.t.Errorf("%s: vramprof has %v, want at most %d MiB, %d files, 200 threads", when, v, mostMemory>>20, mostFiles)
	}
	return v
}

// sums returns the totals of all processes, and the number of processes that ended.
func sums(r *json.LeaksReport) (allocated, bytes, live, ended uint64) {
	for _, p := range r.Processes {
		for _, x := range p.Totals {
			allocated += x.AllocatedCount
			bytes += x.AllocatedBytes
			live += x.LiveCount
		}
		if p.Ended {
			ended++
		}
	}
	return allocated, bytes, live, ended
}

// told returns what a report states as lost or unknown.
func told(r *json.LeaksReport) string {
	l := r.Losses
	return fmt.Sprintf("lost %d, without stack %d, truncated %v, torn %d, evicted %d, unmatched frees %d, reused %d of %d events and %d stacks; warnings %q",
		l.LostEvents, l.WithoutStack, l.Truncated, l.Torn, l.Evicted, l.UnmatchedFrees, l.ReusedAddresses, l.Events, l.Stacks, r.Warnings)
}

var panicText = regexp.MustCompile(`(?m)^(panic:|fatal error:|goroutine \d+ \[)`)

// checkCalm fails if the session printed a panic or a similar failure.
func (s *session) checkCalm() {
	s.t.Helper()
	if text := []byte(s.stderr.String()); panicText.Match(text) || bytes.Contains(text, []byte("DATA RACE")) {
		s.t.Errorf("vramprof broke:\n%s", text)
	}
}

// need skips a test if the machine has too little of something.
func need(t *testing.T, path string, least int64) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n < least {
		t.Skipf("%s is %d, %d are needed", path, n, least)
	}
}

// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// rooted is a session of processes in containers, whose script is at a path that is not here.
func rooted() (*ledger.Snapshot, callstack.Stacks) {
	s := &ledger.Snapshot{End: reporttest.Second}
	for pid := uint32(100); pid < 112; pid++ {
		s.Sites = append(s.Sites, ledger.Site{Process: len(s.Processes), Stack: 1, API: "cudaMalloc", LiveObjects: 1, LiveBytes: reporttest.MiB, AllocObjects: 1, AllocBytes: reporttest.MiB})
		s.Processes = append(s.Processes, ledger.Process{PID: pid, Comm: "rank", OwnRoot: true})
	}
	return s, reporttest.StackMap{1: {reporttest.Native("cudaMalloc", reporttest.CUDART, 1), reporttest.Script("step", "/vramprof-test/train.py", 2)}}
}

func TestProfileTellsWhereTheSourceOfContainersIs(t *testing.T) {
	s, st := rooted()
	s.Processes[1].OwnRoot, s.Processes[2].End = false, 1
	s.Sites = s.Sites[:11] // the last process has none
	text := strings.Join(parsed(t, s, st).Comments, "\n")
	const want = "source of rank [100], rank [103], rank [104], rank [105], rank [106], rank [107], rank [108], rank [109] and 1 more, with its own file system: " +
		"-source_path=/proc/100/root:/proc/103/root:/proc/104/root:/proc/105/root:/proc/106/root:/proc/107/root:/proc/108/root:/proc/109/root -trim_path=/"
	if !strings.Contains(text, want) {
		t.Errorf("%s\nwant %s", text, want)
	}
	s.Processes = s.Processes[:2]
	s.Sites = s.Sites[1:2]
	if text := strings.Join(parsed(t, s, st).Comments, "\n"); strings.Contains(text, "-source_path") {
		t.Error(text)
	}
}

// TestPprofListsSourceBelowARoot: a folder is the container's root.
func TestPprofListsSourceBelowARoot(t *testing.T) {
	s, st := rooted()
	pprof, write := pprofOf(t, st)
	file, root := write("rooted.pb.gz", s), t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "vramprof-test"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "vramprof-test", "train.py"), []byte("import torch\nkept.append(torch.empty(1))\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	(&pprofCase{"below the root", []string{"-list=^step$", "-source_path=" + root, "-trim_path=/", file}, []string{"12MB       12MB", "2:kept.append(torch.empty(1))"}, nil}).run(t, pprof)
	(&pprofCase{"elsewhere", []string{"-list=^step$", file}, []string{"open /vramprof-test/train.py: no such file or directory"}, []string{"kept.append"}}).run(t, pprof)
}

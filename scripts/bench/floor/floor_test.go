// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/features"

	"github.com/vramprof/vramprof/internal/fakecuda"
)

// A probe that does not fire would make the floor too low and vramprof look expensive. One event
// per call shows that every probe fires.
func TestEveryCallOfTheOutermostLayerIsAnEvent(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, test := range []struct {
		program   string
		libraries []string
	}{
		{"cuda", []string{"libcuda.so.1"}},
		{"cudart", []string{"libcudart.so.12", "libcuda.so.1"}},
	} {
		dir := fakecuda.Build(t)
		private := t.TempDir() // probes see every process that uses the same file
		for _, name := range []string{"libcuda.so.1", "libcudart.so.12"} {
			library, err := os.ReadFile(dir.Lib(name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(private, name), library, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		p := prober{multi: features.HaveBPFLinkUprobeMulti() == nil}
		events, err := p.load(true)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		for _, name := range test.libraries {
			if err := p.attach(filepath.Join(private, name)); err != nil {
				t.Fatalf("attach %s: %v", name, err)
			}
		}
		ended, end := context.WithCancel(context.Background())
		end()
		cmd := exec.Command(dir.Program("bench_c"), test.program, "30", "10000")
		cmd.Env = append(dir.Env(t, 1, 8<<30), "LD_LIBRARY_PATH="+private)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		n, err := count(ended, events)
		if err != nil {
			t.Fatal(err)
		}
		if n < 20000 || n > 20001 { // cudart starts with cudaFree(NULL)
			t.Errorf("%s: %d events of 20000 calls", test.program, n)
		}
	}
}

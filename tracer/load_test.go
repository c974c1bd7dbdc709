// SPDX-License-Identifier: Apache-2.0

package tracer

import (
	"maps"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/vramprof/vramprof/bpf"
)

func TestKernelTakesAllPrograms(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for what, config := range map[string]Config{
		"default": {}, "with details of blocks": {Details: true}, "across marked pages": {ofTests: ofTests{marked: true}},
	} {
		t.Run(what, func(t *testing.T) { takesAllPrograms(t, config) })
	}
}

func takesAllPrograms(t *testing.T, config Config) {
	tr, err := New(config)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer tr.Close()
	if err := tr.prober.Wait(); err != nil {
		t.Fatalf("%+v", err)
	}
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	// The verifier's limit is a million; another kernel may need twice as many. Sessions wait for
	// it: where the programs can save it work (bpf/verifier.h), it takes a tenth.
	most := uint32(650_000)
	if bpf.CanGuard(kernel) {
		most = 100_000
		if config.Details { // only where they were asked for
			most = 150_000
		}
	}
	programs := maps.Clone(tr.prober.Programs())
	for slot, name := range map[uint32]string{support.ProgUnwindNative: "unwind_native", support.ProgUnwindPython: "unwind_python"} {
		var id uint32
		if err := tr.unwind.Maps()["perf_progs"].Lookup(slot, &id); err != nil {
			t.Fatal(err)
		}
		if programs[name], err = ebpf.NewProgramFromID(ebpf.ProgramID(id)); err != nil {
			t.Fatal(err)
		}
		defer programs[name].Close()
	}
	for name, p := range programs {
		info, err := p.Info()
		if err != nil {
			t.Fatal(err)
		}
		n, ok := info.VerifiedInstructions() // Linux 5.16
		t.Logf("%s: %d instructions", name, n)
		if ok && n > most {
			t.Errorf("%s: the verifier looked at %d instructions", name, n)
		}
	}
	if _, err := tr.discovery.scanner.Scan(); err != nil {
		t.Error(err)
	}
	if s := tr.Snapshot(); s.Stats.Lost != 0 {
		t.Errorf("lost %d events before there were any", s.Stats.Lost)
	}
}

// scripts/test-kernels.sh prints what this logs.
func TestHowTheKernelIsUsed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	how := func(has bool, yes, no string) string {
		if has {
			return yes
		}
		return no
	}
	spec, err := bpf.LoadProcess(kernel)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("how: probes=%s; guard=%s; cookies=%s; discovery=%s; maps=%s",
		how(features.HaveBPFLinkUprobeMulti() == nil, "uprobe_multi", "perf~events"),
		how(bpf.CanGuard(kernel), "guarded", "unguarded"),
		how(bpf.Cookies(kernel), "kernel's", "a~program~per~probe"),
		how(spec.Programs["mapped_files"] != nil, "task_vma", "/proc/*/maps"),
		how(bpf.GrowingMaps(kernel), "growing", "preallocated"))
}

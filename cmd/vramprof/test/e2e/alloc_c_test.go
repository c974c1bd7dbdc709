// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// everyOperation uses each operation of alloc_c and frees part of the memory.
const everyOperation = `
free0
malloc0
malloc a 1000
repeat 3
malloc b 5000000
end
free b
managed c 70000
pinned d 4096
mallochost e 8192
driver_malloc f 300
driver_managed g 65536
driver_pinned h 111
driver_mallochost i 222
repeat 2
managed j 10
free j
pinned k 20
freehost k
driver_malloc l 30
driver_free l
driver_pinned m 40
driver_freehost m
end
fail 1000000000000
fail 2000000000000
badfree
malloc0
free0
`

func everyOperationBooks(device string) books {
	const repeated = "main run_script"
	return books{
		key("cudaMalloc", "device", device, "main", "malloc"):                   {1, 1000, 1, 1000},
		key("cudaMalloc", "device", device, repeated, "malloc"):                 {3, 15000000, 2, 10000000},
		key("cudaMallocManaged", "managed", device, "main", "managed"):          {1, 70000, 1, 70000},
		key("cudaMallocManaged", "managed", device, repeated, "managed"):        {2, 20, 0, 0},
		key("cudaHostAlloc", "pinned", "host", "main", "pinned"):                {1, 4096, 1, 4096},
		key("cudaHostAlloc", "pinned", "host", repeated, "pinned"):              {2, 40, 0, 0},
		key("cudaMallocHost", "pinned", "host", "main", "mallochost"):           {1, 8192, 1, 8192},
		key("cuMemAlloc_v2", "device", device, "main", "driver_malloc"):         {1, 300, 1, 300},
		key("cuMemAlloc_v2", "device", device, repeated, "driver_malloc"):       {2, 60, 0, 0},
		key("cuMemAllocManaged", "managed", device, "main", "driver_managed"):   {1, 65536, 1, 65536},
		key("cuMemHostAlloc", "pinned", "host", "main", "driver_pinned"):        {1, 111, 1, 111},
		key("cuMemHostAlloc", "pinned", "host", repeated, "driver_pinned"):      {2, 80, 0, 0},
		key("cuMemAllocHost_v2", "pinned", "host", "main", "driver_mallochost"): {1, 222, 1, 222},
	}
}

func TestProfileOfCProgramEqualsItsAllocations(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	p := record(t, env, dir.Program("alloc_c"), writeFile(t, "script", everyOperation))
	booksOf(t, p).compare(t, everyOperationBooks("cuda:0"))
	checkLabels(t, p)
}

// checkLabels checks what the books do not contain: pid, UUID, bytes, plane, comm.
func checkLabels(t *testing.T, p *profile.Profile) {
	t.Helper()
	for _, s := range p.Sample {
		if pid := s.NumLabel["pid"]; len(pid) != 1 || pid[0] <= 1 {
			t.Errorf("pid %v", pid)
		}
		if bytes := s.NumLabel["bytes"]; len(bytes) != 1 || bytes[0] != s.Value[1]/s.Value[0] || s.NumUnit["bytes"][0] != "bytes" {
			t.Errorf("label bytes %v %v of values %v", bytes, s.NumUnit["bytes"], s.Value)
		}
		wantUUID, plane := true, "driver"
		if label(s, "device") == "host" {
			wantUUID, plane = false, "host"
		}
		if label(s, "kind") == "managed" {
			plane = "managed"
		}
		if label(s, "plane") != plane || label(s, "comm") != "alloc_c" {
			t.Errorf("labels %v", s.Label)
		}
		if uuid := label(s, "gpu_uuid"); strings.HasPrefix(uuid, "GPU-") != wantUUID {
			t.Errorf("gpu_uuid %q of device %s", uuid, label(s, "device"))
		}
	}
}

func TestReportOfCProgramEqualsItsAllocations(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	r := leaks(t, env, dir.Program("alloc_c"), writeFile(t, "script", everyOperation))
	checkNoLosses(t, r)
	if len(r.Processes) != 1 || !r.Processes[0].Ended || r.Processes[0].Comm != "alloc_c" {
		t.Fatalf("processes %+v, want only alloc_c, ended", r.Processes)
	}
	want := map[string]string{
		"cuda:0 device":  "live 4 10001300 allocated 7 15001360",
		"cuda:0 managed": "live 2 135536 allocated 4 135556",
		"host pinned":    "live 4 12621 allocated 8 12741",
	}
	for _, x := range r.Processes[0].Totals {
		name := x.Device + " " + x.Kind
		got := fmt.Sprintf("live %d %d allocated %d %d", x.LiveCount, x.LiveBytes, x.AllocatedCount, x.AllocatedBytes)
		if got != want[name] {
			t.Errorf("%s: %s, want %s", name, got, want[name])
		}
		delete(want, name)
	}
	if len(want) != 0 {
		t.Errorf("no totals of %v", want)
	}
	if len(r.Failures) != 1 {
		t.Fatalf("failures %+v, want one site", r.Failures)
	}
	f := r.Failures[0]
	if f.API != "cudaMalloc" || f.Result != 2 || f.Count != 2 || f.Bytes != 3000000000000 || f.LastBytes != 2000000000000 || f.Stack[f.Headline].Function != "level1" {
		t.Errorf("failure %+v", f)
	}
	if got := f.Stack[4].Function; got != "op_fail" {
		t.Errorf("failed in %s, want op_fail", got)
	}
}

func TestRuntimeThatBypassesDriverExportsIsBooked(t *testing.T) {
	dir := setup(t)
	env := append(dir.Env(t, 1, 8<<30), "FAKECUDA_PRIVATE=1")
	p := record(t, env, dir.Program("alloc_c"), writeFile(t, "script", everyOperation))
	booksOf(t, p).compare(t, everyOperationBooks("cuda:0"))
}

func TestEightThreadsAreBookedExactly(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	// Per thread: 2000 pairs, 50 live allocations, and driver and runtime calls in turn.
	script := `
threads 8
repeat 2000
malloc a 4096
free a
end
repeat 50
malloc b 777
driver_malloc c 333
pinned d 64
freehost d
end
end
`
	p := record(t, env, dir.Program("alloc_c"), writeFile(t, "script", script))
	const thread = "thread_main run_script" // of the repeat
	booksOf(t, p).compare(t, books{
		key("cudaMalloc", "device", "cuda:0", thread, "malloc"):           {8 * 2050, 8 * (2000*4096 + 50*777), 8 * 50, 8 * 50 * 777},
		key("cuMemAlloc_v2", "device", "cuda:0", thread, "driver_malloc"): {8 * 50, 8 * 50 * 333, 8 * 50, 8 * 50 * 333},
		key("cudaHostAlloc", "pinned", "host", thread, "pinned"):          {8 * 50, 8 * 50 * 64, 0, 0},
	})
}

func TestStaticRuntimeWithSymbolsIsBookedOnce(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	p := record(t, env, dir.Program("alloc_static_sym"), writeFile(t, "script", everyOperation))
	booksOf(t, p).compare(t, everyOperationBooks("cuda:0"))
}

func TestStrippedStaticRuntimeIsTracedThroughTheDriver(t *testing.T) {
	dir := setup(t)
	env := dir.Env(t, 1, 8<<30)
	p := record(t, env, dir.Program("alloc_static"), writeFile(t, "script", "malloc a 1000\nmalloc b 5\nfree b\ndriver_malloc c 300\nmanaged m 7\n"))
	got := map[string]values{}
	for _, s := range p.Sample {
		stack := rootFirst(s)
		checkRoot(t, stack)
		if leaf := stack[len(stack)-1]; leaf != label(s, "api") {
			t.Errorf("the leaf is %s, the api %s", leaf, label(s, "api"))
		}
		sum := got[label(s, "api")]
		for i := range sum {
			sum[i] += s.Value[i]
		}
		got[label(s, "api")] = sum
	}
	want := map[string]values{"cuMemAlloc_v2": {3, 1305, 2, 1300}, "cuMemAllocManaged": {1, 7, 1, 7}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

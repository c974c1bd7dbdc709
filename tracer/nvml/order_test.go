// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vramprof/vramprof/internal/fakecuda"
	"github.com/vramprof/vramprof/tracer/ledger"
)

func modelsOf(count int) (gpus []ledger.GPU) {
	for i := range count {
		gpus = append(gpus, ledger.GPU{Index: i, UUID: fmt.Sprintf("GPU-fa00-%d", i), Name: fmt.Sprint("model ", i)})
	}
	return gpus
}

func TestOrderOfDifferentModelsComesFromCUDA(t *testing.T) {
	env := append(fakecuda.Build(t).Env(t, 4, 1<<30), "FAKECUDA_ORDER=2,0,3,1", "VRAMPROF_TEST_ORDER=1")
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "FAKECUDA_") || strings.HasPrefix(name, "VRAMPROF_") || name == "LD_LIBRARY_PATH" {
			t.Setenv(name, value)
		}
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "1") // for this process, not for those that are traced
	t.Setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
	gpus := modelsOf(4)
	d := &Driver{}
	if err := d.LearnOrder(t.Context(), gpus, os.Args[0]); err != nil {
		t.Fatal(err)
	}
	order := *d.order.Load()
	for i := range gpus { // the fake CUDA's UUIDs end with the GPU's number
		at := slices.IndexFunc(order, func(uuid string) bool { return strings.HasSuffix(uuid, fmt.Sprintf("%02x", i)) })
		if at != []int{1, 3, 0, 2}[i] {
			t.Fatalf("CUDA's order is %q", order)
		}
		gpus[i].UUID = order[at]
	}
	for visible, want := range map[string][]int{"": {2, 0, 3, 1}, "CUDA_VISIBLE_DEVICES=1,0": {0, 2}, "CUDA_DEVICE_ORDER=PCI_BUS_ID": {0, 1, 2, 3}} {
		var uuids []string
		for _, i := range want {
			uuids = append(uuids, gpus[i].UUID)
		}
		if got := d.ResolveOrdinals([]string{visible}, gpus); !slices.Equal(got, uuids) {
			t.Errorf("%s: ordinals %q, want %q", visible, got, uuids)
		}
	}
	some := []ledger.GPU{{Index: 0, UUID: gpus[1].UUID, Name: "b"}, {Index: 1, UUID: gpus[3].UUID, Name: "d"}} // as in a container
	if got := d.ResolveOrdinals(nil, some); !slices.Equal(got, []string{gpus[3].UUID, gpus[1].UUID}) {
		t.Errorf("with some of the GPUs: ordinals %q", got)
	}
}

func TestFailedOrderCommandLeavesOnlyTheOrderUnknown(t *testing.T) {
	gpus := modelsOf(2)
	d := &Driver{}
	began := time.Now()
	for _, command := range [][]string{{"false"}, {"/does/not/exist"}, {"sh", "-c", "yes GPU-"}, {"sleep", "60"}} {
		if err := d.LearnOrder(t.Context(), gpus, command...); err == nil {
			t.Errorf("%q: no error", command)
		}
	}
	if waited := time.Since(began); waited > 3*orderPatience {
		t.Errorf("waited for %v", waited)
	}
	if got := d.ResolveOrdinals(nil, gpus); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("ordinals %q, want unknown ones", got)
	}
	same := []ledger.GPU{{UUID: "GPU-a", Name: "A"}, {UUID: "GPU-b", Name: "A", Index: 1}}
	if err := d.LearnOrder(t.Context(), same, "/does/not/exist"); err != nil {
		t.Errorf("GPUs of one model need no order: %v", err)
	}
}

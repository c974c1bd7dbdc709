// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

func TestOrdinalsFollowCUDAVisibleDevices(t *testing.T) {
	gpus := []ledger.GPU{{UUID: "GPU-aa00"}, {UUID: "GPU-aa11"}, {UUID: "GPU-bb22"}}
	all := []string{"GPU-aa00", "GPU-aa11", "GPU-bb22"}
	const key = "CUDA_VISIBLE_DEVICES="
	for _, c := range []struct {
		environ []string
		want    []string
	}{
		{nil, all},
		{[]string{"PATH=/bin", "CUDA_VISIBLE_DEVICE=1"}, all},
		{[]string{key}, nil},
		{[]string{key + "1"}, []string{"GPU-aa11"}},
		{[]string{key + "2,0"}, []string{"GPU-bb22", "GPU-aa00"}},
		{[]string{key + " 2 , 0 "}, []string{"GPU-bb22", "GPU-aa00"}},
		{[]string{key + "0,-1,1"}, []string{"GPU-aa00"}},
		{[]string{key + "0,3,1"}, []string{"GPU-aa00"}},
		{[]string{key + "99999999999999999999"}, nil},
		{[]string{key + "NoDevFiles"}, nil},
		{[]string{key + "0,,1"}, []string{"GPU-aa00"}},
		{[]string{key + "0,0"}, nil},
		{[]string{key + "1gpu"}, []string{"GPU-aa11"}},
		{[]string{key + "GPU-bb22,GPU-aa00"}, []string{"GPU-bb22", "GPU-aa00"}},
		{[]string{key + "GPU-b"}, []string{"GPU-bb22"}},
		{[]string{key + "GPU-aa"}, nil},
		{[]string{key + "GPU-cc,0"}, nil},
		{[]string{key + "0,GPU-aa00"}, nil},
		{[]string{key + "1", key + "2"}, []string{"GPU-aa11"}},
	} {
		if got := Ordinals(c.environ, gpus); !slices.Equal(got, c.want) {
			t.Errorf("%q: got %q, want %q", c.environ, got, c.want)
		}
	}
	if got := Ordinals([]string{key + "0"}, nil); got != nil {
		t.Errorf("no GPUs: got %q", got)
	}
}

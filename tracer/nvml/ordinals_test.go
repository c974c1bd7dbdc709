// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"slices"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/tracer/ledger"
)

const pciOrder = "CUDA_DEVICE_ORDER=PCI_BUS_ID"

type ordinalsCase struct {
	about   string
	environ string // variables, separated by ";"; a list alone is CUDA_VISIBLE_DEVICES
	want    string
}

func checkOrdinals(t *testing.T, gpus []ledger.GPU, partitions map[string]partition, cases []ordinalsCase) {
	t.Helper()
	for _, c := range cases {
		var environ, want []string
		for v := range strings.SplitSeq(c.environ, ";") {
			if !strings.Contains(v, "=") {
				v = "CUDA_VISIBLE_DEVICES=" + v
			}
			environ = append(environ, v)
		}
		if c.want != "none" {
			want = strings.Split(c.want, " ")
			for i := range want {
				if want[i] == "?" {
					want[i] = ""
				}
			}
		}
		if got := ordinals(environ, gpus, partitions, nil); !slices.Equal(got, want) {
			t.Errorf("%s: %q: got %q, want %q", c.about, c.environ, got, want)
		}
	}
}

func alike() []ledger.GPU {
	return []ledger.GPU{
		{Index: 0, UUID: "GPU-aa00", Name: "A"}, {Index: 1, UUID: "GPU-aa11", Name: "A"}, {Index: 2, UUID: "GPU-bb22", Name: "A"},
	}
}

func TestOrdinalsFollowCUDAVisibleDevices(t *testing.T) {
	checkOrdinals(t, alike(), nil, []ordinalsCase{
		{"no variable", "PATH=/bin", "GPU-aa00 GPU-aa11 GPU-bb22"},
		{"similar name", "CUDA_VISIBLE_DEVICE=1", "GPU-aa00 GPU-aa11 GPU-bb22"},
		{"empty", "", "none"},
		{"one", "1", "GPU-aa11"},
		{"order", "2,0", "GPU-bb22 GPU-aa00"},
		{"order by PCI", "2,0;" + pciOrder, "GPU-bb22 GPU-aa00"},
		{"blanks", " 2 , 0 ", "GPU-bb22 GPU-aa00"},
		{"-1 hides what follows", "0,-1,1", "GPU-aa00"},
		{"-1 alone", "-1", "none"},
		{"too large", "0,3,1", "GPU-aa00"},
		{"much too large", "99999999999999999999", "none"},
		{"word", "NoDevFiles", "none"},
		{"word in between", "2,none,1", "GPU-bb22"},
		{"empty entry", "0,,1", "GPU-aa00"},
		{"repeated", "0,0", "none"},
		{"repeated as UUID", "0,GPU-aa00", "none"},
		{"digits first", "1gpu", "GPU-aa11"},
		{"plus", "+1", "GPU-aa11"},
		{"UUIDs", "GPU-bb22,GPU-aa00", "GPU-bb22 GPU-aa00"},
		{"beginning of a UUID", "GPU-b", "GPU-bb22"},
		{"capitals", "GPU-BB22", "GPU-bb22"},
		{"ambiguous beginning", "GPU-aa", "none"},
		{"more than a UUID", "GPU-aa00x", "none"},
		{"unknown UUID", "GPU-cc,0", "none"},
		{"mixed forms", "2,GPU-aa00", "GPU-bb22 GPU-aa00"},
		{"the first variable counts", "1;2", "GPU-aa11"},
		{"instance without MIG", "0,MIG-c0,1", "GPU-aa00"},
		{"instance by numbers without MIG", "0,MIG-GPU-aa00/1/0,1", "GPU-aa00"},
	})
	if got := ResolveOrdinals([]string{"CUDA_VISIBLE_DEVICES=0"}, nil); got != nil {
		t.Errorf("no GPUs: got %q", got)
	}
}

func TestOrdinalsOfDifferentModelsAreNotGuessed(t *testing.T) {
	gpus := alike()
	gpus[2].Name = "B"
	cases := []ordinalsCase{
		{"no variable", "PATH=/bin", "? ? ?"},
		{"number", "1", "?"},
		{"fastest first", "1;CUDA_DEVICE_ORDER=FASTEST_FIRST", "?"},
		{"another word", "1;CUDA_DEVICE_ORDER=pci_bus_id", "?"},
		{"UUIDs are certain", "GPU-bb22,0,GPU-aa00", "GPU-bb22 ? GPU-aa00"},
		{"two numbers repeat nothing", "1,0", "? ?"},
		{"too large", "0,3,GPU-aa00", "?"},
		{"by PCI all is known", "1,2;" + pciOrder, "GPU-aa11 GPU-bb22"},
		{"by PCI without a list", pciOrder, "GPU-aa00 GPU-aa11 GPU-bb22"},
	}
	checkOrdinals(t, gpus, nil, cases)
	for i := range gpus {
		gpus[i].Name = "" // a driver that does not report it
	}
	checkOrdinals(t, gpus, nil, cases)
	checkOrdinals(t, gpus[:1], nil, []ordinalsCase{{"the only GPU", "0", "GPU-aa00"}, {"the only GPU", "A=b", "GPU-aa00"}})
}

func TestOrdinalsAfterAMissingGPUAreNotGuessed(t *testing.T) {
	gpus := slices.Delete(alike(), 1, 2)
	checkOrdinals(t, gpus, nil, []ordinalsCase{
		{"no variable", "A=b", "GPU-aa00 ?"},
		{"before it", "0", "GPU-aa00"},
		{"it, and behind it", "0,1,2,GPU-bb22", "GPU-aa00 ? ? GPU-bb22"},
		{"too large", "2,3,0", "?"},
	})
}

// divided is a host whose GPUs 1 and 2 are in MIG mode.
func divided() ([]ledger.GPU, map[string]partition) {
	gpus := []ledger.GPU{
		{Index: 0, UUID: "GPU-aa00", Name: "A"},
		{Index: 1, UUID: "GPU-aa11", Name: "A"},
		{Index: 1, UUID: "MIG-c0", Parent: "GPU-aa11", Name: "A MIG 1g"}, {Index: 1, UUID: "MIG-c1", Parent: "GPU-aa11", Name: "A MIG 2g"},
		{Index: 2, UUID: "GPU-bb22", Name: "A"},
		{Index: 2, UUID: "MIG-d2", Parent: "GPU-bb22", Name: "A MIG 1g"},
	}
	return gpus, map[string]partition{
		"GPU-aa11": {divided: true}, "MIG-c0": {instance: instance{1, 0}}, "MIG-c1": {instance: instance{5, 0}},
		"GPU-bb22": {divided: true}, "MIG-d2": {instance: instance{1, 0}},
	}
}

func TestAProcessSeesOneMIGInstance(t *testing.T) {
	gpus, partitions := divided()
	cases := []ordinalsCase{
		{"no variable: the first instance, no whole GPU", "A=b", "MIG-c0"},
		{"empty", "", "none"},
		{"instance", "MIG-c1", "MIG-c1"},
		{"beginning of an instance", "MIG-d", "MIG-d2"},
		{"ambiguous beginning", "MIG-c", "none"},
		{"unknown instance", "MIG-e,0", "none"},
		{"two instances", "MIG-d2,MIG-c0", "MIG-d2"},
		{"whole GPU alone", "0", "GPU-aa00"},
		{"number of a GPU in MIG mode", "2", "MIG-d2"},
		{"UUID of a GPU in MIG mode", "GPU-aa11", "MIG-c0"},
		{"beside an instance no whole GPU", "0,MIG-c1", "MIG-c1"},
	}
	checkOrdinals(t, gpus, partitions, cases)
	checkOrdinals(t, gpus, nil, cases)
	checkOrdinals(t, gpus, partitions, []ordinalsCase{
		{"instance by its numbers", "MIG-GPU-aa11/5/0", "MIG-c1"},
		{"beginning of a GPU", "MIG-GPU-b/1/0", "MIG-d2"},
		{"no such instance", "MIG-GPU-aa11/2/0,0", "none"},
		{"no such compute instance", "MIG-GPU-aa11/5/1", "none"},
		{"numbers missing", "MIG-GPU-aa11/5", "none"},
		{"no numbers", "MIG-GPU-aa11/5/x", "none"},
	})
	checkOrdinals(t, gpus, nil, []ordinalsCase{{"unknown instance numbers", "MIG-GPU-aa11/5/0", "?"}})
}

func TestOldDriversNameInstancesByNumbers(t *testing.T) {
	gpus := []ledger.GPU{
		{UUID: "GPU-aa", Name: "A"},
		{UUID: "MIG-GPU-aa/1/0", Parent: "GPU-aa"}, {UUID: "MIG-GPU-aa/2/0", Parent: "GPU-aa"},
	}
	checkOrdinals(t, gpus, nil, []ordinalsCase{
		{"whole name", "MIG-GPU-aa/2/0", "MIG-GPU-aa/2/0"},
		{"no variable", "A=b", "MIG-GPU-aa/1/0"},
	})
}

func TestMIGAmongDifferentModelsIsNotGuessed(t *testing.T) {
	gpus, partitions := divided()
	gpus[0].Name = "B"
	checkOrdinals(t, gpus, partitions, []ordinalsCase{
		{"two divided GPUs", "A=b", "? ? ?"},
		{"a number may be an instance", "GPU-aa00,1", "? ?"},
		{"instances are certain", "MIG-d2,0", "MIG-d2"},
		{"by PCI", "1;" + pciOrder, "MIG-c0"},
	})
	checkOrdinals(t, gpus[:4], partitions, []ordinalsCase{
		{"the only divided GPU", "A=b", "MIG-c0"},
	})
}

func TestMIGModeWithoutInstancesLeavesOrdinalsUnknown(t *testing.T) {
	gpus := []ledger.GPU{{Index: 0, UUID: "GPU-aa00", Name: "A"}, {Index: 1, UUID: "GPU-aa11", Name: "A"}}
	partitions := map[string]partition{"GPU-aa00": {divided: true}}
	checkOrdinals(t, gpus, partitions, []ordinalsCase{
		{"no variable", "A=b", "? ?"},
		{"number", "1", "?"},
		{"UUID", "GPU-aa11", "GPU-aa11"},
	})
}

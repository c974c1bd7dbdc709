// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"testing"

	"github.com/vramprof/vramprof/internal/sums"
)

// Whatever a process tells of its GPUs, no export has more memory of them than NVML says.
func TestExportsAddUpToNoMoreThanNVMLSays(t *testing.T) {
	const usage = (735 + 365) * int64(mib)
	for told, devices := range map[string][]string{
		"right": {gpu0, gpu1}, "nothing": {}, "void": {"", ""}, "wrong": {"GPU-other", "GPU-another"}, "half": {gpu1, "GPU-other"},
	} {
		c := play(training(false), begin+10*second, CollectorOptions{})
		c.SetDevices(4242, devices)
		s := snapshot(c, begin+10*second)
		sums.Check(t, s)
		if got := profiled(t, s, "inuse_space"); got != usage {
			t.Errorf("%s: the profile has %d bytes, NVML %d", told, got, usage)
		}
		var file bytes.Buffer
		if err := Torch(&file, c, s, testStacks(), TorchOptions{}); err != nil {
			t.Fatal(err)
		}
		var sum int64
		for _, x := range view(t, file.Bytes()).segments {
			sum += x.size
		}
		if sum != usage {
			t.Errorf("%s: the snapshot for PyTorch has %d bytes, NVML %d", told, sum, usage)
		}
	}
}

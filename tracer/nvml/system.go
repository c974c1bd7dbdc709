// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package nvml

import (
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/vramprof/vramprof/tracer/ledger"
)

// maxNode is the largest number of a NUMA node that is plausible: the kernel has at most 1024.
const maxNode = 1023

// describeSystem reads how a whole GPU shares memory with the host. Drivers from 550 on have the
// call for the node; the call for the mode is newer than 555. A GPU that is no NUMA node answers
// that the call is not supported.
func (l *realLibrary) describeSystem(d gonvml.Device, gpu *ledger.GPU) {
	if l.has["nvmlDeviceGetAddressingMode"] {
		if mode, ret := d.GetAddressingMode(); ret == gonvml.SUCCESS {
			gpu.Addressing = addressingOf(gonvml.DeviceAddressingModeType(mode.Value))
		}
	}
	if gpu.Integrated {
		gpu.Total, gpu.Used = hostMemory()
		return // its node is the host's, where all memory of a process is
	}
	if l.has["nvmlDeviceGetNumaNodeId"] {
		if node, ret := d.GetNumaNodeId(); ret == gonvml.SUCCESS && node >= 0 && node <= maxNode {
			gpu.HasNode, gpu.Node = true, uint32(node)
		}
	}
}

func addressingOf(mode gonvml.DeviceAddressingModeType) ledger.Addressing {
	switch mode {
	case gonvml.DEVICE_ADDRESSING_MODE_NONE:
		return ledger.AddressingNone
	case gonvml.DEVICE_ADDRESSING_MODE_HMM:
		return ledger.AddressingHMM
	case gonvml.DEVICE_ADDRESSING_MODE_ATS:
		return ledger.AddressingATS
	}
	return ledger.AddressingUnknown
}

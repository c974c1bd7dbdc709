// SPDX-License-Identifier: Apache-2.0

package gpuprocs

import "path"

// Role is what a process is to the driver, by the program that it runs.
type Role int

// The roles. The name of a program is checked together with an open device file of the driver,
// except for the control daemon of MPS, which has none open.
const (
	Client     Role = iota // any other
	MPSServer              // owns the contexts of all clients of MPS
	MPSControl             // starts MPS servers; has no context
)

// The programs of MPS, as NVIDIA's driver installs them.
const (
	mpsServer  = "nvidia-cuda-mps-server"
	mpsControl = "nvidia-cuda-mps-control"
)

// roleOf names the role of a program.
func roleOf(exe string, opens bool) Role {
	switch base := path.Base(exe); {
	case base == mpsServer && opens:
		return MPSServer
	case base == mpsControl:
		return MPSControl
	}
	return Client
}

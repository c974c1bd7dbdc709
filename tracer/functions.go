// SPDX-License-Identifier: Apache-2.0

package tracer

import "github.com/vramprof/vramprof/tracer/ledger"

// Layer says which library a traced function belongs to.
type Layer uint8

const (
	Runtime Layer = iota // libcudart, or an executable that holds it
	Driver               // libcuda
)

// Role says what a traced function does to the books.
type Role uint8

const (
	Allocates Role = iota + 1
	Frees
	Initialises
)

// Function is one row of the probe table. Size and Pointer are positions of C
// arguments from 1; 0 means the function has none. Pointer is where an
// allocation stores the address, or the address that is freed.
type Function struct {
	Name    string
	Layer   Layer
	Role    Role
	Kind    ledger.Kind
	Size    uint8
	Pointer uint8
}

// Functions is the probe table. To trace one more CUDA function, add a row.
// Signatures: cuda.h and cuda_runtime_api.h of CUDA 12.4.
var Functions = []Function{
	{"cudaMalloc", Runtime, Allocates, ledger.Device, 2, 1},
	{"cudaMallocManaged", Runtime, Allocates, ledger.Managed, 2, 1},
	{"cudaMallocHost", Runtime, Allocates, ledger.Pinned, 2, 1},
	{"cudaHostAlloc", Runtime, Allocates, ledger.Pinned, 2, 1},
	{"cudaFree", Runtime, Frees, ledger.Device, 0, 1},
	{"cudaFreeHost", Runtime, Frees, ledger.Pinned, 0, 1},

	{"cuInit", Driver, Initialises, 0, 0, 0},
	{"cuMemAlloc_v2", Driver, Allocates, ledger.Device, 2, 1},
	{"cuMemAllocManaged", Driver, Allocates, ledger.Managed, 2, 1},
	{"cuMemAllocHost_v2", Driver, Allocates, ledger.Pinned, 2, 1},
	{"cuMemHostAlloc", Driver, Allocates, ledger.Pinned, 2, 1},
	{"cuMemFree_v2", Driver, Frees, ledger.Device, 0, 1},
	{"cuMemFreeHost", Driver, Frees, ledger.Pinned, 0, 1},
}

// cookie packs what the kernel half must know of a row: struct cookie of
// bpf/calls.h, little-endian.
func (f Function) cookie(id int) uint64 {
	return uint64(uint16(id)) | uint64(f.Role)<<16 | uint64(f.Layer)<<24 |
		uint64(f.Size)<<32 | uint64(f.Pointer)<<40
}

func names(layer Layer) []string {
	var list []string
	for _, f := range Functions {
		if f.Layer == layer {
			list = append(list, f.Name)
		}
	}
	return list
}

// function looks up an id that came from the kernel.
func function(id uint16) (Function, bool) {
	if int(id) >= len(Functions) {
		return Function{}, false
	}
	return Functions[id], true
}

// SPDX-License-Identifier: Apache-2.0

package cudaapi

import (
	"encoding/binary"
	"hash/fnv"
	"math/bits"
	"runtime"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Values of CUmemLocationType: 1 is a device, 2 to 4 are kinds of host memory, 5 (CUDA 13) is none,
// 6 (CUDA 13.4) is a part of a device. Of others, the device is unknown.
const (
	locationDevice   = 1
	locationHosts    = 4
	locationLocality = 6
)

// location reads a CUmemLocation. It returns the CUDA ordinal, or host for memory of the host. Of a
// locality domain, the ordinal is one byte, and the next one is the domain.
func location(b []byte) (device int32, host bool) {
	kind, id := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
	switch {
	case kind == locationDevice && id < maxOrdinal:
		return int32(id), false
	case kind == locationLocality:
		return int32(b[4]), false
	case kind > locationDevice && kind <= locationHosts:
		return ledger.UnknownDevice, true
	}
	return ledger.UnknownDevice, false
}

const maxOrdinal = 1 << 10

// digest returns a number that identifies a handle that several processes use; never 0.
func digest(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return max(h.Sum64(), 1)
}

func unknown(*bpf.Details, bool) uint64 { return ledger.UnknownSize }

func word(d *bpf.Details, _ bool) uint64 { return u64(d.Behind[:], 0) }

func u64(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
func u32(b []byte, at int) uint64 { return uint64(binary.LittleEndian.Uint32(b[at:])) }

// product multiplies. On overflow it returns ledger.UnknownSize, as no driver allocates such sizes.
func product(factors ...uint64) uint64 {
	p := uint64(1)
	for _, f := range factors {
		high, low := bits.Mul64(p, f)
		if high != 0 {
			return ledger.UnknownSize
		}
		p = low
	}
	return p
}

// pitched returns a Measure of the pitch that the driver chose times the height. For failed calls
// it is the requested width, in the argument before the height, times the height.
func pitched(width int) func(*bpf.Details, bool) uint64 {
	return func(d *bpf.Details, failed bool) uint64 {
		if failed {
			return product(d.Argument[width-1], d.Argument[width])
		}
		return product(u64(d.Behind[:], 0), d.Argument[width])
	}
}

func pitched32(width int) func(*bpf.Details, bool) uint64 {
	return func(d *bpf.Details, failed bool) uint64 {
		height := uint64(uint32(d.Argument[width]))
		if failed {
			return product(uint64(uint32(d.Argument[width-1])), height)
		}
		return product(u32(d.Behind[:], 0), height)
	}
}

// pitched3D measures with the pitch in a cudaPitchedPtr, and height and depth in a cudaExtent.
func pitched3D(d *bpf.Details, failed bool) uint64 {
	e := d.ByValue[:]
	wide := u64(d.Behind[:], 0)
	if failed {
		wide = u64(e, 0)
	}
	return product(wide, u64(e, 8), u64(e, 16))
}

// nodeSize reads CUDA_MEM_ALLOC_NODE_PARAMS.bytesize.
func nodeSize(d *bpf.Details, _ bool) uint64 { return u64(d.Behind[:], 104) }

// thresholdAttribute is CU_MEMPOOL_ATTR_RELEASE_THRESHOLD.
const thresholdAttribute = 4

// array is the contents of an array descriptor of any version.
type array struct {
	width, height, depth    uint64
	element                 uint64 // bytes; 0 if the format is unknown
	layered, withoutBacking bool
}

// CUDA_ARRAY3D_LAYERED, _SPARSE and _DEFERRED_MAPPING; cudaArrayLayered and so on have the same
// values.
const (
	flagLayered  = 0x01
	flagSparse   = 0x40
	flagDeferred = 0x80
)

func (a array) flagged(flags uint64) array {
	a.layered = flags&flagLayered != 0
	a.withoutBacking = flags&(flagSparse|flagDeferred) != 0
	return a
}

// bytes returns the size of all levels, without the driver's alignment. Each level has half the
// extent of the one before, at least 1.
func (a array) bytes(levels uint64) uint64 {
	if a.withoutBacking {
		return 0 // the program maps memory into it later, which is counted as its own kind
	}
	if a.element == 0 {
		return ledger.UnknownSize
	}
	w, h, d := a.width, max(a.height, 1), max(a.depth, 1)
	var sum uint64
	for range min(max(levels, 1), 64) {
		level := product(w, h, d, a.element)
		if level == ledger.UnknownSize || sum+level < sum {
			return ledger.UnknownSize
		}
		sum += level
		w, h = max(w/2, 1), max(h/2, 1)
		if !a.layered {
			d = max(d/2, 1)
		}
	}
	return sum
}

// formatBytes returns the size of a channel of a CUarray_format; 0 for formats without one number
// per channel (YUV and block-compressed).
func formatBytes(format uint64) uint64 {
	switch format {
	case 0x01, 0x08, 0xc0, 0xc1: // unsigned and signed 8 bits, normalized too
		return 1
	case 0x02, 0x09, 0x10: // 16 bits, half
		return 2
	case 0x03, 0x0a, 0x20: // 32 bits, float
		return 4
	}
	return 0
}

// array2D reads a CUDA_ARRAY_DESCRIPTOR: Width, Height, Format, NumChannels.
func array2D(d *bpf.Details, _ bool) uint64 {
	b := d.Behind[:]
	return array{width: u64(b, 0), height: u64(b, 8), element: formatBytes(u32(b, 16)) * u32(b, 20)}.bytes(1)
}

func array2D32(d *bpf.Details, _ bool) uint64 {
	b := d.Behind[:]
	return array{width: u32(b, 0), height: u32(b, 4), element: formatBytes(u32(b, 8)) * u32(b, 12)}.bytes(1)
}

// descriptor3D reads a CUDA_ARRAY3D_DESCRIPTOR: Width, Height, Depth, Format, NumChannels, Flags.
func descriptor3D(d *bpf.Details) array {
	b := d.Behind[:]
	return array{width: u64(b, 0), height: u64(b, 8), depth: u64(b, 16), element: formatBytes(u32(b, 24)) * u32(b, 28)}.flagged(u32(b, 32))
}

func array3D(d *bpf.Details, _ bool) uint64 { return descriptor3D(d).bytes(1) }

func array3D32(d *bpf.Details, _ bool) uint64 {
	b := d.Behind[:]
	return array{width: u32(b, 0), height: u32(b, 4), depth: u32(b, 8), element: formatBytes(u32(b, 12)) * u32(b, 16)}.flagged(u32(b, 20)).bytes(1)
}

func mipmap(d *bpf.Details, _ bool) uint64 {
	return descriptor3D(d).bytes(uint64(uint32(d.Argument[2])))
}

// channels returns the element size in a cudaChannelFormatDesc: bits of x, y, z, w, then the kind.
func channels(b []byte) uint64 {
	var sum uint64
	for i := range 4 {
		if n := u32(b, 4*i); n > 0 && n <= 32 {
			sum += n
		}
	}
	return sum / 8
}

func runtimeArray(d *bpf.Details, _ bool) uint64 {
	return array{width: d.Argument[2], height: d.Argument[3], element: channels(d.Behind[:])}.flagged(d.Argument[4]).bytes(1)
}

// after returns an argument after a structure passed by value: on arm64 the structure is a pointer
// with a position of its own.
func after(d *bpf.Details, position int) uint64 {
	if runtime.GOARCH == "arm64" {
		position++
	}
	return uint64(uint32(d.Argument[position-1]))
}

func runtimeExtent(d *bpf.Details, flags uint64) array {
	e := d.ByValue[:]
	return array{width: u64(e, 0), height: u64(e, 8), depth: u64(e, 16), element: channels(d.Behind[:])}.flagged(flags)
}

func runtimeArray3D(d *bpf.Details, _ bool) uint64 { return runtimeExtent(d, after(d, 3)).bytes(1) }

func runtimeMipmap(d *bpf.Details, _ bool) uint64 {
	return runtimeExtent(d, after(d, 4)).bytes(after(d, 3))
}

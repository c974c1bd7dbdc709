// SPDX-License-Identifier: Apache-2.0

// Package cudaapi contains the probe table: one row for each traced function of CUDA's libraries,
// with its effect on the ledger. The kernel half reads the operands that a row names, and Translate
// turns its event into a ledger.Event.
//
// The package consists of tables and pure functions. Any goroutine may use them.
package cudaapi

import (
	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Layer is the library of a traced function.
type Layer uint8

const (
	Runtime = Layer(bpf.LayerRuntime) // libcudart, or an executable that contains it
	Driver  = Layer(bpf.LayerDriver)  // libcuda
	Torch   = Driver + 1              // PyTorch's libc10, which has no rows in the probe table
	System  = Layer(bpf.LayerSystem)  // ioctl, and functions that show why libcuda calls it
	NCCL    = System + 1              // libnccl, whose calls of other libraries are probed where it makes them
)

// Role is the moment at which a traced function reports.
type Role uint8

const (
	Allocates   = Role(bpf.RoleAlloc)   // on return, with the stack of the entry; also on failure
	Frees       = Role(bpf.RoleFree)    // on entry, before another call can reuse the address; also on failure
	Reports     = Role(bpf.RoleCall)    // on success, with the stack of the entry if the row has Stack
	Switches    = Role(bpf.RoleQuiet)   // never: the kernel half tracks the current context
	Initializes = Role(bpf.RoleInit)    // on entry, so that its process is scanned
	Requests    = Role(bpf.RoleRequest) // for a request to the kernel driver: on return if it takes memory, on entry if it frees
)

// Effect is the effect of a successful call on the current context and device of its thread, which
// the kernel half tracks.
type Effect uint8

const (
	setsContext     = Effect(bpf.EffectSetContext)
	pushesContext   = Effect(bpf.EffectPushContext)
	popsContext     = Effect(bpf.EffectPopContext)
	createsContext  = Effect(bpf.EffectCreateContext)
	retainsContext  = Effect(bpf.EffectRetainContext)
	destroysContext = Effect(bpf.EffectDestroyContext)
	setsDevice      = Effect(bpf.EffectSetDevice)
	learnsContext   = Effect(bpf.EffectLearnContext)
	learnsDevice    = Effect(bpf.EffectLearnDevice)
	derivesContext  = Effect(bpf.EffectDeriveContext)
	beginsCapture   = Effect(bpf.EffectBeginCapture)
	endsCapture     = Effect(bpf.EffectEndCapture)
)

// Function is one row of the probe table. Arguments have their positions in C, from 1, without
// structures passed by value; 0 means that there is none.
type Function struct {
	Name    string
	Layer   Layer
	Role    Role
	Op      ledger.Op    // for the ledger; 0: Alloc or Free
	Kind    ledger.Kind  // of the allocation
	Space   ledger.Space // of the address
	Address operand
	Size    uint8
	Narrow  bool  // arguments have 32 bits
	Handle  uint8 // pool, physical memory or green context
	Device  uint8 // CUDA ordinal; a row has a Handle or a Device, not both
	Effect  Effect
	Stack   bool  // with Reports: take the stack of the entry too
	Stream  uint8 // the stream of a stream-ordered allocation

	// Values in structures:
	ByValue  byValue
	Behind   behind
	Measure  func(d *bpf.Details, failed bool) (bytes uint64) // instead of Size
	Location inside                                           // offset in Behind of a CUmemLocation: type, then ordinal
	Refine   func(e *ledger.Event, d *bpf.Details)            // reads other values; d is nil if the structures could not be read
	Shares   bool                                             // ByValue or Behind is a handle that several processes use

	Brief bool // probed only for a moment, to learn the current device, because it is called often
}

// operand locates an address: argument Position or, with Width 4 or 8, that many bytes at the
// pointer in this argument plus Offset.
type operand struct{ Position, Width, Offset uint8 }

func in(position uint8) operand            { return operand{Position: position} }
func out(position uint8) operand           { return operand{Position: position, Width: 8} }
func out32(position uint8) operand         { return operand{Position: position, Width: 4} }
func field(position, offset uint8) operand { return operand{position, 8, offset} }

// byValue is a structure of more than 16 bytes passed by value: on the stack on x86-64, through a
// pointer at Position on arm64.
type byValue struct{ Position, Size uint8 }

// behind is Size bytes at the pointer in argument Position plus Offset.
type behind struct{ Position, Offset, Size uint8 }

// inside is 1 plus an offset in Behind; 0: none.
type inside uint8

func at(offset uint8) inside { return inside(offset + 1) }

func (i inside) of(d *bpf.Details) []byte { return d.Behind[i-1:] }

// KernelRow returns the row in the format of the kernel half.
func (f *Function) KernelRow() bpf.Function {
	r := bpf.Function{
		Role: uint8(f.Role), Layer: uint8(f.Layer), Effect: uint8(f.Effect), Size: f.Size,
		Address: f.Address.Position, AddressWidth: f.Address.Width, AddressOffset: f.Address.Offset,
		Extra:   f.Handle | f.Device,
		ByValue: f.ByValue.Position, ByValueSize: f.ByValue.Size,
		Behind: f.Behind.Position, BehindOffset: f.Behind.Offset, BehindSize: f.Behind.Size,
		Stream: f.Stream,
		Object: boolean(f.IsObject()),
	}
	switch f.Op {
	case ledger.ContextDestroy, ledger.ContextRelease, ledger.ContextReset, ledger.PoolDestroy, ledger.ObjectEnd, ledger.GreenDestroy:
		r.AtEntry = 1 // before the return, another call may reuse the handle
	}
	if f.WantsDetails() {
		r.Details = 1
	}
	return r
}

// WantsDetails reports whether structures or further arguments follow the event.
func (f *Function) WantsDetails() bool {
	return f.ByValue.Size|f.Behind.Size != 0 || f.Measure != nil
}

// IsWrapper reports whether the function, if it succeeds, does no more for the books than the
// driver function that it calls.
func (f *Function) IsWrapper() bool {
	return f.Layer == Runtime && (f.Role == Allocates || f.Role == Frees) && f.Effect == 0
}

// IsObject reports whether the function creates a driver object and no memory.
func (f *Function) IsObject() bool { return f.Kind.IsObject() || f.Op == ledger.ContextRetain }

func boolean(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// TakesStack reports whether the entry probe of the function takes the stack.
func (f *Function) TakesStack() bool { return f.Role == Allocates || f.Stack }

// Names lists the functions of a layer that are probed permanently or, with brief, for a moment.
func Names(layer Layer, brief bool) []string {
	var list []string
	for i := range Table {
		if f := &Table[i]; f.Layer == layer && f.Brief == brief {
			list = append(list, f.Name)
		}
	}
	return list
}

// ByID returns the row with an id that the kernel half sent, or nil.
func ByID(id uint8) *Function {
	if int(id) >= len(Table) {
		return nil
	}
	return &Table[id]
}

// IsCUDA reports whether a library is the runtime or the driver.
func (l Layer) IsCUDA() bool { return l == Runtime || l == Driver }

// MakesThread is the id of the function in whose calls a library creates threads for itself.
var MakesThread = func() uint8 { id, _ := Named("pthread_create", NCCL); return uint8(id) }()

// Named returns the id and the row of a function. It panics if there is none.
func Named(name string, layer Layer) (int, *Function) {
	for id := range Table {
		if f := &Table[id]; f.Name == name && f.Layer == layer {
			return id, f
		}
	}
	panic("functions: no row for " + name)
}

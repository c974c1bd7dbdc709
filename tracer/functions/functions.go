// SPDX-License-Identifier: Apache-2.0

// Package functions is the probe table: the functions of CUDA's libraries that are probed, a row
// each, with what a call of them means to the ledger. It adds nothing of its own to a call: the
// kernel half reads the row's operands, and Translate turns what it read into a ledger.Event.
//
// Everything here is a table or a pure function, which any goroutine may use at any time.
package functions

import (
	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Layer says which library a traced function belongs to.
type Layer uint8

const (
	Runtime = Layer(bpf.LayerRuntime) // libcudart, or an executable that holds it
	Driver  = Layer(bpf.LayerDriver)  // libcuda
	Torch   = Driver + 1              // libc10, PyTorch's: the probe table has no row of it
)

// Role says when a traced function reports.
type Role uint8

const (
	Allocates   = Role(bpf.RoleAlloc) // on return, with the stack of its entry; failures too
	Frees       = Role(bpf.RoleFree)  // on entry, before others can get what it frees; failures too
	Reports     = Role(bpf.RoleCall)  // on return with success; with the stack of its entry where the row has Stack
	Switches    = Role(bpf.RoleQuiet) // never: the kernel half follows which context is current
	Initialises = Role(bpf.RoleInit)  // on entry, to have its process looked at
)

// Effect is what a successful call does to the context and device that are
// current in its thread; the kernel half follows them.
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

// Function is one row of the probe table. Arguments are named by their C
// positions from 1, without a structure that is passed by value; 0 means that there is none.
type Function struct {
	Name    string
	Layer   Layer
	Role    Role
	Op      ledger.Op    // for the books; 0: Alloc or Free
	Kind    ledger.Kind  // of what it allocates
	Space   ledger.Space // of the address
	Address operand
	Size    uint8
	Narrow  bool  // arguments have 32 bits
	Handle  uint8 // pool, physical memory or green context
	Device  uint8 // ordinal; of Handle and Device a row has one
	Effect  Effect
	Stack   bool  // of Reports: the stack of its entry is taken, too
	Stream  uint8 // in whose order it allocates

	// For what stands in structures:
	ByValue  byValue
	Behind   behind
	Measure  func(d *bpf.Details, failed bool) (bytes uint64) // instead of Size
	Location inside                                           // where in Behind a CUmemLocation is: type, then ordinal
	Refine   func(e *ledger.Event, d *bpf.Details)            // what else they say; d is nil where they could not be read
	Shares   bool                                             // ByValue or Behind is a handle that processes share

	Brief bool // probed for a moment only, to learn what is current: called too often to stay
}

// operand says where an address is: in argument Position itself or, with Width 4
// or 8, in as many bytes that it points to, Offset bytes on.
type operand struct{ Position, Width, Offset uint8 }

func in(position uint8) operand            { return operand{Position: position} }
func out(position uint8) operand           { return operand{Position: position, Width: 8} }
func out32(position uint8) operand         { return operand{Position: position, Width: 4} }
func field(position, offset uint8) operand { return operand{position, 8, offset} }

// byValue is a structure of more than 16 bytes passed by value: on the stack on
// x86-64, behind a pointer at Position on arm64.
type byValue struct{ Position, Size uint8 }

// behind is what argument Position points to: Size bytes, Offset bytes on.
type behind struct{ Position, Offset, Size uint8 }

// inside is 1 + an offset in Behind; 0: nowhere.
type inside uint8

func at(offset uint8) inside { return inside(offset + 1) }

func (i inside) of(d *bpf.Details) []byte { return d.Behind[i-1:] }

// KernelRow gives what the kernel half must know.
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
		r.AtEntry = 1 // what it ends may be handed out again before it returns
	}
	if f.WantsDetails() {
		r.Details = 1
	}
	return r
}

// WantsDetails says whether structures or further arguments follow the event.
func (f *Function) WantsDetails() bool {
	return f.ByValue.Size|f.Behind.Size != 0 || f.Measure != nil
}

// IsObject says whether it makes a driver object, and no memory.
func (f *Function) IsObject() bool { return f.Kind.IsObject() || f.Op == ledger.ContextRetain }

func boolean(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// TakesStack says whether the function is entered by the program that takes stacks.
func (f *Function) TakesStack() bool { return f.Role == Allocates || f.Stack }

// Names lists the functions of a layer that are probed for good, or briefly.
func Names(layer Layer, brief bool) []string {
	var list []string
	for i := range Table {
		if f := &Table[i]; f.Layer == layer && f.Brief == brief {
			list = append(list, f.Name)
		}
	}
	return list
}

// ByID looks up an id that came from the kernel.
func ByID(id uint8) *Function {
	if int(id) >= len(Table) {
		return nil
	}
	return &Table[id]
}

// Named returns the id and the row of a function of the table; it panics where there is none.
func Named(name string, layer Layer) (int, *Function) {
	for id := range Table {
		if f := &Table[id]; f.Name == name && f.Layer == layer {
			return id, f
		}
	}
	panic("functions: no row for " + name)
}

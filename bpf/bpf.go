// SPDX-License-Identifier: Apache-2.0

// Package bpf is the kernel half of vramprof: its objects for amd64 and arm64,
// and the wire format in which they report. The C sources and the objects are
// GPL-2.0-only, since they include the unwinder's headers.
package bpf

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

//go:generate sh gen.sh

// Types and constants shared with the C half, copied from its BTF.
type (
	Event      = probeEvent
	Kind       = uint8 // of an event
	Details    = probeDetails
	ContextKey = probeContextKey
	StreamKey  = probeStreamKey
	TensorKey  = probeTensorKey
	// TensorDevice is what the allocator of a process has on one device.
	TensorDevice = probeTensorDevice
	// NearBlocks are live blocks of one allocator on a GPU.
	NearBlocks  = probeNearBlocks
	SampleClass = probeSampleClass
	// Share is what a process has of what all share.
	Share      = probeShare
	Function   = probeFunction
	Process    = probeProcess
	MappedFile = processMappedFile
	// MappedCode is a record of process_code.
	MappedCode = processMappedCode
	// Code is a part of a file that is mapped as code, CodeKey where: see bpf/find_code.h.
	Code    = findCode
	CodeKey = findCodeKey
)

const (
	KindAlloc       = Kind(probeEventKindEVENT_ALLOC)
	KindAllocFailed = Kind(probeEventKindEVENT_ALLOC_FAILED)
	KindFree        = Kind(probeEventKindEVENT_FREE)
	KindFreeFailed  = Kind(probeEventKindEVENT_FREE_FAILED)
	KindCall        = Kind(probeEventKindEVENT_CALL)
	KindAllocator   = Kind(probeEventKindEVENT_ALLOCATOR)
	KindBlock       = Kind(probeEventKindEVENT_BLOCK)
	KindBlockFree   = Kind(probeEventKindEVENT_BLOCK_FREE)
	KindBlockFailed = Kind(probeEventKindEVENT_BLOCK_FAILED)
	KindTotals      = Kind(probeEventKindEVENT_TOTALS)
	KindLearned     = Kind(probeEventKindEVENT_LEARNED)
	KindInit        = Kind(probeEventKindEVENT_INIT)
	KindTables      = Kind(probeEventKindEVENT_TABLES)
	KindHeld        = Kind(probeEventKindEVENT_HELD)
	KindExec        = Kind(probeEventKindEVENT_EXEC)
	KindExit        = Kind(probeEventKindEVENT_EXIT)

	FlagNoTables  = uint8(probeEventFlagFLAG_NO_TABLES)
	FlagNoDetails = uint8(probeEventFlagFLAG_NO_DETAILS)
	FlagTotals    = uint8(probeEventFlagFLAG_TOTALS)

	FlagCaptured      = uint8(probeEventFlagFLAG_CAPTURED)
	FlagBesideCapture = uint8(probeEventFlagFLAG_BESIDE_CAPTURE)

	RoleAlloc = uint8(probeRoleROLE_ALLOC)
	RoleFree  = uint8(probeRoleROLE_FREE)
	RoleCall  = uint8(probeRoleROLE_CALL)
	RoleQuiet = uint8(probeRoleROLE_QUIET)
	RoleInit  = uint8(probeRoleROLE_INIT)

	EffectSetContext     = uint8(probeEffectEFFECT_SET_CONTEXT)
	EffectPushContext    = uint8(probeEffectEFFECT_PUSH_CONTEXT)
	EffectPopContext     = uint8(probeEffectEFFECT_POP_CONTEXT)
	EffectCreateContext  = uint8(probeEffectEFFECT_CREATE_CONTEXT)
	EffectRetainContext  = uint8(probeEffectEFFECT_RETAIN_CONTEXT)
	EffectDestroyContext = uint8(probeEffectEFFECT_DESTROY_CONTEXT)
	EffectSetDevice      = uint8(probeEffectEFFECT_SET_DEVICE)
	EffectLearnContext   = uint8(probeEffectEFFECT_LEARN_CONTEXT)
	EffectLearnDevice    = uint8(probeEffectEFFECT_LEARN_DEVICE)
	EffectDeriveContext  = uint8(probeEffectEFFECT_DERIVE_CONTEXT)
	EffectBeginCapture   = uint8(probeEffectEFFECT_BEGIN_CAPTURE)
	EffectEndCapture     = uint8(probeEffectEFFECT_END_CAPTURE)

	// SampleAlways is the threshold of size classes whose blocks are all sampled.
	SampleAlways = 1<<32 - 1
	// SampleWindow is how many ns an allocator's budget of samples is for.
	SampleWindow = 100 * 1000 * 1000
	// BlockWithTotals and BlockWithoutTotals are attach cookies of block_reported.
	BlockWithTotals    = 5
	BlockWithoutTotals = 3
	// SizeClasses is the number of size classes of blocks.
	SizeClasses = 128
	// NoNumber is that of an allocator which is just begun.
	NoNumber = 1<<32 - 1
	// MaxGPUAllocators is how many numbers allocators on GPUs have; those on the host have the next ones.
	MaxGPUAllocators = 2048

	// TableBlocks is the index in the map "tables" of the map of all blocks.
	TableBlocks = 1

	// MaxFunctions is how many rows the probe table can have.
	MaxFunctions = 256

	CounterEventLost   = uint32(probeCounterCOUNTER_EVENT_LOST)
	CounterStackLost   = uint32(probeCounterCOUNTER_STACK_LOST)
	CounterThreadsFull = uint32(probeCounterCOUNTER_THREADS_FULL)
	CounterTooDeep     = uint32(probeCounterCOUNTER_TOO_DEEP)
	CounterUnreadable  = uint32(probeCounterCOUNTER_UNREADABLE)
	CounterStacks      = uint32(probeCounterCOUNTER_STACKS)
	CounterNoTables    = uint32(probeCounterCOUNTER_NO_TABLES)
	CounterTorn        = uint32(probeCounterCOUNTER_TORN)
	CounterChainBroken = uint32(probeCounterCOUNTER_CHAIN_BROKEN)
	CounterNotFollowed = uint32(probeCounterCOUNTER_NOT_FOLLOWED)
	CounterNotHeld     = uint32(probeCounterCOUNTER_NOT_HELD)
	CounterCount       = int(probeCounterCOUNTER_COUNT)
)

// ErrShort says that a record is too short to be what it should be.
var ErrShort = errors.New("record too short")

// DecodeEvent reads one record of the events ring. The result points into raw
// and is valid as long as raw is. raw must be aligned to 8 bytes, as the ring's
// records are.
func DecodeEvent(raw []byte) (*Event, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(Event{}) {
		return nil, fmt.Errorf("event of %d bytes: %w", len(raw), ErrShort)
	}
	return (*Event)(unsafe.Pointer(unsafe.SliceData(raw))), nil
}

// Halvings says, of KindBlock, how often the probability of blocks like it to be sampled was halved.
func (e *probeEvent) Halvings() uint8 { return e.Function }

// DecodeDetails gives what follows the event in a record of the events ring,
// nil if nothing does. It is valid as long as raw is.
func DecodeDetails(raw []byte) *Details {
	size := unsafe.Sizeof(Event{})
	if uintptr(len(raw)) < size+unsafe.Sizeof(Details{}) {
		return nil
	}
	return (*Details)(unsafe.Pointer(&raw[size]))
}

// DecodeMappedFile reads the next record of the mapped_files iterator and
// returns the bytes behind it.
func DecodeMappedFile(raw []byte) (*MappedFile, []byte, error) {
	size := int(unsafe.Sizeof(MappedFile{}))
	if len(raw) < size {
		return nil, nil, fmt.Errorf("mapped file of %d bytes: %w", len(raw), ErrShort)
	}
	record := *(*MappedFile)(unsafe.Pointer(unsafe.SliceData(raw)))
	return &record, raw[size:], nil
}

// DecodeMappedCode reads the records of the process_code iterator, and the layout behind them; 0 without one.
func DecodeMappedCode(raw []byte) (list []MappedCode, layout uint64, err error) {
	size := int(unsafe.Sizeof(MappedCode{}))
	for ; len(raw) >= size; raw = raw[size:] {
		record := *(*MappedCode)(unsafe.Pointer(unsafe.SliceData(raw)))
		if record.Inode == 0 {
			return list, record.Start, nil
		}
		list = append(list, record)
	}
	if len(raw) > 0 {
		return nil, 0, fmt.Errorf("mapped code of %d bytes: %w", len(raw), ErrShort)
	}
	return list, 0, nil
}

// CanGuard says whether the kernel lets programs disable preemption
// (bpf_preempt_disable, Linux 6.10). Without it, on Linux 6.13 and later with
// preemption, programs can lose data; older kernels do not need it.
func CanGuard(kernel *btf.Spec) bool {
	var f *btf.Func
	return kernel.TypeByName("bpf_preempt_disable", &f) == nil
}

// Cookies says whether the kernel's probes can bear a number of ours
// (bpf_get_attach_cookie, Linux 5.15).
func Cookies(kernel *btf.Spec) bool {
	var helpers *btf.Enum
	return kernel.TypeByName("bpf_func_id", &helpers) == nil && slices.ContainsFunc(helpers.Values,
		func(v btf.EnumValue) bool { return v.Name == "BPF_FUNC_get_attach_cookie" })
}

// GrowingMaps says whether a hash map that a uprobe program changes may take its memory
// as it fills (Linux 6.1). To load a program with such a map makes older kernels warn.
func GrowingMaps(kernel *btf.Spec) bool {
	var s *btf.Struct
	return kernel.TypeByName("bpf_mem_alloc", &s) == nil
}

// entriesOnOlder is how much room growing maps have where GrowingMaps is not: 47 MiB.
var entriesOnOlder = map[string]uint32{"blocks": 1 << 19, "tensor_devices": 256, "host_tensor_devices": 1024, "shares": 8192}

// reserve lets the growing maps of spec take their memory from the beginning if the kernel needs that.
func reserve(spec *ebpf.CollectionSpec, kernel *btf.Spec) {
	if GrowingMaps(kernel) {
		return
	}
	for name, entries := range entriesOnOlder {
		if m := spec.Maps[name]; m != nil {
			m.Flags &^= unix.BPF_F_NO_PREALLOC
			m.MaxEntries = entries
		}
	}
}

// LoadProbes returns the programs of the traced functions that suit the kernel: where it
// can guard them against preemption they are, and where it has no Cookies they look into the map "cookie" for them.
func LoadProbes(kernel *btf.Spec) (*ebpf.CollectionSpec, error) {
	load := loadProbe
	switch {
	case CanGuard(kernel):
		load = loadGuarded
	case !Cookies(kernel):
		load = loadOlder
	}
	spec, err := load()
	if err != nil {
		return nil, err
	}
	reserve(spec, kernel)
	return spec, nil
}

// LoadWalk returns the unwinder's steps that suit the kernel, to be bound to the unwinder's maps.
func LoadWalk(kernel *btf.Spec) (*ebpf.CollectionSpec, error) {
	if CanGuard(kernel) { // as the programs of LoadProbes
		return loadFind()
	}
	return loadWalk()
}

func mappingIterator(kernel *btf.Spec) bool {
	var context *btf.Struct
	return kernel.TypeByName("bpf_iter__task_vma", &context) == nil
}

// LoadProcess returns the programs that watch processes, without mapped_files and process_code where the
// kernel has no iterator over mappings (before Linux 5.12).
func LoadProcess(kernel *btf.Spec) (*ebpf.CollectionSpec, error) {
	spec, err := loadProcess()
	if err != nil {
		return nil, err
	}
	if !mappingIterator(kernel) {
		delete(spec.Programs, "mapped_files")
		delete(spec.Programs, "process_code")
	}
	reserve(spec, kernel)
	return spec, nil
}

// LiftMemlock lets this process, and its later children, lock any amount of memory where maps and programs
// count against that limit: before Linux 5.11. It returns the limit as it was, nil where it stays.
func LiftMemlock(kernel *btf.Spec) (*unix.Rlimit, error) {
	if mappingIterator(kernel) { // 5.12; no type tells of 5.11
		return nil, nil
	}
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		return nil, fmt.Errorf("read the limit of locked memory: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}); err != nil {
		return nil, fmt.Errorf("lift the limit of locked memory, which this old kernel counts maps against (CAP_SYS_RESOURCE is needed): %w", err)
	}
	return &before, nil
}

// SPDX-License-Identifier: Apache-2.0

package bpf

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

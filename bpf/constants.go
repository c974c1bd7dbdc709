// SPDX-License-Identifier: Apache-2.0

package bpf

// Constants shared with the C half, copied from its BTF.
const (
	// Kinds of events.
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
	// Details of PyTorch's blocks.
	KindBlockDetails   = Kind(probeEventKindEVENT_BLOCK_DETAILS)
	KindBlockCompleted = Kind(probeEventKindEVENT_BLOCK_COMPLETED)
	KindBlockOlder     = Kind(probeEventKindEVENT_BLOCK_OLDER)
	KindInit           = Kind(probeEventKindEVENT_INIT)
	KindTables         = Kind(probeEventKindEVENT_TABLES)
	KindHeld           = Kind(probeEventKindEVENT_HELD)
	KindExec           = Kind(probeEventKindEVENT_EXEC)
	KindExit           = Kind(probeEventKindEVENT_EXIT)

	// Flags of events.
	FlagNoTables      = uint8(probeEventFlagFLAG_NO_TABLES)
	FlagTruncated     = uint8(probeEventFlagFLAG_TRUNCATED)
	FlagNoDetails     = uint8(probeEventFlagFLAG_NO_DETAILS)
	FlagTotals        = uint8(probeEventFlagFLAG_TOTALS)
	FlagCaptured      = uint8(probeEventFlagFLAG_CAPTURED)
	FlagBesideCapture = uint8(probeEventFlagFLAG_BESIDE_CAPTURE)
	FlagWaits         = uint8(probeEventFlagFLAG_WAITS)

	// Roles of traced functions: when they report.
	RoleAlloc   = uint8(probeRoleROLE_ALLOC)
	RoleFree    = uint8(probeRoleROLE_FREE)
	RoleCall    = uint8(probeRoleROLE_CALL)
	RoleQuiet   = uint8(probeRoleROLE_QUIET)
	RoleInit    = uint8(probeRoleROLE_INIT)
	RoleRequest = uint8(probeRoleROLE_REQUEST)

	// Effects of calls on the thread's current context and device.
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

	// Layers of traced functions.
	LayerRuntime = uint8(probeLayerLAYER_RUNTIME)
	LayerDriver  = uint8(probeLayerLAYER_DRIVER)
	LayerSystem  = uint8(probeLayerLAYER_SYSTEM)

	// SentSets and SentWays are the size of the map "stacks".
	SentSets = int(probeSentStacksSizeSENT_SETS)
	SentWays = int(probeSentStacksSizeSENT_WAYS)

	// MaxFunctions is how many rows the probe table can have.
	MaxFunctions = int(probeFunctionLimitMAX_FUNCTIONS)

	// WrapperShift is the position of a wrapper's index in an attach cookie.
	WrapperShift = int(probeWrapperLimitWRAPPER_SHIFT)

	// OutOfMemory is CUDA_ERROR_OUT_OF_MEMORY and cudaErrorMemoryAllocation.
	OutOfMemory = int32(probeCudaResultCUDA_OUT_OF_MEMORY)

	// DeviceCPU and DeviceCUDA are values of c10::DeviceType.
	DeviceCPU  = int(probeDeviceTypeDEVICE_CPU)
	DeviceCUDA = int(probeDeviceTypeDEVICE_CUDA)

	// MaxGPUAllocators is how many numbers allocators on GPUs have. Allocators on the host have the
	// next ones.
	MaxGPUAllocators = uint32(probeAllocatorNumberMAX_GPU_ALLOCATORS)
	// NoNumber is the number of an allocator whose entry was just created.
	NoNumber = uint32(probeAllocatorNumberNO_NUMBER)

	// SizeClasses is the number of size classes of blocks.
	SizeClasses = int(probeSizeClassCountSIZE_CLASSES)

	// SampleAlways is the threshold of size classes whose blocks are all sampled.
	SampleAlways = uint32(probeSamplingSAMPLE_ALWAYS)
	// SampleWindow is the length of the window of an allocator's sample budget, in ns.
	SampleWindow = uint64(probeSamplingSAMPLE_WINDOW_NS)
	// SavedWindows is how many windows of unused budget an allocator keeps.
	SavedWindows = uint64(probeSamplingSAVED_WINDOWS)

	// BlockWithTotals and BlockWithoutTotals are attach cookies of block_reported.
	BlockWithTotals    = uint64(probeBlockCookieBLOCK_WITH_TOTALS)
	BlockWithoutTotals = uint64(probeBlockCookieBLOCK_WITHOUT_TOTALS)
	// BlockApart and BlockAlways are added to them: for links of single processes, and for those
	// that always count.
	BlockApart  = uint64(probeBlockCookieBLOCK_APART)
	BlockAlways = uint64(probeBlockCookieBLOCK_ALWAYS)

	// TableBlocks is the index in the map "tables" of the map of all blocks.
	TableBlocks = uint32(probeTableTABLE_BLOCKS)

	// Indexes of the map "counters".
	CounterEventLost    = uint32(probeCounterCOUNTER_EVENT_LOST)
	CounterEventRefused = uint32(probeCounterCOUNTER_EVENT_REFUSED)
	CounterStackLost    = uint32(probeCounterCOUNTER_STACK_LOST)
	CounterTableFull    = uint32(probeCounterCOUNTER_TABLE_FULL)
	CounterNoMemory     = uint32(probeCounterCOUNTER_NO_MEMORY)
	CounterTooDeep      = uint32(probeCounterCOUNTER_TOO_DEEP)
	CounterUnreadable   = uint32(probeCounterCOUNTER_UNREADABLE)
	CounterNotNoted     = uint32(probeCounterCOUNTER_NOT_NOTED)
	CounterStacks       = uint32(probeCounterCOUNTER_STACKS)
	CounterNoTables     = uint32(probeCounterCOUNTER_NO_TABLES)
	CounterTorn         = uint32(probeCounterCOUNTER_TORN)
	CounterChainBroken  = uint32(probeCounterCOUNTER_CHAIN_BROKEN)
	CounterNotFollowed  = uint32(probeCounterCOUNTER_NOT_FOLLOWED)
	CounterNotHeld      = uint32(probeCounterCOUNTER_NOT_HELD)
	CounterCount        = int(probeCounterCOUNTER_COUNT)

	// Error codes with which the unwinder ends a walk.
	WalkStackLengthExceeded            = uint32(probeWalkErrorWALK_STACK_LENGTH_EXCEEDED)
	WalkEmptyStack                     = uint32(probeWalkErrorWALK_EMPTY_STACK)
	WalkMaxTailCalls                   = uint32(probeWalkErrorWALK_MAX_TAIL_CALLS)
	WalkPythonBadCodeObjectAddr        = uint32(probeWalkErrorWALK_PYTHON_BAD_CODE_OBJECT_ADDR)
	WalkPythonNoProcInfo               = uint32(probeWalkErrorWALK_PYTHON_NO_PROC_INFO)
	WalkPythonZeroThreadState          = uint32(probeWalkErrorWALK_PYTHON_ZERO_THREAD_STATE)
	WalkNativeLookupTextSection        = uint32(probeWalkErrorWALK_NATIVE_LOOKUP_TEXT_SECTION)
	WalkNativeLookupStackDeltaOuterMap = uint32(probeWalkErrorWALK_NATIVE_LOOKUP_STACK_DELTA_OUTER_MAP)
	WalkNativeLookupStackDeltaInnerMap = uint32(probeWalkErrorWALK_NATIVE_LOOKUP_STACK_DELTA_INNER_MAP)
	WalkNativeStackDeltaInvalid        = uint32(probeWalkErrorWALK_NATIVE_STACK_DELTA_INVALID)
	WalkNativePCRead                   = uint32(probeWalkErrorWALK_NATIVE_PC_READ)
	WalkNativeNoPIDPageMapping         = uint32(probeWalkErrorWALK_NATIVE_NO_PID_PAGE_MAPPING)
	WalkNativeZeroPC                   = uint32(probeWalkErrorWALK_NATIVE_ZERO_PC)
	WalkNativeSmallPC                  = uint32(probeWalkErrorWALK_NATIVE_SMALL_PC)
	WalkNativeUnsupportedMapping       = uint32(probeWalkErrorWALK_NATIVE_UNSUPPORTED_MAPPING)
	WalkNativeNoVMA                    = uint32(probeWalkErrorWALK_NATIVE_NO_VMA)
	WalkNativeNonExecutableVMA         = uint32(probeWalkErrorWALK_NATIVE_NON_EXECUTABLE_VMA)
)

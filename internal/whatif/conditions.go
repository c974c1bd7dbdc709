// SPDX-License-Identifier: Apache-2.0

package whatif

import "github.com/vramprof/vramprof/internal/allocsim"

// Code shows why a captured trace may not be what the program did.
type Code uint8

const (
	// NotFromStart: the allocator had memory before its first event, and no exact reading shows it.
	// Count is the bytes that it had allocated.
	NotFromStart    Code = iota + 1
	Sampled              // only Count of Of blocks that were allocated are in the capture
	NoSizes              // Count of Of blocks have no requested size, stream and pool
	NoEnds               // of Count of Of frees it is not known whether, or until when, the memory waited for streams
	UnknownBlocks        // Count of Of frees are of blocks that the trace does not have
	Lost                 // Count events of the process were lost
	Missing              // parts of the capture are missing
	Untraced             // Count times the tensors were not traced, as with --budget
	UnknownSettings      // neither the environment nor the allocator's settings could be read
	ChangedSettings      // the program changed them: Text became Other
	OtherSettings        // Text has an option that is not simulated; Err names it
	UnknownVersion
	OtherVersion // Text is a version that is not simulated
	SharedPools  // Count private pools of the start could not be told from later ones

	// Differs: the replay of its own settings is not what was recorded. Err is the difference, at
	// Count of Of operations.
	Differs
	// Unchecked: the history has no figure of reserved memory to compare a replay with.
	Unchecked
	// Exported: the snapshot is of vramprof, without the sizes that the program requested.
	Exported
	// NoHistory: the snapshot has no history.
	NoHistory
	// NoTensors: the capture has no allocation of PyTorch.
	NoTensors
)

// Condition is a Code with its figures. Only OtherSettings, OtherVersion and ChangedSettings have
// texts, which the traced process chose.
type Condition struct {
	Code        Code
	Count, Of   uint64
	Text, Other string
	Err         error
}

// Captured is what a capture has of PyTorch's allocator on one GPU of one process.
type Captured struct {
	PID     uint32
	Started uint64 // of the allocator's first event, ns of the capture's clock
	Trace   *allocsim.Trace
	// Sites are ids of stacks for Reader.Stack, by allocsim.Block.Site; 0: unknown, as of blocks
	// that are older than the attach.
	Sites []uint64
	// Streams are the handles of the trace's streams.
	Streams    []uint64
	Late       bool        // the trace begins with a reading of the running allocator
	Other      other       // what else the process had on the GPU
	Conditions []Condition // nil: the trace is all that the program did
}

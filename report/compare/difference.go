// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"github.com/vramprof/vramprof/report/apart"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// Change is a line of the user's own code, with the GPU memory that it held before and after.
type Change struct {
	Frame         callstack.Frame
	Where         string // "python3 tensors cuda:0"
	Before, After int64
	Calls         []apart.Call // by what the stacks of the line differ, nil if by nothing
}

// HolderChange is a holder, with what it kept before and after.
type HolderChange struct {
	Holder, Where string // "model.*.weight", "python3 cuda:0"
	Before, After int64
}

// Difference is how the memory of two profiles differs.
type Difference struct {
	Lines   []Change       // the largest change first, unchanged ones included
	Holders []HolderChange // likewise, without unchanged ones
	Known   [2]bool        // whether the profiles have holders; Holders needs both
}

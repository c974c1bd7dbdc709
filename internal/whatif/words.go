// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"errors"
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/vramprof/vramprof/internal/allocsim"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
)

// What makes a capture that can be replayed.
const (
	recordAgain   = "record the program from its start: vramprof record --for whatif -- COMMAND"
	recordHistory = "record from before the first CUDA allocation: torch.cuda.memory._record_memory_history(max_entries=10**8)"
)

// wording is how a code reads.
type wording struct {
	name             string // in JSON
	capture, history string // remedies; "" if there is none
}

var codes = map[Code]wording{
	NotFromStart:    {"not_from_start", recordAgain, recordHistory},
	Sampled:         {"sampled", recordAgain, ""},
	NoSizes:         {"no_sizes", recordAgain, ""},
	NoEnds:          {"no_ends", recordAgain, ""},
	UnknownBlocks:   {"unknown_blocks", recordAgain, recordHistory},
	Lost:            {"lost_events", "record again with a larger buffer: --buffer", ""},
	Missing:         {"missing_parts", recordAgain, ""},
	Untraced:        {"untraced", "record without --budget", ""},
	UnknownSettings: {"unknown_settings", recordAgain, "write the snapshot with PyTorch 2.6"},
	ChangedSettings: {"changed_settings", "set PYTORCH_CUDA_ALLOC_CONF before the program starts, and record again", ""},
	OtherSettings:   {"other_settings", "record with settings that vramprof simulates", "record with settings that vramprof simulates"},
	UnknownVersion:  {"unknown_version", recordAgain, "name the PyTorch that wrote the file: --torch 2.6"},
	OtherVersion:    {"other_version", "", ""},
	SharedPools:     {"shared_pools", recordAgain, ""},
	Differs:         {"differs", recordAgain, recordHistory},
	Unchecked:       {"unchecked", recordAgain, recordHistory},
	Exported:        {"exported", "", "vramprof whatif reads the capture itself: FILE.vram"},
	NoHistory:       {"no_history", "", recordHistory},
	NoTensors:       {"no_tensors", recordAgain, ""},
}

func (c *Condition) remedy(snapshot bool) string {
	if snapshot {
		return codes[c.Code].history
	}
	return codes[c.Code].capture
}

// say returns a condition as a sentence without a full stop.
func (c *Condition) say() string {
	text, other := untrusted.Clean(c.Text), untrusted.Clean(c.Other)
	ofAllocations := fmt.Sprintf("%s of %s", humanize.Comma(int64(c.Count)), format.Count(c.Of, "allocation"))
	switch c.Code {
	case NotFromStart:
		return fmt.Sprintf("PyTorch had %s before the history began, and other settings would have placed them otherwise", format.Bytes(c.Count))
	case Sampled:
		return "tensors are sampled: only " + ofAllocations + " were recorded"
	case NoSizes:
		return ofAllocations + " have no requested size, stream and pool"
	case NoEnds:
		return fmt.Sprintf("of %s of %s it is not known when other streams released the memory", humanize.Comma(int64(c.Count)), format.Count(c.Of, "free"))
	case UnknownBlocks:
		return fmt.Sprintf("%s of %s are of blocks whose allocation is not in the history", humanize.Comma(int64(c.Count)), format.Count(c.Of, "free"))
	case Lost:
		return format.Count(c.Count, "event") + " were lost"
	case Missing:
		return "parts of the capture are missing"
	case Untraced:
		return "tensors were not traced all the time"
	case UnknownSettings:
		return "the settings of PyTorch's allocator are not in the history"
	case ChangedSettings:
		return fmt.Sprintf("the program changed the settings of its allocator from %q to %q", text, other)
	case OtherSettings:
		return fmt.Sprintf("vramprof does not simulate its settings, %s: %s", text, errText(c.Err))
	case UnknownVersion:
		return "the version of PyTorch is not in the history, and each has another allocator"
	case OtherVersion:
		return fmt.Sprintf("the allocator of PyTorch %s is not among those that were compared with the simulator (%s)", text, allocsim.Proven())
	case SharedPools:
		return "private pools of before the history cannot be told from later ones"
	case Differs:
		return fmt.Sprintf("the replay of the recorded settings differs from what was recorded, from operation %s of %s on: %s", format.Digits(fmt.Sprint(c.Count)), format.Digits(fmt.Sprint(c.Of)), c.differs())
	case Unchecked:
		return "the history has no figure of reserved memory, so no replay can be checked"
	case Exported:
		return "vramprof wrote this snapshot, which has no requested sizes"
	case NoHistory:
		return "the snapshot has no history of allocations"
	case NoTensors:
		return "the capture has no allocation of PyTorch"
	}
	return "unknown reason"
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return untrusted.Clean(err.Error())
}

// differs describes what a replay had otherwise.
func (c *Condition) differs() string {
	var m *allocsim.Mismatch
	if !errors.As(c.Err, &m) {
		return errText(c.Err)
	}
	switch m.What {
	case allocsim.ReservedDiffers:
		return fmt.Sprintf("%s instead of %s are reserved", format.Bytes(m.Got), format.Bytes(m.Want))
	case allocsim.AddressDiffers:
		return fmt.Sprintf("a block is at %#x instead of %#x", m.Got, m.Want)
	}
	return "it runs out of memory"
}

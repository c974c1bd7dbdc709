// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"fmt"
	"io"
)

// LibrariesVersion is the "version" of LibrariesReport, with the rule of LeaksVersion.
const LibrariesVersion = 1

// LibrariesReport is the JSON of check --libraries. Fields are only added within a version.
type LibrariesReport struct {
	Version   int             `json:"version"`
	Libraries []LibraryReport `json:"libraries"`
	More      int             `json:"more"` // files that are not listed
	Entries   EntriesReport   `json:"entries"`
}

// LibraryReport is a file with functions of CUDA.
type LibraryReport struct {
	Name      string        `json:"name"` // base name
	Layer     string        `json:"layer"`
	Program   bool          `json:"program"` // an executable that contains the runtime
	PIDs      []uint32      `json:"pids"`    // processes that map it; none: it is this host's driver
	Error     string        `json:"error,omitempty"`
	Functions []ProbeReport `json:"functions"` // rows of the probe table that it has
	Missing   []string      `json:"missing"`   // rows that it lacks
}

// ProbeReport is a function that can be traced, and where its probe goes.
type ProbeReport struct {
	Function string `json:"function"`
	Offset   uint64 `json:"probe_offset"` // bytes from the function's start to the probe
	Emulated bool   `json:"emulated"`     // the kernel emulates the instruction there, instead of single-stepping it
	Shape    string `json:"instructions"` // up to the probe
	Code     string `json:"first_bytes"`  // of the function, in hexadecimal: at most 16
}

// EntriesReport is what cuGetProcAddress returns in the libcuda.so.1 that this process loads.
type EntriesReport struct {
	Library   string         `json:"library,omitempty"` // base name of its file
	Error     string         `json:"error,omitempty"`   // why it was not asked
	Names     int            `json:"names"`             // names with an answer
	Functions []string       `json:"functions"`         // functions with a probe that were returned
	Never     []string       `json:"never"`             // functions with a probe that were not
	Unprobed  []string       `json:"unprobed"`          // answers without a probe
	Answers   []AnswerReport `json:"answers"`
}

// AnswerReport is the answer for a name in a range of CUDA versions.
type AnswerReport struct {
	Name     string `json:"name"`
	By       string `json:"by"`   // cuGetProcAddress, cuGetProcAddress_v2
	Mode     string `json:"mode"` // of streams: default, legacy, per-thread
	From     string `json:"from"` // first version of CUDA with this answer
	To       string `json:"to"`   // last one, at most 14.9
	Function string `json:"function"`
}

// WriteLibraries writes what check --libraries has found as JSON.
func WriteLibraries(w io.Writer, r *LibrariesReport) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

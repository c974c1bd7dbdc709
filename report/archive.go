// SPDX-License-Identifier: Apache-2.0

package report

import "time"

// Archive is an overview of an archive: what it has, from when to when.
type Archive struct {
	Folder     string
	Host       string // "" where the captures of several machines are in it
	From, To   time.Time
	Bytes      uint64
	Captures   int
	Gaps       []ArchiveGap
	Processes  []ArchiveProcess // highest peak first
	More       uint64           // processes that it does not list
	Errors     []ArchiveError   // oldest first
	MoreErrors uint64
	Records    []ArchiveRecord // newest first
	Problems   []string        // captures that cannot be read
	Only       string          // what the lists are restricted to, "process train"; "": nothing
}

// ArchiveGap is a time that the archive lacks.
type ArchiveGap struct {
	From, To time.Time
	Why      string // "the machine was restarted", "vramprof did not run", "it could not be written"
}

// ArchiveProcess is a process over all captures.
type ArchiveProcess struct {
	PID                            uint32
	Comm                           string // untrusted, as all names
	Container, Pod, Namespace, Job string
	Rank                           string
	From, To                       time.Time
	Running                        bool   // it runs at To, the end of its session
	Peak                           uint64 // bytes on all GPUs, as NVML or PyTorch's allocator reported them
	PeakAt                         time.Time
	OOMs                           uint64
}

// ArchiveError is an out-of-memory error.
type ArchiveError struct {
	At   time.Time
	PID  uint32
	Comm string
	API  string
	Size uint64 // bytes that were wanted, or ledger.UnknownSize
}

// ArchiveRecord is the record of an out-of-memory error.
type ArchiveRecord struct {
	At        time.Time
	PID       uint32
	Comm, Pod string
	GPU       string // UUID; "": unknown
	Size      uint64 // bytes that were wanted, or ledger.UnknownSize
	Path      string // of the text
}

// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// ExplainVersion is the version of ExplainReport.
const ExplainVersion = 1

// ExplainReport is what `vramprof explain --json` writes. Fields are only added within a version.
type ExplainReport struct {
	Version  int             `json:"version"`
	Host     string          `json:"host,omitempty"`
	Time     string          `json:"time"`  // of the moment, RFC 3339
	AtNS     uint64          `json:"at_ns"` // since the session began
	Balances []ExplainedPart `json:"balances"`
	Steps    []StepsReport   `json:"steps,omitempty"`                // of a capture: the steps of each training, by process and device; of processes that have ended too
	Skipped  uint64          `json:"steps_skipped_events,omitempty"` // events of a capture that has too many to look for steps
}

// ExplainedPart is one process on one GPU.
type ExplainedPart struct {
	PID      uint32         `json:"pid"`
	Comm     string         `json:"comm"`
	Device   *int32         `json:"device"` // null: unknown
	UUID     string         `json:"uuid,omitempty"`
	Bytes    int64          `json:"bytes"` // the sum of rows
	NVML     bool           `json:"nvml"`  // bytes are NVML's figure, corrected by what was booked since
	Rows     []PurposeRow   `json:"rows"`
	WalkedNS *int64         `json:"walked_ns"` // when holders were found, since at_ns: negative is earlier; null: never
	Agreed   *PurposeAgreed `json:"agreement,omitempty"`
	KVCache  *KVCacheUse    `json:"kv_cache_use,omitempty"` // as the process's inference server reported it
	Notes    []string       `json:"notes"`
}

// PurposeRow is memory of one purpose.
type PurposeRow struct {
	Purpose   string         `json:"purpose"`           // weights, gradients, …; library
	Library   string         `json:"library,omitempty"` // NCCL
	Name      string         `json:"name"`              // for people
	Bytes     int64          `json:"bytes"`
	ByHolders uint64         `json:"by_holders_bytes"` // whose purpose holders prove
	ByStacks  uint64         `json:"by_stacks_bytes"`  // whose purpose stack traces show
	Parts     []PurposePiece `json:"parts,omitempty"`
}

// PurposePiece is a part of a row: of activations by module, of the KV cache by holder, of the
// cache by what becomes of it, of what is not PyTorch's by the line that allocated it.
type PurposePiece struct {
	Cache  string `json:"cache,omitempty"`  // idle, held, small, streams, pools, pending
	Module string `json:"module,omitempty"` // Block.forward (model.py:88)
	Holder string `json:"holder,omitempty"` // worker.kv_caches[*]
	Part   string `json:"part,omitempty"`   // of a library: communicators, handles; of CUDA graphs: their pool
	Line   string `json:"line,omitempty"`   // load (serve.py:12)
	Count  uint64 `json:"count,omitempty"`  // live allocations of line
	Bytes  uint64 `json:"bytes"`
}

// PurposeAgreed compares the two ways in which purposes are known.
type PurposeAgreed struct {
	Both uint64 `json:"both_bytes"` // holders and stack traces show a purpose
	Same uint64 `json:"same_bytes"` // the same one
}

// KVCacheUse is how much of a KV cache is used.
type KVCacheUse struct {
	Engine  string  `json:"engine"`  // vLLM, SGLang, llama.cpp
	Metric  string  `json:"metric"`  // vllm:kv_cache_usage_perc
	Used    float64 `json:"used"`    // 0 to 1
	Bytes   uint64  `json:"bytes"`   // that part of the rows with the purpose kv_cache
	Engines int     `json:"engines"` // used is their mean
	PID     uint32  `json:"pid"`     // the process that reported
	Port    uint32  `json:"port"`
}

// WriteExplain writes what the memory of each process and GPU is for. use is what a server reported
// of its KV cache; nil: nothing.
func WriteExplain(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, use *purpose.Use, o report.Options) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(NewExplain(s, st, use, o)); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// NewExplain returns the report of WriteExplain.
func NewExplain(s *ledger.Snapshot, st callstack.Stacks, use *purpose.Use, o report.Options) ExplainReport {
	r := ExplainReport{Version: ExplainVersion, Host: untrusted.Clean(s.Host), Time: s.Wall.UTC().Format(time.RFC3339Nano), AtNS: report.Minus(s.End, s.Begin), Balances: []ExplainedPart{}}
	for _, b := range purpose.WithUse(s, st, use) {
		p := &s.Processes[b.Process]
		x := ExplainedPart{PID: p.PID, Comm: untrusted.Clean(p.Comm), UUID: untrusted.Clean(b.UUID), Bytes: b.Bytes, NVML: b.Read, Rows: []PurposeRow{}, Notes: []string{}}
		if b.Device >= 0 {
			x.Device = &b.Device
		}
		if b.Walked != 0 {
			after := int64(b.Walked - s.End)
			x.WalkedNS = &after
		}
		if b.Both > 0 {
			x.Agreed = &PurposeAgreed{b.Both, b.Same}
		}
		if u := b.Use; u != nil {
			x.KVCache = &KVCacheUse{u.Engine, u.Metric, u.Used, uint64(u.Used * float64(b.KVCache())), u.Series, u.By, uint32(u.Port)}
		}
		x.Notes = append(x.Notes, b.Notes(s)...)
		for i := range b.Rows {
			x.Rows = append(x.Rows, purposeRow(&b.Rows[i]))
		}
		r.Balances = append(r.Balances, x)
	}
	if o.Steps != nil {
		r.Skipped = o.Steps.Skipped
	}
	for i := range s.Processes {
		r.Steps = append(r.Steps, stepsReports(s, i, o)...)
	}
	return r
}

func purposeRow(r *purpose.Row) PurposeRow {
	x := PurposeRow{Purpose: string(r.Kind), Library: r.Library, Name: r.Name(), Bytes: r.Bytes, ByHolders: r.ByHolders, ByStacks: r.ByStacks}
	for i := range r.Pieces {
		piece := &r.Pieces[i]
		x.Parts = append(x.Parts, PurposePiece{Cache: string(piece.Cache), Module: untrusted.Clean(piece.Module), Holder: untrusted.Clean(piece.Holder),
			Part: piece.Part, Line: untrusted.Clean(piece.Line), Count: piece.Count, Bytes: piece.Bytes})
	}
	return x
}

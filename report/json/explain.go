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
	Bytes    int64          `json:"bytes"`        // the sum of rows
	NVML     bool           `json:"nvml"`         // bytes are NVML's figure, corrected by what was booked since
	Beyond   uint64         `json:"beyond_bytes"` // what the rows had beyond NVML's figure, which was taken off them: in no sum
	Rows     []PurposeRow   `json:"rows"`
	WalkedNS *int64         `json:"walked_ns"` // when holders were found, since at_ns: negative is earlier; null: never
	Agreed   *PurposeAgreed `json:"agreement,omitempty"`
	KVCache  *KVCacheUse    `json:"kv_cache_use,omitempty"` // as the process's inference server reported it
	Arenas   []ArenaUse     `json:"arenas,omitempty"`       // of libraries, on all GPUs of the process: on its first one
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
	KeptBy    []KeptPart     `json:"kept_by,omitempty"` // the holders of tensors, largest first, at most 16
}

// KeptPart is what one holder keeps of a purpose.
type KeptPart struct {
	Holder string `json:"holder"` // trainer.history[*]
	Bytes  uint64 `json:"bytes"`
}

const maxKeptBy = 16 // of a row

// PurposePiece is a part of a row: of activations by module, of the KV cache by holder, of the
// cache by what becomes of it, of what is not PyTorch's by the line that allocated it.
type PurposePiece struct {
	Cache  string `json:"cache,omitempty"`      // idle, held, small, streams, pools, pending
	Module string `json:"module,omitempty"`     // Block.forward (model.py:88); without stack traces the instance: model.blocks.3
	Holder string `json:"holder,omitempty"`     // worker.kv_caches[*]
	Part   string `json:"part,omitempty"`       // of a library: communicators, handles; of CUDA graphs: their pool
	Line   string `json:"line,omitempty"`       // load (serve.py:12)
	Count  uint64 `json:"count,omitempty"`      // live allocations of line
	Pool   uint64 `json:"pool_bytes,omitempty"` // of a CUDA graph's pool: what it has from the driver; bytes are what is free in it
	Bytes  uint64 `json:"bytes"`
	Idle   string `json:"idle,omitempty"` // of a pool, how much of it nothing uses: "unknown"; "running_process": explain -p has it as arenas; "between_evaluations": all of it, while nothing is evaluated
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

// ArenaUse is how much of a pool of a library is in use, as its own books in the process have it.
type ArenaUse struct {
	Library string `json:"library"`      // ONNX Runtime
	Bytes   uint64 `json:"bytes"`        // that it took from the driver
	InUse   uint64 `json:"in_use_bytes"` // the rest is idle
	Peak    uint64 `json:"peak_bytes"`   // the highest in_use_bytes so far
}

// WriteExplain writes what the memory of each process and GPU is for. more is what is known of
// one besides the books; nil: nothing.
func WriteExplain(w io.Writer, s *ledger.Snapshot, st callstack.Stacks, more *purpose.More, o report.Options) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(NewExplain(s, st, more, o)); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// NewExplain returns the report of WriteExplain.
func NewExplain(s *ledger.Snapshot, st callstack.Stacks, more *purpose.More, o report.Options) ExplainReport {
	r := ExplainReport{Version: ExplainVersion, Host: untrusted.Clean(s.Host), Time: s.Wall.UTC().Format(time.RFC3339Nano), AtNS: report.Minus(s.End, s.Begin), Balances: []ExplainedPart{}}
	for _, b := range purpose.With(s, st, more) {
		r.Balances = append(r.Balances, explainedPart(&s.Processes[b.Process], &b, s.End, b.Notes(s)))
	}
	if o.Steps != nil {
		r.Skipped = o.Steps.Skipped
	}
	for i := range s.Processes {
		r.Steps = append(r.Steps, stepsReports(s, i, o)...)
	}
	return r
}

// explainedPart reports a balance of a process at a time.
func explainedPart(p *ledger.Process, b *purpose.Balance, at uint64, notes []string) ExplainedPart {
	x := ExplainedPart{
		PID: p.PID, Comm: untrusted.Clean(p.Comm), UUID: untrusted.Clean(b.UUID), Bytes: b.Bytes, NVML: b.Read, Beyond: b.Beyond.Sum(),
		Rows: []PurposeRow{}, Notes: append([]string{}, notes...),
	}
	if b.Device >= 0 {
		x.Device = &b.Device
	}
	if b.Walked != 0 {
		after := int64(b.Walked - at)
		x.WalkedNS = &after
	}
	if b.Both > 0 {
		x.Agreed = &PurposeAgreed{b.Both, b.Same}
	}
	if u := b.Use; u != nil {
		x.KVCache = &KVCacheUse{u.Engine, u.Metric, u.Used, uint64(u.Used * float64(b.KVCache())), u.Series, u.By, uint32(u.Port)}
	}
	for _, a := range b.Arenas {
		x.Arenas = append(x.Arenas, ArenaUse(a))
	}
	for i := range b.Rows {
		x.Rows = append(x.Rows, purposeRow(&b.Rows[i]))
	}
	return x
}

func purposeRow(r *purpose.Row) PurposeRow {
	x := PurposeRow{Purpose: string(r.Kind), Library: r.Library, Name: r.Name(), Bytes: r.Bytes, ByHolders: r.ByHolders, ByStacks: r.ByStacks}
	for i := range r.Pieces {
		piece := &r.Pieces[i]
		x.Parts = append(x.Parts, PurposePiece{Cache: string(piece.Cache), Module: untrusted.Clean(piece.Module), Holder: untrusted.Clean(piece.Holder),
			Part: piece.Part, Line: untrusted.Clean(piece.Line), Count: piece.Count, Pool: piece.Pool, Bytes: piece.Bytes, Idle: string(piece.Idle)})
	}
	for _, k := range r.KeptBy[:min(len(r.KeptBy), maxKeptBy)] {
		x.KeptBy = append(x.KeptBy, KeptPart{k.Name(), k.Bytes})
	}
	return x
}

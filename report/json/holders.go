// SPDX-License-Identifier: Apache-2.0

package json

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
)

// HoldersVersion is the version of HoldersReport.
const HoldersVersion = 1

// HoldersReport is the JSON of holders: who keeps the tensors of a process. Fields are only added
// within a version.
type HoldersReport struct {
	PID      uint32         `json:"pid"`
	Comm     string         `json:"comm"`   // name of the process
	Python   string         `json:"python"` // its version
	Time     string         `json:"time"`   // when the walk began, RFC 3339
	TookNS   int64          `json:"took_ns"`
	Bytes    uint64         `json:"bytes"` // of all storages
	Storages uint64         `json:"storages"`
	Held     uint64         `json:"held"`    // bytes that a path in Python holds
	Objects  int            `json:"objects"` // that the walk reached
	Holders  []HolderReport `json:"holders"` // the largest first
	Grown    []GrownReport  `json:"grown,omitempty"`
	Unclear  []GrownReport  `json:"unclear,omitempty"` // have more than at the first walk, of memory that may come and go
	Walks    int            `json:"walks"`             // that were made
	Waste    []WasteReport  `json:"waste,omitempty"`   // what could be freed, the most bytes first; no byte is in two
	Problems []string       `json:"problems"`          // what could not be read, and doubts
	Version  int            `json:"version"`
}

// HolderReport is what holders of one pattern keep on one device.
type HolderReport struct {
	Holder     string   `json:"holder"`          // the path, with a star for each number
	Class      string   `json:"class,omitempty"` // the same path from its innermost class on
	Path       []string `json:"path"`            // the steps of the path, for a tree: "model", ".layers", ".*", ".weight"
	Place      string   `json:"place,omitempty"` // where the path begins, of a function's variable: "main() (train.py:7)"
	Now        int      `json:"now,omitempty"`   // the line that this function executed when it was read
	Device     string   `json:"device"`          // as PyTorch names it: cuda:0, cpu
	Found      bool     `json:"found"`           // the path leads from Python to the storages
	Bytes      uint64   `json:"bytes"`
	Storages   uint64   `json:"storages"`
	InMotion   uint64   `json:"in_motion,omitempty"`  // storages that changed while they were read
	Container  string   `json:"container,omitempty"`  // class of the innermost container
	Containers int      `json:"containers,omitempty"` // how many different ones
	Entries    *int     `json:"entries,omitempty"`    // of all of them
	Also       []string `json:"also,omitempty"`       // further holders of the same storages
}

// WasteReport is memory that could be freed without a loss to the program.
type WasteReport struct {
	PID          uint32 `json:"pid"`
	Kind         string `json:"kind"`   // views, frozen (gradients), gone (parameters that only an optimizer keeps), errors, ended (tasks, frames), copies (of a model: 0 bytes)
	Holder       string `json:"holder"` // of copies all: "model and ema.module"
	Device       string `json:"device"`
	Bytes        uint64 `json:"bytes"` // that could be freed
	Storages     uint64 `json:"storages"`
	StorageBytes uint64 `json:"storage_bytes"` // of these storages
	Text         string `json:"text"`          // why and how
}

func wasteReports(pid uint32, list []report.WasteLine) (reports []WasteReport) {
	for i := range list {
		x := &list[i]
		reports = append(reports, WasteReport{pid, untrusted.Clean(x.Kind), x.Path, x.On, x.Bytes, x.Storages, x.Whole, x.Text})
	}
	return reports
}

// GrownReport is a holder that has more at the latest walk than at the first.
type GrownReport struct {
	Holder         string   `json:"holder"`
	Class          string   `json:"class,omitempty"`
	Path           []string `json:"path"`
	Place          string   `json:"place,omitempty"`
	Device         string   `json:"device"`
	Bytes          int64    `json:"bytes"` // more than at the first walk
	BytesPerMinute int64    `json:"bytes_per_minute"`
	Storages       int64    `json:"storages"`
	Entries        int64    `json:"entries,omitempty"` // of its containers
}

// WriteHolders writes a HoldersReport.
func WriteHolders(w io.Writer, h *report.Holders) error {
	lines := h.Lines()
	sum := report.SumHolders(lines)
	r := HoldersReport{
		PID: h.PID, Comm: untrusted.Clean(h.Comm), Python: untrusted.Clean(h.Result.Python), Time: h.Result.At.UTC().Format(time.RFC3339),
		TookNS: int64(h.Result.Times.Total), Bytes: sum.Bytes, Storages: sum.Storages, Held: sum.Found, Objects: h.Result.Objects,
		Holders: make([]HolderReport, 0, len(lines)), Problems: append([]string{}, h.HolderProblems()...), Walks: h.Walks(), Version: HoldersVersion,
	}
	for i := range lines {
		r.Holders = append(r.Holders, holderReport(&lines[i]))
	}
	r.Waste = wasteReports(h.PID, h.Waste())
	grown, doubtful := h.Grown()
	r.Grown, r.Unclear = grownReports(grown), grownReports(doubtful)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // paths have <closure x> in them
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func grownReports(lines []report.GrownLine) (list []GrownReport) {
	for i := range lines {
		g := &lines[i]
		list = append(list, GrownReport{
			Holder: g.Path, Class: g.Class, Path: g.Steps, Place: g.Place, Device: g.On,
			Bytes: g.By.Bytes, BytesPerMinute: g.PerMinute, Storages: g.By.Storages, Entries: g.By.Entries,
		})
	}
	return list
}

func holderReport(l *report.HolderLine) HolderReport {
	r := HolderReport{
		Holder: l.Path, Class: l.Class, Path: l.Steps, Place: l.Place, Now: l.Now, Device: l.On, Found: l.Found, Bytes: l.Bytes, Storages: l.Storages, InMotion: l.InMotion,
		Container: l.Container, Containers: l.Containers, Also: l.Also,
	}
	if l.Containers > 0 && l.Entries >= 0 {
		r.Entries = &l.Entries
	}
	return r
}

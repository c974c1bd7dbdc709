// SPDX-License-Identifier: Apache-2.0

package output

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/export"
	"github.com/vramprof/vramprof/report/html"
	"github.com/vramprof/vramprof/report/profile"
	"github.com/vramprof/vramprof/report/purpose"
	"github.com/vramprof/vramprof/report/replay"
	"github.com/vramprof/vramprof/report/steps"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Formats of files, in the order of help.
var (
	// Pprof is the format of heap profiles.
	Pprof = Format{
		Name: "pprof", About: "also for speedscope and Perfetto", Suffix: ".pb.gz", Binary: true,
		Write: profile.Write, WriteDifference: profile.WriteDifference,
	}

	// Capture holds all events of a session. It is written while tracing: CreateCapture.
	Capture = Format{Name: "capture", Suffix: ".vram", Binary: true}

	// HTML is a page for the browser.
	HTML = Format{Name: "html", Suffix: ".html", Play: playHTML}

	// Snapshot is the format of PyTorch's memory snapshots. Package export writes it of captures
	// and of running processes.
	Snapshot = Format{
		Name: "torch", About: "memory snapshot of one process, for pytorch.org/memory_viz", Suffix: ".pickle", Binary: true, OneProcess: true, Play: playTorch,
	}

	// Exported are the formats that can be made from a session.
	Exported = Formats{
		Pprof,
		{Name: "folded", About: "flame graph tools", Suffix: ".folded", Write: writeFolded},
		{Name: "chrome", About: "timeline for Perfetto and chrome://tracing", Suffix: ".json", Play: playChrome},
		Snapshot,
	}

	// Recorded are the formats of record.
	Recorded = Formats{Pprof, Capture}
)

// Format is a file format of results.
type Format struct {
	Name   string // of --format
	About  string // what it is for, as help shows it
	Suffix string // of the names of its files, with the dot
	Binary bool   // not written to a terminal

	// OneProcess says that a file has only one process, which --pid chooses.
	OneProcess bool

	// Write writes a moment. Formats without it have Play.
	Write func(w io.Writer, s *ledger.Snapshot, stacks callstack.Stacks) error

	// Play reads all events of a session, so it needs a capture. It does everything that can fail
	// before anything is written, and returns the function that writes.
	Play func(Session) (write func(io.Writer) error, err error)

	// WriteDifference writes what changed between two moments. It is nil if the format has no
	// differences.
	WriteDifference func(w io.Writer, a, b profile.Profile) error
}

// Session is a capture up to a moment.
type Session struct {
	Capture *capture.Reader
	At      uint64 // ns of the capture's clock
	Stacks  callstack.Stacks
	PID     uint32 // with OneProcess; 0: the only process with memory on GPUs
}

// NeedsCapture reports whether the format needs all events of a session, not only its books of now.
func (f Format) NeedsCapture() bool { return f.Play != nil }

// Open opens a file or stream for a result in this format, like the function Open.
func (f Format) Open(path string, force bool) (Destination, error) {
	return Open(path, force, f.Binary)
}

// Prepare does everything that can fail before anything is written, and returns the function that
// writes. Errors are those of reading the capture.
func (f Format) Prepare(s Session) (write func(io.Writer) error, err error) {
	if f.Play != nil {
		return f.Play(s)
	}
	snapshot, err := s.Capture.Snapshot(s.At)
	if err != nil {
		return nil, err
	}
	return func(w io.Writer) error { return f.Write(w, snapshot, s.Stacks) }, nil
}

// Formats is a list of formats to choose from.
type Formats []Format

// Find returns the format with a name. The error lists the names.
func (list Formats) Find(name string) (Format, error) {
	for _, f := range list {
		if f.Name == name {
			return f, nil
		}
	}
	return Format{}, fmt.Errorf("unknown format %q (formats: %s)", name, list)
}

// Only returns the formats for which keep returns true.
func (list Formats) Only(keep func(Format) bool) (some Formats) {
	for _, f := range list {
		if keep(f) {
			some = append(some, f)
		}
	}
	return some
}

// String lists the names: "pprof, folded, chrome".
func (list Formats) String() string { return strings.Join(list.names(), ", ") }

// Choice lists the names as alternatives: "pprof, folded or chrome".
func (list Formats) Choice() string {
	names := list.names()
	last := len(names) - 1
	if last < 1 {
		return list.String()
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// About lists the names with what each format is for: "pprof (also for speedscope), folded (…)".
func (list Formats) About() string {
	var parts []string
	for _, f := range list {
		parts = append(parts, fmt.Sprintf("%s (%s)", f.Name, f.About))
	}
	return strings.Join(parts, ", ")
}

func (list Formats) names() (names []string) {
	for _, f := range list {
		names = append(names, f.Name)
	}
	return names
}

func writeFolded(w io.Writer, s *ledger.Snapshot, stacks callstack.Stacks) error {
	return export.Folded(w, s, stacks, export.FoldedOptions{})
}

func playChrome(s Session) (func(io.Writer) error, error) {
	snapshot, t, _, err := replay.Timeline(s.Capture, replay.First(s.Capture), s.At)
	return func(w io.Writer) error { return export.Chrome(w, t, snapshot, s.Stacks) }, err
}

func playTorch(s Session) (func(io.Writer) error, error) {
	l := s.Capture.NewLedger()
	collector := export.NewCollector(l, export.CollectorOptions{PID: s.PID})
	to := s.At
	if s.At >= s.Capture.End() {
		to = math.MaxUint64 // also late readings
	}
	if err := s.Capture.Play(to, collector); err != nil {
		return nil, err
	}
	snapshot := s.Capture.SnapshotOf(l, s.At)
	return func(w io.Writer) error { return export.Torch(w, collector, snapshot, s.Stacks) }, nil
}

// pageGPUs is how many GPUs on which nothing grows a page describes.
const pageGPUs = 8

func playHTML(s Session) (func(io.Writer) error, error) {
	snapshot, t, trainings, err := replay.TimelineAndSteps(s.Capture, s.At, steps.MaxEvents)
	if err != nil {
		return nil, err
	}
	peaks, err := replay.Peaks(s.Capture, snapshot)
	if err != nil {
		return nil, err
	}
	found := report.Judge(snapshot, s.Stacks)
	in := html.Input{Snapshot: snapshot, Stacks: s.Stacks, Timeline: t, Steps: trainings, Verdicts: found.Sites(), Balance: found.BalanceTexts(pageGPUs), Advice: found.Advice,
		Past: purpose.AtPeaks(snapshot, s.Stacks, peaks, html.MaxPast)}
	return func(w io.Writer) error { return html.Write(w, in) }, nil
}

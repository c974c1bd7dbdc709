// SPDX-License-Identifier: Apache-2.0

// Package capture writes and reads captures: files with all inputs of the ledger during a session,
// in order, and the names of all stacks.
//
// A tracer feeds a Writer the same inputs as its ledger. The Writer writes a frame at least once
// per second, so older data is readable even if the process is killed.
//
//	w, err := capture.NewWriter(file, capture.Options{Host: host})
//	t, err := tracer.New(tracer.Config{Capture: w})
//	w.SetStacks(t)
//	…
//	err = w.End(t.Snapshot())
//
// A Reader plays a capture into another ledger, up to any moment. A capture is not trusted:
// unreadable parts become warnings that name the missing time, and playing it into the ledger of
// Reader.NewLedger takes memory and time in proportion to its size (limits.go). Beyond that,
// methods return a LimitError.
//
//	r, err := capture.Open("run.vram")
//	s, err := r.Snapshot(r.Begin() + 90e9)
//	frames := r.Stack(s.Sites[0].Stack)
package capture

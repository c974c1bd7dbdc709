// SPDX-License-Identifier: Apache-2.0

// Package archive keeps the history of a session without an end: a folder of captures, bounded in
// size and age, and of records of out-of-memory errors, bounded in number.
//
// A tracer feeds a Writer as it would feed the writer of one capture. Each capture but the first of
// a session begins with an opening: the books as they are then. So every capture can be read
// alone, and the oldest ones can go.
//
//	w, err := archive.NewWriter("/var/lib/vramprof", archive.Options{Opening: func(to ledger.Books) { t.Opening(to) }})
//	t, err := tracer.New(tracer.Config{Capture: w})
//	w.SetStacks(t)
//	…
//	err = w.End(t.Snapshot())
//
// A disk that is full or fails costs history and nothing else: a Writer never waits for it, counts
// what is lost, and begins a new capture as soon as there is room.
//
// An Archive finds moments in such a folder, which may be written meanwhile.
//
//	a, err := archive.Open("/var/lib/vramprof")
//	m, err := a.At(time.Date(2026, 11, 22, 3, 12, 0, 0, time.UTC))
//	r, err := capture.Open(m.Capture.Path)
//	s, err := r.Snapshot(m.Time)
package archive

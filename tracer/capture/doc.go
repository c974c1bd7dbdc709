// SPDX-License-Identifier: Apache-2.0

// Package capture writes and reads recordings of a whole session: all that the
// books were told, in its order, with the names of all stacks.
//
// A Writer is a ledger.Books that a tracer feeds beside its own books. It writes a
// frame at least once a second, so that whatever happens to the process, what is older can be read.
//
//	w, err := capture.New(file, capture.Options{Host: host})
//	t, err := tracer.New(tracer.Config{Journal: w})
//	w.SetStacks(t)
//	…
//	err = w.End(t.Snapshot())
//
// A Recording plays it back into other books, up to any moment. A capture is
// untrusted: whatever it contains, what cannot be read is a warning that says which time is missing, and playing it
// into Recording.Books takes memory and time in proportion to its size (limits.go). What would take more ends with a LimitError.
//
//	rec, err := capture.Open("run.vram")
//	s, err := rec.Snapshot(rec.Begin() + 90e9)
//	frames := rec.Stack(s.Sites[0].Stack)
package capture

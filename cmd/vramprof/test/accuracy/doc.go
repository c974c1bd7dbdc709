// SPDX-License-Identifier: Apache-2.0

// Package accuracy measures how accurate vramprof is, prints the results as a table, and fails if a
// result is worse than stated.
//
//	go test ./cmd/vramprof/test/accuracy -v                                   a minute
//	go test ./cmd/vramprof/test/accuracy -v -timeout 90m -args -accuracy.long  the quoted figures
//
// Bytes: a simulated program whose events are dropped at known rates; random calls of all kinds,
// compared with the simulated driver's own account; PyTorch's blocks and segments, compared with
// its own snapshot. Guarantee: a byte is wrong only if an event of that very allocation was lost,
// and the loss is counted.
//
// Stacks: each program knows its own stack at every allocation. Programs with random calls note
// their position before each call (C++: tail calls, inlining, exceptions and destructors, callbacks
// from libc, virtual calls, signals, coroutines, threads, a loaded library), Python programs use
// the interpreter's own frames, PyTorch has its recorder. A capture identifies vramprof's stack of
// the same allocation by thread, address and time. A stack is wrong if it has a frame or a line
// that the truth lacks, or lacks one. Stacks that are marked as truncated are counted separately,
// and so are unreadable frames and unknown lines.
//
// Losses: events at given rates, counted by the program itself, compared with those booked and
// those counted as lost. Guarantee: the two add up.
package accuracy

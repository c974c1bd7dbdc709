// SPDX-License-Identifier: Apache-2.0

// Package accuracy measures how right vramprof is, prints it as a table, and fails where it is less right than is stated.
//
//	go test ./cmd/vramprof/test/accuracy -v                                   a minute
//	go test ./cmd/vramprof/test/accuracy -v -timeout 90m -args -accuracy.long  the figures that are quoted
//
// Bytes: a simulated program whose events are dropped at known rates; random calls of all kinds, against the simulated
// driver's own account; PyTorch's blocks and segments, against its own snapshot. Promised: a byte is wrong only where an
// event was lost, and counted, of the very allocation that it is of.
//
// Stacks: programs whose calls are drawn by a seed note where they are before each call, so that at an allocation they know
// their own stack by construction (C++: tail calls, inlining, exceptions and destructors, callbacks out of libc, virtual calls, signals,
// coroutines, threads, a loaded library), or by the interpreter's own frames (Python), or by PyTorch's recorder. vramprof's stack of the same
// allocation is found in a capture by thread, address and time. A stack is wrong if it has a frame or a line that the truth has not, or lacks one;
// one that ends early and says so is counted apart. So is a frame that could not be read, a line that is not known.
//
// Losses: events made at given rates, by the program's own count, against what is booked and what is counted as lost. Promised:
// the two add up.
package accuracy

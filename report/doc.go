// SPDX-License-Identifier: Apache-2.0

// Package report writes a ledger snapshot as people and tools want it: a pprof
// profile, the leak report as text or JSON, and the summary that ends a recording.
//
// The same snapshot and stacks give the same bytes. Names that come from traced
// processes are cleaned of control characters in every format.
package report

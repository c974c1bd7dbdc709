// SPDX-License-Identifier: Apache-2.0

// Package report decides the content of reports on a ledger snapshot, without a format: planes,
// holdings, parts of NVML's figures, doubts, remarks, marks of incomplete figures, rows by line of
// code, call trees and verdicts. The packages below it write that: as text, JSON, pprof profiles,
// pages, and the formats of other tools.
//
// The same snapshot and stacks give the same results. Texts are clean of control characters,
// whatever names a traced process chose.
package report

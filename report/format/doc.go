// SPDX-License-Identifier: Apache-2.0

// Package format writes figures and names as all reports have them: sizes, times, counts, kinds of
// memory, devices and processes. Names that a traced process chose are cleaned of control
// characters.
package format

// SPDX-License-Identifier: Apache-2.0

// Package text writes reports for a terminal: the summary, leaks, views of a moment or an interval,
// differences of profiles and pages on out-of-memory errors. No line is wider than the Screen; text
// that does not fit is broken between words, and names are cut.
package text

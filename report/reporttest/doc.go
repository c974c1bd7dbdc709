// SPDX-License-Identifier: Apache-2.0

// Package reporttest has what the tests of report and of the packages below it share: snapshots of
// made-up sessions with their stacks, and golden files. It does not import package report, so the
// tests inside of that package can use it.
package reporttest

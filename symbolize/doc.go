// SPDX-License-Identifier: Apache-2.0

// Package symbolize turns ELF addresses into function, file, line and inlined calls.
package symbolize

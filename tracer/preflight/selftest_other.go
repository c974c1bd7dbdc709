// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package preflight

// arm64 redirects returns by a breakpoint, which no filter sees.
var selfTestProgram []byte

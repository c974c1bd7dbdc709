// SPDX-License-Identifier: Apache-2.0

//go:build !amd64

package preflight

// arm64 redirects returns with a breakpoint, which seccomp filters do not see.
var selfTestProgram []byte

// SPDX-License-Identifier: Apache-2.0

package preflight

import _ "embed"

//go:embed selftest/selftest_amd64
var selfTestProgram []byte

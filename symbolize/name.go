// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"regexp"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/vramprof/vramprof/internal/untrusted"
)

const maxMangled = 4 << 10 // longer mangled names stay mangled: the time goes with the square of the length

// readable returns the name of a symbol as people write it: C++ and Rust
// demangled, and without the suffixes of parts that the compiler split off.
func readable(symbol string) string {
	if len(symbol) > maxMangled {
		return untrusted.Clean(symbol)
	}
	const longest = 13 // as a power of two; more than Clean leaves
	name, err := demangle.ToString(symbol, demangle.NoClones, demangle.MaxLength(longest))
	if err != nil {
		name = clone.ReplaceAllString(symbol, "")
	}
	return untrusted.Clean(name)
}

// clone is the end of "train.cold" and "copy.constprop.0.isra.0".
var clone = regexp.MustCompile(`(?:\.(?:cold|part|isra|constprop|lto_priv|localalias|llvm)(?:\.\d+)?)+$`)

// unversioned cuts the version off a symbol: "cudaMalloc@@libcudart.so.12".
func unversioned(symbol string) string {
	if i := strings.IndexByte(symbol, '@'); i > 0 {
		return symbol[:i]
	}
	return symbol
}

// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"regexp"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/vramprof/vramprof/internal/untrusted"
)

const maxMangled = 4 << 10 // longer names stay mangled: the time grows with the square of the length

// readable returns the readable name of a symbol: C++ and Rust names demangled, and suffixes of
// compiler-generated parts removed.
func readable(symbol string) string {
	if len(symbol) > maxMangled {
		return untrusted.Clean(symbol)
	}
	const longest = 13 // as a power of two; more than Clean keeps
	name, err := demangle.ToString(symbol, demangle.NoClones, demangle.MaxLength(longest))
	if err != nil {
		name = clone.ReplaceAllString(symbol, "")
	}
	return untrusted.Clean(name)
}

// clone matches the end of "train.cold" and "copy.constprop.0.isra.0".
var clone = regexp.MustCompile(`(?:\.(?:cold|part|isra|constprop|lto_priv|localalias|llvm)(?:\.\d+)?)+$`)

// unversioned removes the version from a symbol: "cudaMalloc@@libcudart.so.12".
func unversioned(symbol string) string {
	if i := strings.IndexByte(symbol, '@'); i > 0 {
		return symbol[:i]
	}
	return symbol
}

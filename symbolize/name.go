// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/symbolize/callstack"
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

// deletedSuffix is what the kernel appends to the path of an unlinked file.
const deletedSuffix = " (deleted)"

// fileName returns the base name of a mapped file.
func fileName(m *callstack.Mapping) string {
	if m == nil || m.Path == "" {
		return "[unknown]"
	}
	return cmp.Or(untrusted.Clean(path.Base(strings.TrimSuffix(m.Path, deletedSuffix))), "[unknown]")
}

// unnamed returns the replacement for a function name, such as "libfoo.so+0x1234".
func unnamed(m *callstack.Mapping, address uint64) string {
	return fmt.Sprintf("%s+%#x", fileName(m), address)
}

// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Kernel is the upstream version of a kernel's source.
type Kernel struct {
	Major, Minor, Patch int
	Ubuntu              bool // built by Ubuntu, with backported fixes
}

// oldest is the oldest kernel tested. Ubuntu 22.04 has 5.15.
var oldest = Kernel{Major: 5, Minor: 10}

var (
	leadingVersion = regexp.MustCompile(`^(\d+)\.(\d+)(?:\.(\d+))?`)
	debianVersion  = regexp.MustCompile(`\bDebian (\d+\.\d+(?:\.\d+)?)`)
	ubuntuBuild    = regexp.MustCompile(`~?\d*-Ubuntu\b`)
)

// ParseKernel parses the output of uname -r, that of uname -v, and Ubuntu's /proc/version_signature
// ("" elsewhere). Releases contain the distribution's own numbers, such as "6.1.0-18-amd64"; the
// upstream version is in the other two.
func ParseKernel(release, version, signature string) (Kernel, error) {
	text := strings.TrimSpace(release)
	if m := debianVersion.FindStringSubmatch(version); m != nil {
		text = m[1] // "#1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)"
	}
	ubuntu := ubuntuBuild.MatchString(version)
	if fields := strings.Fields(signature); len(fields) == 3 && fields[0] == "Ubuntu" {
		text, ubuntu = fields[2], true // "Ubuntu 6.8.0-45.45-generic 6.8.12"
	}
	m := leadingVersion.FindStringSubmatch(text)
	if m == nil {
		return Kernel{}, fmt.Errorf("kernel version %q", text)
	}
	var numbers [3]int
	for i := range numbers {
		if m[i+1] == "" {
			continue
		}
		n, err := strconv.Atoi(m[i+1])
		if err != nil {
			return Kernel{}, fmt.Errorf("kernel version %q: %w", text, err)
		}
		numbers[i] = n
	}
	return Kernel{numbers[0], numbers[1], numbers[2], ubuntu}, nil
}

func (k Kernel) String() string {
	return fmt.Sprintf("%d.%d.%d", k.Major, k.Minor, k.Patch)
}

// Less reports whether k is older than other. It compares only the numbers.
func (k Kernel) Less(other Kernel) bool {
	if k.Major != other.Major {
		return k.Major < other.Major
	}
	if k.Minor != other.Minor {
		return k.Minor < other.Minor
	}
	return k.Patch < other.Patch
}

func (k Kernel) between(first, last Kernel) bool { return !k.Less(first) && !last.Less(k) }

// countsMemlock reports whether maps and programs count against RLIMIT_MEMLOCK.
func (k Kernel) countsMemlock() bool { return k.Less(Kernel{Major: 5, Minor: 11}) }

// seccompKills reports whether the kernel may kill programs, see ErrReturnProbeKills. Only the
// self-test knows for certain.
func (k Kernel) seccompKills() bool {
	return k.between(Kernel{Major: 6, Minor: 11}, Kernel{Major: 6, Minor: 12, Patch: 13}) ||
		k.between(Kernel{Major: 6, Minor: 13}, Kernel{Major: 6, Minor: 13, Patch: 2})
}

// callchainPanics reports whether taking user stacks while probed threads exit can panic the host:
// commit cfa7f3d2c526 without b583ef82b671 (pyroscope#3673).
func (k Kernel) callchainPanics() bool {
	return k.between(Kernel{Major: 6, Minor: 6, Patch: 58}, Kernel{Major: 6, Minor: 6, Patch: 80}) ||
		k.Ubuntu && k.Major == 6 && k.Minor == 11
}

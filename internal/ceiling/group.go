// SPDX-License-Identifier: Apache-2.0

package ceiling

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// group is the cgroup whose memory limit this process reaches first.
type group struct {
	limit   uint64 // bytes; math.MaxInt64: no limit
	folder  string
	version int
}

// The files of the two versions of cgroups.
var groupFiles = map[int]struct{ limit, usage, reclaimable string }{
	1: {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
	2: {"memory.max", "memory.current", "inactive_file"},
}

func ownGroup() group {
	text, _ := os.ReadFile("/proc/self/cgroup")
	return groupIn("/sys/fs/cgroup", string(text))
}

// groupIn searches the groups that /proc/self/cgroup names, and their parents. In a container
// the names may be the host's, so that only the root exists.
func groupIn(root, groups string) group {
	tightest := group{limit: math.MaxInt64}
	for line := range strings.Lines(groups) { // "4:memory:/user.slice", "0::/user.slice"
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 {
			continue
		}
		version, base := 0, ""
		switch {
		case parts[0] == "0":
			version, base = 2, root
		case strings.Contains(","+parts[1]+",", ",memory,"):
			version, base = 1, filepath.Join(root, "memory")
		default:
			continue
		}
		for at := filepath.Clean("/" + parts[2]); ; at = filepath.Dir(at) {
			folder := filepath.Join(base, at)
			if limit, ok := readNumber(filepath.Join(folder, groupFiles[version].limit)); ok && limit < tightest.limit {
				tightest = group{limit, folder, version}
			}
			if at == "/" {
				break
			}
		}
	}
	return tightest
}

// readNumber reads a file with one number. ok is false for "max".
func readNumber(path string) (uint64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// used returns the bytes that the group's processes use, including kernel memory, without
// reclaimable pages.
func (g *group) used() (bytes uint64, ok bool) {
	if g.folder == "" {
		return 0, false
	}
	files := groupFiles[g.version]
	used, ok := readNumber(filepath.Join(g.folder, files.usage))
	text, err := os.ReadFile(filepath.Join(g.folder, "memory.stat"))
	if !ok || err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if n, found := strings.CutPrefix(line, files.reclaimable+" "); found {
			if drop, err := strconv.ParseUint(strings.TrimSpace(n), 10, 64); err == nil {
				used -= min(drop, used)
			}
		}
	}
	return used, true
}

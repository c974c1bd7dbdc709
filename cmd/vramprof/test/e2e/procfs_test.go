// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

type mapping struct{ start, end, offset uint64 }

// executableMappings lists where a process maps code of the named libraries. It fails the test if
// one of them is not mapped.
func executableMappings(t *testing.T, pid int, names ...string) []mapping {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	var list []mapping
	missing := slices.Clone(names)
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.Contains(fields[1], "x") || !slices.Contains(names, filepath.Base(fields[5])) {
			continue
		}
		var m mapping
		if _, err := fmt.Sscanf(fields[0]+" "+fields[2], "%x-%x %x", &m.start, &m.end, &m.offset); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == filepath.Base(fields[5]) })
	}
	if len(missing) > 0 {
		t.Fatalf("process %d does not map %v:\n%s", pid, missing, text)
	}
	return list
}

// descendants lists the children of a process and their descendants.
func descendants(pid int) []int {
	var list []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				list = append(append(list, child), descendants(child)...)
			}
		}
	}
	return list
}

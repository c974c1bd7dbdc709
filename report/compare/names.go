// SPDX-License-Identifier: Apache-2.0

package compare

import (
	"fmt"
	"path"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
)

// columnNames returns a short name for each column, by what differs: rank, moment, file, pod, job,
// host or process.
func columnNames(columns []Column) (names []string, byRank bool) {
	candidates := []func(*Column) string{
		func(c *Column) string { return numbered("rank", format.Digits(c.Process.Rank)) },
		func(c *Column) string {
			if c.Host != columns[0].Host {
				return ""
			}
			return numbered("local rank", format.Digits(c.Process.LocalRank))
		},
		func(c *Column) string {
			if c.File != columns[0].File {
				return ""
			}
			return c.Moment
		},
		fileName,
		func(c *Column) string { return report.ShortID(c.Process.Pod) },
		func(c *Column) string { return untrusted.Clean(c.Process.Job) },
		func(c *Column) string { return untrusted.Clean(c.Host) },
		processName,
		func(c *Column) string { return untrusted.Clean(c.File) },
		func(c *Column) string { return format.Join(fileName(c), processName(c)) },
		func(c *Column) string { return format.Join(untrusted.Clean(c.File), processName(c), c.Moment) },
	}
	for i, name := range candidates {
		if list := distinct(columns, name); list != nil {
			return list, i == 0
		}
	}
	list := make([]string, len(columns)) // one file twice
	for i := range columns {
		list[i] = fmt.Sprintf("%d: %s", i+1, fileName(&columns[i]))
	}
	return list, false
}

func numbered(noun, number string) string {
	if number == "" {
		return ""
	}
	return noun + " " + number
}

// fileName returns the file's name without its folder and ending.
func fileName(c *Column) string {
	name := untrusted.Clean(path.Base(c.File))
	for _, ending := range []string{".vram", ".pb.gz"} {
		name = strings.TrimSuffix(name, ending)
	}
	return name
}

func processName(c *Column) string {
	if c.Process.PID == 0 {
		return ""
	}
	return format.Process(&c.Process)
}

// distinct returns the names, or nil if one is empty or two are equal.
func distinct(columns []Column, name func(*Column) string) []string {
	seen := map[string]bool{}
	list := make([]string, len(columns))
	for i := range columns {
		list[i] = name(&columns[i])
		if list[i] == "" || seen[list[i]] {
			return nil
		}
		seen[list[i]] = true
	}
	return list
}

// Noun returns what the columns are: "process", "capture" or "moment".
func (c *Comparison) Noun() string {
	files, pids, moments := map[string]bool{}, map[uint32]bool{}, map[string]bool{}
	for i := range c.Columns {
		x := &c.Columns[i]
		files[x.File], pids[x.Process.PID], moments[x.Moment] = true, true, true
	}
	switch {
	case len(files) == len(c.Columns):
		return "file"
	case len(moments) == len(c.Columns) && len(files) == 1:
		return "moment"
	case len(pids) > 1:
		return "process"
	}
	return "column"
}

// SPDX-License-Identifier: Apache-2.0

package profile

import (
	"strconv"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/compare"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Column returns the GPU memory of a profile for a comparison. The caller adds the file.
func (p Profile) Column() compare.Column {
	var c compare.Column
	if p.p.TimeNanos > 0 {
		c.Time = time.Unix(0, p.p.TimeNanos)
	}
	bytes, users := valueOf(p.p, "inuse_space"), map[int64]bool{}
	for _, x := range p.p.Sample {
		if x.Value[bytes] == 0 {
			continue
		}
		stack, head := p.line(x)
		h := compare.Held{Frame: stack[head], Plane: label(x, "plane"), Bytes: x.Value[bytes]}
		if holder := label(x, "holder"); holder != "" && holder != report.NoHolder {
			h.Keepers = []compare.Keeper{{Path: holder, Bytes: h.Bytes}}
		}
		c.Held = append(c.Held, h)
		pid := number(x, "pid")
		if users[pid] = true; len(users) == 1 {
			c.Process = processOf(x)
		}
	}
	if c.All = len(users); c.All != 1 {
		c.Process = ledger.Process{}
	}
	for _, text := range p.p.Comments {
		d, ok := doubt(untrusted.Clean(text))
		switch {
		case !ok:
		case d.At == report.AtHolders:
			c.HolderDoubts = append(c.HolderDoubts, d.Text)
		case d.At == report.AtNoHolders:
			c.NoHolders = append(c.NoHolders, d.Text)
		default:
			c.Doubts = append(c.Doubts, d.Text)
		}
	}
	return c
}

// processOf returns the process of a sample, from its labels.
func processOf(x *profile.Sample) ledger.Process {
	rank := func(key string) string {
		if list := x.NumLabel[key]; len(list) > 0 {
			return strconv.FormatInt(list[0], 10)
		}
		return ""
	}
	return ledger.Process{PID: uint32(number(x, "pid")), Comm: label(x, "comm"), Workload: ledger.Workload{
		Container: label(x, "container"), Pod: label(x, "pod"), Namespace: label(x, "namespace"), Job: label(x, "job"),
		PodContainer: label(x, "pod_container"), Actor: label(x, "actor"),
		Rank: rank("rank"), LocalRank: rank("local_rank"), WorldSize: rank("world_size"),
	}}
}

func number(x *profile.Sample, key string) int64 {
	if list := x.NumLabel[key]; len(list) > 0 {
		return list[0]
	}
	return 0
}

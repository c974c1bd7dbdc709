// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/words"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	maxRows  = 1000        // the first ones keep their place
	maxShare = maxRows / 4 // rows of one container, or of one user outside of containers
	maxLabel = 128         // bytes of a value, longer than any name of a pod in use
	other    = "other"
)

// labels identify a row. The values are clean and bounded.
type labels struct {
	gpu, uuid                      string
	namespace, pod, container, job string
	pid, comm, rank, actor         string // with Options.PID
}

// values returns the values of rowLabels, and of pidLabels with pid.
func (l *labels) values(pid bool, more ...string) []string {
	list := make([]string, 0, len(rowLabels)+len(pidLabels)+len(more))
	list = append(list, l.gpu, l.uuid, l.namespace, l.pod, l.container, l.job)
	if pid {
		list = append(list, l.pid, l.comm, l.rank, l.actor)
	}
	return append(list, more...)
}

// merged returns the labels of the row that stands in for those beyond a limit.
func (l *labels) merged() labels {
	x := labels{gpu: l.gpu, uuid: l.uuid, namespace: other, pod: other, container: other, job: other}
	if l.pid != "" {
		x.pid, x.comm, x.rank, x.actor = other, other, other, other
	}
	return x
}

// workloadLabels returns the labels of a process, without its GPU.
func workloadLabels(p *ledger.Process, pid bool) labels {
	l := labels{namespace: label(p.Namespace), pod: label(p.Pod), container: label(cmp.Or(p.PodContainer, report.ShortID(p.Container))), job: label(jobNumber(p.Job))}
	if pid {
		l.pid, l.comm, l.rank, l.actor = strconv.FormatUint(uint64(p.PID), 10), label(p.Comm), words.Digits(p.Rank), label(p.Actor)
	}
	return l
}

// jobNumber returns the number of a job, as dcgm-exporter has it, or its name if it has none: "llama
// (4242)" is 4242.
func jobNumber(job string) string {
	front, ends := strings.CutSuffix(job, ")")
	if at := strings.LastIndexByte(front, '('); ends && at >= 0 && at+1 < len(front) {
		return front[at+1:]
	}
	return job
}

// label returns a name as the value of a label.
func label(name string) string {
	const ellipsis = "…"
	name = untrusted.Clean(name)
	if len(name) <= maxLabel {
		return name
	}
	end := maxLabel - len(ellipsis)
	for end > 0 && name[end]&0xc0 == 0x80 { // within a character
		end--
	}
	return name[:end] + ellipsis
}

// origin is who chooses the labels of a process: its container, or its user outside of one.
type origin struct {
	container string
	user      uint32
}

func originOf(p *ledger.Process) origin {
	if p.Container != "" {
		return origin{container: p.Container}
	}
	return origin{user: p.User}
}

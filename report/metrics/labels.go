// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	maxRows  = 1000 // the first ones keep their place; see quota.Quota
	maxLabel = 128  // bytes of a value, longer than any name of a pod in use
	other    = "other"
)

// labels identify a row. The values are clean and bounded.
type labels struct {
	gpu, uuid                      string
	namespace, pod, container, job string
	user                           string // of the host: no process adds to a row of another user, whatever its environment is
	pid, comm, rank, actor         string // with Options.PID
}

// values returns the values of rowLabels, and of pidLabels with pid.
func (l *labels) values(pid bool, more ...string) []string {
	list := make([]string, 0, len(rowLabels)+len(pidLabels)+len(more))
	list = append(list, l.gpu, l.uuid, l.namespace, l.pod, l.container, l.job, l.user)
	if pid {
		list = append(list, l.pid, l.comm, l.rank, l.actor)
	}
	return append(list, more...)
}

// merged returns the labels of the row that stands in for those beyond a limit.
func (l *labels) merged() labels {
	x := labels{gpu: l.gpu, uuid: l.uuid, namespace: other, pod: other, container: other, job: other, user: other}
	if l.pid != "" {
		x.pid, x.comm, x.rank, x.actor = other, other, other, other
	}
	return x
}

// workloadLabels returns the labels of a process, without its GPU.
func workloadLabels(p *ledger.Process, pid bool) labels {
	l := labels{namespace: label(p.Namespace), pod: label(p.Pod), container: label(cmp.Or(p.PodContainer, report.ShortID(p.Container))), job: label(jobNumber(p.Job)), user: userLabel(p.User)}
	if pid {
		l.pid, l.comm, l.rank, l.actor = strconv.FormatUint(uint64(p.PID), 10), label(p.Comm), format.Digits(p.Rank), label(p.Actor)
	}
	return l
}

// userLabel returns the number of a user, "" if it is unknown.
func userLabel(user uint32) string {
	if user == 0 || user == ledger.NoUser {
		return ""
	}
	return strconv.FormatUint(uint64(user-1), 10)
}

// jobNumber returns the number of a job, as dcgm-exporter has it, or its name if it has none:
// "llama (4242)" is 4242.
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

// origin is who chooses the labels of a process: its container, and its user. Rows are shared out
// by both, as a user of the machine can name any container in the environment of its processes.
// Root stands for no user: most containers run as root.
type origin struct {
	container string
	user      uint32 // as in ledger.Process
}

const root = 1

func originOf(p *ledger.Process) origin { return origin{p.Container, p.User} }

// owner is whose rows are counted together.
func (o origin) owner() origin {
	if o.user == root || o.user == 0 {
		return o
	}
	return origin{user: o.user}
}

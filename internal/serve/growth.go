// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"time"

	"github.com/vramprof/vramprof/internal/serve/notify"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/verdict"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// restsAfter is how long a plane must not grow before its growth is told again.
const restsAfter = 10 * time.Minute

// planeKey is a plane of a GPU that NVML lists, so there are few.
type planeKey struct{ uuid, plane string }

// knownPlanes has when each plane that was told of grew last.
type knownPlanes map[planeKey]time.Time

// take reports whether growth is to be told now.
func (k knownPlanes) take(now time.Time, key planeKey) bool {
	last, known := k[key]
	k[key] = now
	return !known || now.Sub(last) > restsAfter
}

// tellPlanes logs and notifies once of each plane that grows for certain without a line that leaks:
// PyTorch's cache, the unexplained, and what no traced process has. Lines that leak are told by
// tellLeaks.
func (s *server) tellPlanes(known knownPlanes, snapshot *ledger.Snapshot, j *report.Judgement, gpus []json.GPUGrowthReport) {
	for i := range j.GPUs {
		b := &j.GPUs[i]
		if b.GPU == nil {
			continue
		}
		told := 0 // of b.Grows, which has a sentence on each row that grows
		for k := range b.Rows {
			r := &b.Rows[k]
			if !r.Grows() {
				continue
			}
			text := b.Grows[told]
			told++
			key := planeKey{b.GPU.UUID, report.PlaneKey(r.Plane)}
			if r.Class != verdict.Leaking || key.plane == report.PlaneTensor || key.plane == report.PlaneDriver || !known.take(snapshot.Wall, key) {
				continue
			}
			x := alertReport{
				Event: onGrowth, Time: snapshot.Wall, Host: s.host, GPU: &gpus[i], Device: format.Device(b.Device, ledger.Device), Stack: []string{},
				Plane: key.plane, BytesPerSecond: r.Rate, LiveBytes: r.Bytes, FullInSeconds: b.Full.Seconds(), Evidence: text,
			}
			var from notify.Source
			if r.Process >= 0 {
				p := &snapshot.Processes[r.Process]
				x.PID, x.Comm, x.Workload, from = p.PID, untrusted.Clean(p.Comm), json.NewWorkload(p.Workload), notify.Source{PID: p.PID, User: p.User}
			}
			if r.Site >= 0 {
				site := &snapshot.Sites[r.Site]
				x.API = untrusted.Clean(site.API)
				s.addStack(&x, site.Stack)
			}
			s.log.Warn("a GPU fills without a line that leaks", "gpu", b.Name, "plane", x.Plane, "bytes_per_second", x.BytesPerSecond, "full_in", b.Full.String(), "evidence", text)
			s.alerts.Tell(onLeak, from, x)
		}
	}
}

// growthOf returns the balance of a GPU, or nil.
func growthOf(gpus []json.GPUGrowthReport, uuid string) *json.GPUGrowthReport {
	for i := range gpus {
		if gpus[i].GPUUUID == untrusted.Clean(uuid) {
			return &gpus[i]
		}
	}
	return nil
}

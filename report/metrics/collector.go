// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vramprof/vramprof/report/watch"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// Options are the options of a Collector.
type Options struct {
	Verdicts *watch.Watcher // is offered each snapshot; nil: one that has no names of lines
	Version  string
	PID      bool // rows by process, with the labels pid, comm and rank
}

// Own is what vramprof itself uses and lost. What is 0 or nil and marked so has no metric.
type Own struct {
	Memory     uint64        // resident bytes, with files and rings
	Limit      uint64        // bytes of --max-memory
	Kernel     uint64        // bytes of the kernel half's maps; 0: unknown
	Began      time.Time     // when tracing began; zero: it did not
	Dropped    uint64        // how often detail was dropped for want of memory
	Unrecorded uint64        // out-of-memory errors without a record
	JobAge     time.Duration // of the oldest task of finding and probing processes
	Stalling   int           // processes that stall looks at them
	Archive    *Archive      // nil: none

	AlertsSkipped uint64  // events without a run of their command
	Unwind        []Table // what unwind tables share
	UnwindRefused uint64  // files without room for their unwind table
}

// Table is how full a table is.
type Table struct {
	Name       string
	Used, Size int
}

// Archive is the state of the archive.
type Archive struct {
	Bytes      uint64        // on disk
	Oldest     time.Time     // when its oldest capture began; zero without one
	LostEvents uint64        // that are in no capture
	LostTime   time.Duration // that is in no capture
	Failures   uint64        // of the disk
}

// Collector is a prometheus.Collector of the snapshot that was set last. Any goroutine may call its
// methods.
type Collector struct {
	options  Options
	families *[familyCount]Family

	mu      sync.Mutex // guards what follows
	table   *table
	census  census
	last    *ledger.Snapshot
	metrics []prometheus.Metric
	never   map[string]float64 // counters of the books, which never go down
}

// New returns a Collector without a snapshot. It has no metrics yet.
func New(o Options) *Collector {
	if o.Verdicts == nil {
		o.Verdicts = watch.New(nil, nil)
	}
	return &Collector{
		options: o, families: families(o.PID),
		table: newTable(), census: census{map[ledger.ProcessID]*counted{}, newCounted()}, never: map[string]float64{},
	}
}

// Set has the next scrapes show a snapshot. Setting the same one again changes nothing.
func (c *Collector) Set(s *ledger.Snapshot, own Own) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == c.last {
		return
	}
	c.last = s
	c.options.Verdicts.Offer(s)
	d := c.read(s)
	w := &writer{Collector: c, list: make([]prometheus.Metric, 0, len(c.metrics)+64)}
	c.table.each(w.row)
	w.gpus(d)
	w.growths(d, w.options.Verdicts.Latest())
	w.books(s)
	w.verdicts(s)
	w.own(own)
	c.metrics = w.list
}

// Describe sends the descriptors of all metrics.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for i := range c.families {
		to <- c.families[i].desc
	}
}

// Collect sends the metrics of the snapshot.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	list := c.metrics
	c.mu.Unlock()
	for _, m := range list {
		to <- m
	}
}

// writer makes metrics.
type writer struct {
	*Collector
	list []prometheus.Metric
}

func (w *writer) add(f id, value float64, values ...string) {
	x := &w.families[f]
	m, err := prometheus.NewConstMetric(x.desc, x.Type, value, values...)
	if err != nil {
		m = prometheus.NewInvalidMetric(x.desc, err)
	}
	w.list = append(w.list, m)
}

// total adds a counter that starts from what the books say. It stays where it was if they have
// less.
func (w *writer) total(f id, value uint64, values ...string) {
	key := w.families[f].Name + "\xff" + strings.Join(values, "\xff")
	w.never[key] = max(w.never[key], float64(value))
	w.add(f, w.never[key], values...)
}

func (w *writer) own(own Own) {
	w.add(ownMemory, float64(own.Memory))
	w.add(ownLimit, float64(own.Limit))
	if own.Kernel > 0 {
		w.add(kernelMemory, float64(own.Kernel))
	}
	for _, t := range own.Unwind {
		w.add(unwindTables, float64(t.Used), t.Name)
		w.add(unwindTablesSize, float64(t.Size), t.Name)
	}
	w.total(unwindTablesRefused, own.UnwindRefused)
	w.add(jobAge, own.JobAge.Seconds())
	w.add(stallingProcesses, float64(own.Stalling))
	w.total(alertsSkipped, own.AlertsSkipped)
	if !own.Began.IsZero() {
		w.add(startTime, float64(own.Began.UnixMilli())/1e3)
	}
	w.total(detailDropped, own.Dropped)
	w.total(unrecorded, own.Unrecorded)
	if a := own.Archive; a != nil {
		w.add(archiveBytes, float64(a.Bytes))
		if !a.Oldest.IsZero() {
			w.add(archiveOldest, float64(a.Oldest.UnixMilli())/1e3)
		}
		w.add(archiveLost, a.LostTime.Seconds())
		w.total(archiveLostEvents, a.LostEvents)
		w.total(archiveFailures, a.Failures)
	}
	w.add(labelSets, float64(len(w.table.rows)))
	w.add(mergedSets, float64(len(w.table.beyond)))
	w.add(buildInfo, 1, w.options.Version, revision(), runtime.Version())
}

// revision returns the commit of this build, "" if it is unknown.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, x := range info.Settings {
		if x.Key == "vcs.revision" {
			return x.Value
		}
	}
	return ""
}

func (c *Collector) read(s *ledger.Snapshot) *reading {
	d := &reading{
		s: s, table: c.table, counted: c.census.of(s.Processes), labels: make([]labels, len(s.Processes)),
		gpus: map[string]*gpu{}, rows: map[onGPU]*row{}, pid: c.options.PID,
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		d.gpus[g.UUID] = &gpu{GPU: g, label: strconv.Itoa(g.Index), read: g.Time}
	}
	for i := range s.GPUs {
		if parent := d.gpus[s.GPUs[i].Parent]; parent != nil {
			parent.divided = true
		}
	}
	for i := range d.labels {
		d.labels[i] = workloadLabels(&s.Processes[i], d.pid)
	}
	c.table.begin()
	d.sumPlanes()
	d.sumOutside()
	d.findPeaks()
	d.sumAllocators()
	d.count()
	d.countGone(c.census.gone)
	d.judge(c.options.Verdicts.Latest())
	c.table.end()
	return d
}

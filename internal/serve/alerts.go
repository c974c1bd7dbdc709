// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/fault"
	"github.com/vramprof/vramprof/internal/oomrecord"
	"github.com/vramprof/vramprof/internal/serve/notify"
	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report/format"
	"github.com/vramprof/vramprof/report/frames"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/tracer/ledger"
	"github.com/vramprof/vramprof/tracer/oom"
	"github.com/vramprof/vramprof/tracer/sandbox"
)

const (
	onOOM    = "oom"
	onLeak   = "leak"
	onGrowth = "growth" // runs the command of onLeak

	alertTime    = 30 * time.Second // of one command
	alertEnd     = 5 * time.Second  // of one that runs when vramprof ends
	alertColumns = 240              // of one frame
	alertFrames  = 32               // of a stack in an notify
)

// Alerts are the commands that events run.
type Alerts struct {
	OnOOM, OnLeak string // for sh -c; "": none
	User          string // who runs them
	Limit         int    // runs of each per minute
}

// alertReport is what a command gets. Fields are only added.
type alertReport struct {
	Event string    `json:"event"` // "oom", "leak" or "growth"
	Time  time.Time `json:"time"`
	// Of "leak" and "growth": what the GPU is used for, and what of it grows.
	GPU      *json.GPUGrowthReport `json:"gpu,omitempty"`
	Host     string                `json:"host"`
	PID      uint32                `json:"pid"`
	Comm     string                `json:"comm,omitempty"`
	Workload *json.WorkloadReport  `json:"workload,omitempty"`
	Device   string                `json:"device"` // "cuda:0", "host", or "unknown"
	API      string                `json:"api,omitempty"`
	Line     string                `json:"line,omitempty"` // of the user's own code
	Stack    []string              `json:"stack"`          // innermost first, at most 32 frames

	// Of "oom".
	RequestedBytes uint64 `json:"requested_bytes,omitempty"` // 0: unknown
	AllocatedBytes uint64 `json:"allocated_bytes,omitempty"` // by PyTorch's allocator on that device
	ReservedBytes  uint64 `json:"reserved_bytes,omitempty"`

	// Of "leak".
	BytesPerSecond  float64 `json:"bytes_per_second,omitempty"`
	BytesPerStep    uint64  `json:"bytes_per_step,omitempty"` // 0: unknown
	LiveBytes       uint64  `json:"live_bytes,omitempty"`
	LiveAllocations uint64  `json:"live_allocations,omitempty"`
	FullInSeconds   float64 `json:"full_in_seconds,omitempty"` // until the GPU is full; 0: unknown
	Evidence        string  `json:"evidence,omitempty"`

	// Of "growth", which has these too.
	Plane string `json:"plane,omitempty"` // cache, unexplained or others
}

// startAlerts starts the process that runs --on-oom and --on-leak.
func (s *server) startAlerts(a Alerts) error {
	commands := map[string]string{}
	for kind, command := range map[string]string{onOOM: a.OnOOM, onLeak: a.OnLeak} {
		if command != "" {
			commands[kind] = command
		}
	}
	if len(commands) == 0 {
		return nil
	}
	o := notify.Options{Commands: commands, Limit: a.Limit, Timeout: alertTime, Self: "/proc/self/exe", Done: s.alerted}
	var err error
	if o.UID, o.GID, err = idsOf(a.User); err != nil {
		return fault.Usage(fmt.Errorf("--alert-user: %w", err))
	}
	held, err := sandbox.Effective()
	if os.Geteuid() != 0 && (err != nil || !held.Has(sandbox.NewSet(unix.CAP_SETUID, unix.CAP_SETGID))) {
		o.UID, o.GID = 0, 0 // it cannot become another user; the commands have no capabilities anyway
	}
	if s.alerts, err = notify.Start(o); err != nil {
		return fault.New(fault.Failed, err)
	}
	return nil
}

// endAlerts ends the process; a command that runs may take alertEnd.
func (s *server) endAlerts() {
	ctx, cancel := context.WithTimeout(context.Background(), alertEnd)
	defer cancel()
	s.alerts.Close(ctx)
}

func idsOf(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return 0, 0, fmt.Errorf("there is no user %q", name)
		}
	}
	uid, err = strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err = errors.Join(err, err2); err == nil && uid == 0 {
		err = errors.New("commands do not run as root")
	}
	return uid, gid, err
}

func (s *server) alerted(x notify.Result) {
	if x.Error != "" {
		s.log.Warn("the command of --on-"+x.Kind+" failed", "error", x.Error, "output", untrusted.Clean(x.Output))
	}
}

// outOfMemory records an error. If it is within the limit of records, outOfMemory also logs it and
// has --on-oom run: a program may fail a thousand times per second.
func (s *server) outOfMemory(o oom.Error) {
	if s.ooms != nil {
		s.ooms.Add(o)
	}
	if !o.Record {
		return
	}
	x := alertReport{
		Event: onOOM, Time: time.Now(), Host: s.host, PID: o.PID, Comm: untrusted.Clean(o.Comm), Device: format.Device(o.Device, o.Kind), API: untrusted.Clean(o.API),
		AllocatedBytes: o.Allocated, ReservedBytes: o.Reserved,
	}
	if o.Size != ledger.UnknownSize {
		x.RequestedBytes = o.Size
	}
	if o.Books != nil {
		x.Workload = workloadIn(o.Books, o.PID)
	}
	s.addStack(&x, o.Stack)
	s.log.Error("out of memory", "pid", x.PID, "comm", x.Comm, "workload", x.Workload, "device", x.Device, "requested_bytes", x.RequestedBytes, "line", x.Line)
	if pages := s.pages.Load(); pages != nil {
		pages.AddOOM(*oomrecord.Report(o))
	}
	s.alerts.Tell(onOOM, notify.Source{PID: o.PID, User: o.User}, x)
}

// workloadIn returns the workload of the newest process with a pid.
func workloadIn(s *ledger.Snapshot, pid uint32) (w *json.WorkloadReport) {
	for i := range s.Processes {
		if s.Processes[i].PID == pid {
			w = json.NewWorkload(s.Processes[i].Workload)
		}
	}
	return w
}

// addStack adds the frames of a stack and the line of the user's own code.
func (s *server) addStack(x *alertReport, id uint64) {
	stack := s.Stack(id)
	x.Stack = []string{}
	for i := range stack[:min(len(stack), alertFrames)] {
		x.Stack = append(x.Stack, frames.Text(&stack[i], alertColumns))
	}
	if len(stack) > 0 {
		x.Line = frames.Text(&stack[frames.Headline(stack)], alertColumns)
	}
}

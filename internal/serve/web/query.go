// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const (
	maxSeconds = 300     // of ?seconds=
	maxValue   = 1 << 10 // bytes of a parameter
	maxTop     = 10000   // of ?top=
	maxEventID = 64      // bytes of ?after=
)

// everybody is the user of whom sees the processes of all users.
const everybody = 0

// apiViews are the views of one moment.
var apiViews = []string{"summary", "tree", "table", "cache"}

// query is what a request selects of the books.
type query struct {
	pid       uint32 // 0: all
	namespace string // of pod; "": any
	pod       string // "": all
	process   string // pid or name; "": all
	plane     string // "": all
	device    string // "cuda:0" or a GPU's UUID; "": all
	at        time.Time
	seconds   int
	debug     bool
	view      string
	top       int
	older     time.Duration
	after     string // id of an event; "": none
	user      uint32 // whose processes the client sees, plus 1; everybody
}

// parseQuery reads the parameters of a request. Those that the endpoint does not know are errors: a
// filter with a typing mistake must not show everything.
func parseQuery(raw string, known ...string) (q query, err error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, badRequest("malformed query: " + err.Error())
	}
	for name, list := range values {
		if !slices.Contains(known, name) {
			return q, badRequest(fmt.Sprintf("unknown parameter %q (known: %s)", untrusted.Clean(name), strings.Join(known, ", ")))
		}
		if len(slices.Compact(list)) != 1 { // some scrapers repeat seconds
			return q, badRequest(fmt.Sprintf("parameter %s has %d values", name, len(list)))
		}
		if len(list[0]) > maxValue {
			return q, badRequest(fmt.Sprintf("parameter %s is longer than %d bytes", name, maxValue))
		}
		if problem := q.set(name, list[0]); problem != "" {
			return q, badRequest(fmt.Sprintf("%s=%s: %s", name, untrusted.Clean(list[0]), problem))
		}
	}
	switch {
	case q.seconds > 0 && q.debug:
		return q, badRequest("seconds and debug exclude each other")
	case q.seconds > 0 && !q.at.IsZero():
		return q, badRequest("seconds and at exclude each other")
	}
	return q, nil
}

// set reads one parameter, and returns what is wrong with it.
func (q *query) set(name, text string) (problem string) {
	switch name {
	case "pid":
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n == 0 {
			return "not a process number"
		}
		q.pid = uint32(n)
	case "pod":
		if namespace, pod, ok := strings.Cut(text, "/"); ok {
			q.namespace, q.pod = namespace, pod
		} else {
			q.pod = text
		}
		if q.pod == "" {
			return "not the name of a pod (pod=NAME, pod=NAMESPACE/NAME)"
		}
	case "process":
		if q.process = text; text == "" {
			return "not a process number or name"
		}
	case "plane":
		if !slices.Contains(planes, text) {
			return "not a plane (" + strings.Join(planes, ", ") + ")"
		}
		q.plane = text
	case "device":
		if q.device = deviceOf(text); q.device == "" {
			return "not a device (0, cuda:0, GPU-…, host, cpu)"
		}
	case "seconds":
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxSeconds {
			return fmt.Sprintf("not a number from 1 to %d", maxSeconds)
		}
		q.seconds = n
	case "at":
		t, err := parseTime(text)
		if err != nil {
			return "not a time (2026-11-22T03:12:00Z, 2026-11-22 03:12, seconds since 1970)"
		}
		q.at = t
	case "debug":
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil {
			return "not a number"
		}
		q.debug = n > 0
	case "gc": // of Go's profiles: there is nothing to collect
		if _, err := strconv.ParseUint(text, 10, 8); err != nil {
			return "not a number"
		}
	case "view":
		if !slices.Contains(apiViews, text) {
			return "not a view of now (" + strings.Join(apiViews, ", ") + "; the page has timelines)"
		}
		q.view = text
	case "top":
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxTop {
			return fmt.Sprintf("not a number from 1 to %d", maxTop)
		}
		q.top = n
	case "after":
		if len(text) > maxEventID {
			return "not the id of an event"
		}
		q.after = text
	case "older":
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 {
			return "not a duration (30s, 10m)"
		}
		q.older = d
	}
	return ""
}

// planes are those that samples of a profile have.
var planes = []string{
	report.PlaneTensor, report.PlaneCache, report.PlaneDriver, report.PlaneRounding, report.PlaneBefore, report.PlaneUnexplained, report.PlaneHost, report.PlaneManaged, report.PlaneSystem, report.PlaneImported,
}

// deviceOf returns how samples name a device: "0" is "cuda:0". It returns "" for what is none.
func deviceOf(text string) string {
	switch number := strings.TrimPrefix(text, "cuda:"); {
	case text == "host" || text == "cpu" || text == "unknown":
		return text
	case strings.HasPrefix(text, "GPU-") || strings.HasPrefix(text, "MIG-"):
		return text
	default:
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return ""
		}
		return fmt.Sprintf("cuda:%d", n)
	}
}

// timeLayouts are those of times without a zone, which are the machine's local time.
var timeLayouts = []string{"2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04"}

// parseTime reads a time of day: RFC 3339, local time, or seconds since 1970.
func parseTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return t, nil
	}
	for _, layout := range timeLayouts {
		if t, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return t, nil
		}
	}
	seconds, err := strconv.ParseUint(text, 10, 32)
	if err != nil || seconds == 0 {
		return time.Time{}, fmt.Errorf("%q is not a time", text)
	}
	return time.Unix(int64(seconds), 0), nil
}

// selects reports whether a query selects a process.
func (q *query) selects(p *ledger.Process) bool {
	return (q.user == everybody || p.User == q.user) && (q.pid == 0 || p.PID == q.pid) &&
		(q.pod == "" || untrusted.Clean(p.Pod) == q.pod && (q.namespace == "" || untrusted.Clean(p.Namespace) == q.namespace))
}

// who names the processes that are selected, after before; "" if those are all.
func (q *query) who(before string) string {
	var list []string
	if q.pid != 0 {
		list = append(list, fmt.Sprintf("process %d", q.pid))
	}
	if q.pod != "" {
		list = append(list, "in pod "+strings.TrimPrefix(q.namespace+"/"+q.pod, "/"))
	}
	if list == nil {
		return ""
	}
	return before + untrusted.Clean(strings.Join(list, " and "))
}

// key names everything that an answer depends on besides the moment.
func (q *query) key(r *http.Request) string { return r.URL.Path + fmt.Sprintf("?%+v", *q) }

// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/lazyregexp"
	"github.com/vramprof/vramprof/internal/untrusted"
)

// RecordVersion is the version of Record.
const RecordVersion = 1

// recordsName is the folder of records in an archive.
const recordsName = "oom"

const (
	maxRecord  = 1 << 20  // bytes of a Record as JSON
	maxContent = 32 << 20 // bytes of the text and of the profile
	maxOthers  = 64       // processes of a Record
	maxLine    = 1 << 10  // bytes of a line of code
)

// Workload is what a process runs for; unknown fields are empty.
type Workload struct {
	Container string `json:"container,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Job       string `json:"job,omitempty"`
	Rank      string `json:"rank,omitempty"`
}

// Record is an out-of-memory error that ended a program, in short. Beside it are a text and a pprof
// profile. Sizes are bytes. Fields are only added within a version.
type Record struct {
	Version       int             `json:"version"`
	Time          time.Time       `json:"time"`
	PID           uint32          `json:"pid"`
	User          *uint32         `json:"user,omitempty"` // uid of the process; absent if unknown
	Comm          string          `json:"comm"`
	Workload      Workload        `json:"workload"`
	Host          string          `json:"host,omitempty"`
	API           string          `json:"api"`                       // "torch" for PyTorch's allocator, else the function
	Device        string          `json:"device"`                    // as the process counts them, "cuda:0"
	RequestedSize *uint64         `json:"requested_bytes,omitempty"` // absent if unknown
	Allocated     uint64          `json:"allocated_bytes,omitempty"` // as PyTorch's allocator reports it
	Reserved      uint64          `json:"reserved_bytes,omitempty"`
	Line          string          `json:"line,omitempty"` // that asked for the memory
	GPU           *RecordGPU      `json:"gpu,omitempty"`  // absent if unknown
	Own           uint64          `json:"own_bytes"`      // of the process on that GPU
	Others        []RecordProcess `json:"others"`         // other processes on that GPU, largest first
	MoreOthers    int             `json:"more_others,omitempty"`
	Text          string          `json:"text"`              // name of the text beside it
	Profile       string          `json:"profile,omitempty"` // likewise; absent if it could not be written
	Path          string          `json:"-"`                 // of the text, set by ReadRecords
}

// RecordGPU is the GPU of a Record, as NVML read it right after the error.
type RecordGPU struct {
	UUID  string `json:"uuid"`
	Index int    `json:"index"`
	Name  string `json:"name"`
	Total uint64 `json:"total_bytes"`
	Used  uint64 `json:"used_bytes"`
}

// RecordProcess is another process on the GPU.
type RecordProcess struct {
	PID       uint32   `json:"pid"`
	Comm      string   `json:"comm"`
	Workload  Workload `json:"workload"`
	Bytes     uint64   `json:"bytes"` // on that GPU
	Traced    bool     `json:"traced"`
	Line      string   `json:"line,omitempty"` // that holds most of it
	LineBytes uint64   `json:"line_bytes,omitempty"`
}

// Records keeps records of out-of-memory errors in the folder "oom" of an archive, apart from its
// captures: at most so many. The oldest goes first of the process that has the most, of the user
// who has the most, so that a loop does not remove the records of others. It is safe for concurrent
// use.
type Records struct {
	path string
	keep int

	mu     sync.Mutex        // guards what follows
	dir    *os.Root          // nil: the disk did not let it be opened
	last   uint64            // number
	userOf map[string]uint32 // by record; noUser if unknown
}

const noUser = math.MaxUint32

// A record is "20261122T031207Z-000003-4242.json", ".txt" and ".pb.gz".
var recordName = lazyregexp.New(`^(\d{8}T\d{6}Z-(\d{6,9})-(\d{1,10}))\.(?:json|txt|pb\.gz)$`)

// OpenRecords creates the folder if it is missing. If the disk does not let it, Add does it later.
func OpenRecords(archive string, keep int) (*Records, error) {
	r := &Records{path: filepath.Join(archive, recordsName), keep: max(keep, 1), userOf: map[string]uint32{}}
	if err := r.open(); err != nil && !isDisk(err) {
		return nil, fmt.Errorf("write to %s: %w", r.path, cause(err))
	}
	return r, nil
}

func (r *Records) open() error {
	archive, err := openFolder(filepath.Dir(r.path))
	if err != nil {
		return err
	}
	archive.Close()
	dir, err := openFolder(r.path)
	if err != nil {
		return err
	}
	bases, err := recordsIn(dir)
	if err != nil {
		dir.Close()
		return err
	}
	if r.dir = dir; len(bases) > 0 {
		r.last = numberOf(bases[len(bases)-1])
	}
	return nil
}

// Close closes the folder.
func (r *Records) Close() error {
	if r.dir == nil {
		return nil
	}
	return r.dir.Close()
}

func numberOf(base string) uint64 {
	n, _ := strconv.ParseUint(recordName.FindStringSubmatch(base + ".txt")[2], 10, 64)
	return n
}

func pidOf(base string) uint32 {
	n, _ := strconv.ParseUint(recordName.FindStringSubmatch(base + ".txt")[3], 10, 32)
	return uint32(n)
}

// bases returns the names without endings, in the order in which they were written.
func (r *Records) bases() ([]string, error) { return recordsIn(r.dir) }

func recordsIn(dir *os.Root) (list []string, err error) {
	d, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if m := recordName.FindStringSubmatch(name); m != nil {
			list = append(list, m[1])
		}
	}
	slices.SortFunc(list, func(a, b string) int { return cmp.Or(cmp.Compare(numberOf(a), numberOf(b)), cmp.Compare(a, b)) })
	return slices.Compact(list), nil
}

// Add writes a record with its text and profile, and returns the path of the text. The oldest
// records go, also for room on a full disk. If only the profile cannot be written, there are a path
// and an error.
func (r *Records) Add(x Record, text, profile []byte) (path string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dir == nil {
		if err := r.open(); err != nil {
			return "", fmt.Errorf("write to %s: %w", r.path, cause(err))
		}
	}
	r.last++
	base := fmt.Sprintf("%s-%06d-%d", x.Time.UTC().Format(nameTime), r.last, x.PID)
	r.userOf[base] = x.user()
	x.clean()
	x.Version, x.Text = RecordVersion, base+".txt"
	if err = r.write(base+".txt", text); err != nil {
		return "", fmt.Errorf("write to %s: %w", r.path, cause(err))
	}
	if err = r.write(base+".pb.gz", profile); err == nil {
		x.Profile = base + ".pb.gz"
	}
	content, err2 := json.MarshalIndent(&x, "", "  ")
	if err2 == nil {
		err2 = r.write(base+".json", append(content, '\n'))
	}
	r.shrink(r.keep)
	if err = errors.Join(err, err2); err != nil {
		err = fmt.Errorf("write to %s: %w", r.path, cause(err))
	}
	return filepath.Join(r.path, base+".txt"), err
}

// write creates a file that is whole once it has its name.
func (r *Records) write(name string, content []byte) error {
	if len(content) > maxContent {
		return fmt.Errorf("%d bytes are too many", len(content))
	}
	for {
		err := r.create("."+name, content)
		if err == nil {
			return r.dir.Rename("."+name, name)
		}
		_ = r.dir.Remove("." + name)
		bases, listErr := r.bases()
		if !isFull(err) || listErr != nil || len(bases) < 3 || !r.shrink(len(bases)-1) {
			return err
		}
	}
}

func (r *Records) create(name string, content []byte) error {
	f, err := createNew(r.dir, name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// shrink removes records until there are at most so many. It reports whether it removed one.
func (r *Records) shrink(most int) (removed bool) {
	bases, err := r.bases()
	if err != nil {
		return false
	}
	for len(bases) > most {
		i := r.victim(bases)
		for _, ending := range []string{".json", ".txt", ".pb.gz"} {
			if err := r.dir.Remove(bases[i] + ending); err == nil {
				removed = true
			}
		}
		delete(r.userOf, bases[i])
		bases = slices.Delete(bases, i, i+1)
	}
	return removed
}

// victim returns which record goes first.
func (r *Records) victim(bases []string) int {
	type process struct{ user, pid uint32 }
	users, processes := map[uint32]int{}, map[process]int{}
	of := func(base string) process { return process{r.user(base), pidOf(base)} }
	for _, base := range bases {
		p := of(base)
		users[p.user]++
		processes[p]++
	}
	first, mostOfUser, mostOfProcess := 0, 0, 0
	for i, base := range bases {
		p := of(base)
		if c := cmp.Or(cmp.Compare(users[p.user], mostOfUser), cmp.Compare(processes[p], mostOfProcess)); c > 0 {
			first, mostOfUser, mostOfProcess = i, users[p.user], processes[p]
		}
	}
	return first
}

// user returns the user of a record, which it reads if another session wrote it.
func (r *Records) user(base string) uint32 {
	user, ok := r.userOf[base]
	if !ok {
		x, _ := readRecord(r.dir, base)
		user = x.user()
		r.userOf[base] = user
	}
	return user
}

func (x *Record) user() uint32 {
	if x.User == nil {
		return noUser
	}
	return *x.User
}

// clean bounds a record, and makes what comes from traced processes safe to print.
func (x *Record) clean() {
	x.Comm, x.API, x.Host, x.Device = clean(x.Comm), clean(x.API), clean(x.Host), clean(x.Device)
	x.Workload.clean()
	x.Line = cleanLine(x.Line)
	if x.GPU != nil {
		x.GPU.UUID, x.GPU.Name = clean(x.GPU.UUID), clean(x.GPU.Name)
	}
	if more := len(x.Others) - maxOthers; more > 0 {
		x.Others, x.MoreOthers = x.Others[:maxOthers], x.MoreOthers+more
	}
	for i := range x.Others {
		o := &x.Others[i]
		o.Comm, o.Line = clean(o.Comm), cleanLine(o.Line)
		o.Workload.clean()
	}
}

func (w *Workload) clean() {
	for _, s := range []*string{&w.Container, &w.Pod, &w.Namespace, &w.Job, &w.Rank} {
		*s = clean(*s)
	}
}

// ReadRecords returns the records of an archive, newest first. An archive without any has none.
func ReadRecords(archive string) ([]Record, error) {
	path := filepath.Join(archive, recordsName)
	dir, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, cause(err))
	}
	defer dir.Close()
	bases, err := recordsIn(dir)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, cause(err))
	}
	var list []Record
	for _, base := range slices.Backward(bases) {
		if x, ok := readRecord(dir, base); ok {
			x.Path = filepath.Join(path, base+".txt")
			list = append(list, x)
		}
	}
	return list, nil
}

func readRecord(dir *os.Root, base string) (x Record, ok bool) {
	f, err := dir.OpenFile(base+".json", os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return x, false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil || len(b) > maxRecord || json.Unmarshal(b, &x) != nil || x.Version != RecordVersion {
		return x, false
	}
	x.clean()
	return x, true
}

// Records returns the records of out-of-memory errors, newest first.
func (a *Archive) Records() ([]Record, error) { return ReadRecords(a.dir) }

// cleanLine bounds a line of code.
func cleanLine(s string) string { return untrusted.Clean(s[:min(len(s), maxLine)]) }

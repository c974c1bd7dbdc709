// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"

	"github.com/vramprof/vramprof/tracer/ledger/quota"
	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// Sizes of the kernel's tables that the unwind tables of all files share. The tables of PyTorch
// with CUDA have some 6 million rows, and the libraries of Debian's PyTorch some 3,400 different
// rules.
const (
	maxFiles = 16384
	maxRows  = 64 << 20 // rounded up to a power of two for each file
	maxPages = 1 << 17  // of 64 KiB of code
	maxRules = 1 << 15  // numbers with unwindcache.Command are commands

	// The profiler numbers its own rules, those of an arm64 kernel's vDSO, from 0 on.
	profilerRules = 256
)

// amounts is how much of each of these tables something takes.
type amounts [4]int

// Indexes of amounts.
const (
	ofFiles = iota
	ofRows
	ofPages
	ofRules
)

var amountNames = [...]string{ofFiles: "files", ofRows: "rows", ofPages: "pages of code", ofRules: "rules"}

// shares gives each file's unwind table its part of the kernel's tables, by quota.Quota, and counts
// it for the process in which the file was first seen, and for its user, until the table is
// removed. A rule counts for the process that needed it first, until no table has it.
type shares struct {
	put func(number uint16, rule stackdeltatypes.UnwindInfo) error // writes a rule into the kernel

	mu       sync.Mutex
	tables   [len(amounts{})]quota.Quota
	users    map[uint32]*amounts
	holders  map[uint32]*holder // by pid
	files    map[host.FileID]fileShare
	known    map[unwindcache.Rule]*rule
	next     uint16   // the least number that no rule has had
	free     []uint16 // numbers below it that no rule has
	waiting  map[uint32]refusal
	given    time.Time // when a table was removed last
	refusals uint64
}

// holder is a process that holds something. It stays until all of it is given back: another process
// may have its pid by then.
type holder struct {
	user uint32
	held amounts
}

type fileShare struct {
	holder *holder
	taken  amounts // without rules
	rules  []*rule
}

type rule struct {
	rule   unwindcache.Rule
	number uint16
	tables int // that have it
	holder *holder
}

// refusal is why a process does not have all of its tables, and since when.
type refusal struct {
	text string
	at   time.Time
}

func newShares(put func(uint16, stackdeltatypes.UnwindInfo) error) *shares {
	s := &shares{put: put, users: map[uint32]*amounts{}, holders: map[uint32]*holder{}, files: map[host.FileID]fileShare{},
		known: map[unwindcache.Rule]*rule{}, next: profilerRules, waiting: map[uint32]refusal{}}
	for i, size := range (amounts{ofFiles: maxFiles, ofRows: maxRows, ofPages: maxPages, ofRules: maxRules - profilerRules}) {
		s.tables[i] = quota.New(size)
	}
	return s
}

// take reserves the part of a file's table that a process of a user needs, and returns the numbers
// of its rules, which are in the kernel then. It takes all or nothing.
func (s *shares) take(file host.FileID, pid, user uint32, n amounts, list []unwindcache.Rule) ([]uint16, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holders[pid]
	if h == nil {
		h = &holder{user: user}
	}
	n[ofFiles], n[ofRules] = 1, 0
	for _, x := range list {
		if s.known[x] == nil {
			n[ofRules]++
		}
	}
	of := s.ofUser(h.user)
	for i, size := range n {
		if t := &s.tables[i]; !t.RoomFor(size, h.held[i], of[i]) {
			text := fmt.Sprintf("stacks of process %d are truncated: the unwind table of a file needs %d %s; of %d, the process has %d, its user %d, and all processes %d",
				pid, size, amountNames[i], t.Size(), h.held[i], of[i], t.Used())
			s.waiting[pid] = refusal{text, time.Now()}
			s.refusals++
			s.clean(h.user)
			return nil, fmt.Errorf("no room for %d %s of unwind tables", size, amountNames[i])
		}
	}
	s.holders[pid] = h
	f := fileShare{holder: h, taken: n}
	f.taken[ofRules] = 0
	s.count(h, f.taken, 1)
	s.files[file] = f
	numbers := make([]uint16, len(list))
	for i, x := range list {
		r, err := s.ruleFor(x, h)
		if err != nil {
			s.release(file)
			return nil, err
		}
		r.tables++
		numbers[i] = r.number
		f.rules = append(f.rules, r)
		s.files[file] = f
	}
	return numbers, nil
}

// ruleFor returns a rule, which it writes into the kernel if no table has it yet.
func (s *shares) ruleFor(x unwindcache.Rule, h *holder) (*rule, error) {
	if r := s.known[x]; r != nil {
		return r, nil
	}
	r := &rule{rule: x, holder: h}
	if last := len(s.free) - 1; last >= 0 {
		r.number, s.free = s.free[last], s.free[:last]
	} else {
		r.number = s.next
		s.next++
	}
	if err := s.put(r.number, stackdeltatypes.UnwindInfo(x)); err != nil {
		s.free = append(s.free, r.number)
		return nil, fmt.Errorf("write unwind rule %d: %w", r.number, err)
	}
	s.known[x] = r
	s.count(h, amounts{ofRules: 1}, 1)
	return r, nil
}

// give releases what a file's table takes. The kernel half must no longer read the table: other
// rules get the numbers of its rules.
func (s *shares) give(file host.FileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(file)
}

func (s *shares) release(file host.FileID) {
	f, ok := s.files[file]
	if !ok {
		return
	}
	delete(s.files, file)
	s.count(f.holder, f.taken, -1)
	for _, r := range f.rules {
		if r.tables--; r.tables == 0 {
			delete(s.known, r.rule)
			s.free = append(s.free, r.number)
			s.count(r.holder, amounts{ofRules: 1}, -1)
		}
	}
	s.clean(f.holder.user)
	s.given = time.Now()
}

func (s *shares) ofUser(user uint32) *amounts {
	if s.users[user] == nil {
		s.users[user] = &amounts{}
	}
	return s.users[user]
}

// clean forgets a user who holds nothing.
func (s *shares) clean(user uint32) {
	if of := s.users[user]; of != nil && *of == (amounts{}) {
		delete(s.users, user)
	}
}

// count adds n times what a process takes.
func (s *shares) count(h *holder, taken amounts, n int) {
	of := s.ofUser(h.user)
	for i, size := range taken {
		s.tables[i].Add(n * size)
		h.held[i] += n * size
		of[i] += n * size
	}
}

// forget has the next process with a pid begin with nothing. What the one that has ended still
// holds is its user's.
func (s *shares) forget(pid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.holders, pid)
	delete(s.waiting, pid)
}

// tryAgain is how long after a refusal a process may get its tables: the profiler does not ask
// again for 90 seconds.
const tryAgain = 100 * time.Second

// retry returns the processes that were refused a table before others were removed.
func (s *shares) retry(now time.Time) (pids []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid, r := range s.waiting {
		if now.Sub(r.at) > tryAgain && s.given.After(r.at) {
			pids = append(pids, pid)
			delete(s.waiting, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// refused returns at most most sentences about processes that lack tables.
func (s *shares) refused(most int) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.waiting {
		if len(list) < most {
			list = append(list, r.text)
		}
	}
	return list
}

// used returns how much of the tables is taken.
func (s *shares) used() (n amounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		n[i] = s.tables[i].Used()
	}
	return n
}

// noUser is the user of processes that ended before their user was read.
const noUser = math.MaxUint32

// userOf returns the real user of a process from /proc/PID/status, or noUser if the process has
// ended. The owner of /proc/PID is root if the process is not dumpable.
func userOf(pid uint32) uint32 {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return noUser
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, 4096))
	_, rest, _ := bytes.Cut(text, []byte("\nUid:\t"))
	id, _, _ := bytes.Cut(rest, []byte("\t"))
	user, err := strconv.ParseUint(string(id), 10, 32)
	if err != nil {
		return noUser
	}
	return uint32(user)
}

// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"

	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// array is the kernel's array of rules.
type array map[uint16]stackdeltatypes.UnwindInfo

func (a array) put(number uint16, rule stackdeltatypes.UnwindInfo) error {
	a[number] = rule
	return nil
}

// rulesFrom returns n different rules, which only libraries with overlapping numbers share.
func rulesFrom(first, n int) (list []unwindcache.Rule) {
	for i := range n {
		list = append(list, unwindcache.Rule{Param: int32(first + i)})
	}
	return list
}

// has reports whether the numbers stand for the rules in the kernel.
func (a array) has(numbers []uint16, list []unwindcache.Rule) bool {
	for i, number := range numbers {
		if a[number] != stackdeltatypes.UnwindInfo(list[i]) || number < profilerRules {
			return false
		}
	}
	return len(numbers) == len(list)
}

func TestOneUserDoesNotTakeTheTablesOfOthers(t *testing.T) {
	kernel := array{}
	s := newShares(kernel.put)
	const attacker, honest = 1000, 1001
	n := 0
	fill := func(pid, user uint32, what amounts, list func() []unwindcache.Rule) {
		for {
			if _, err := s.take(host.FileID(n), pid, user, what, list()); err != nil {
				return
			}
			n++
		}
	}
	for pid := uint32(1); pid < 9; pid++ {
		fill(pid, attacker, amounts{ofRows: 1 << 20}, func() []unwindcache.Rule { return nil })
		fill(pid, attacker, amounts{ofPages: 4000}, func() []unwindcache.Rule { return nil })
		fill(pid, attacker, amounts{}, func() []unwindcache.Rule { return rulesFrom(n*500, 500) })
		fill(pid, attacker, amounts{}, func() []unwindcache.Rule { return nil })
	}
	for i, used := range s.used() {
		if size := s.tables[i].Size(); used > size/2 || used < size/2-size/32 {
			t.Errorf("one user has %d of %d %s", used, size, amountNames[i])
		}
	}
	list := rulesFrom(1<<30, 3400) // as many as the libraries of a PyTorch have
	numbers, err := s.take(1<<40, 20, honest, amounts{ofRows: 6 << 20, ofPages: 20_000}, list)
	if err != nil || !kernel.has(numbers, list) {
		t.Errorf("a job that starts later gets no table: %v", err)
	}
	if texts := s.refused(100); len(texts) != 8 {
		t.Errorf("%d processes lack tables: %q", len(texts), texts)
	}
	used := s.used()
	for pid := range uint32(30) {
		s.forget(pid)
	}
	for i := range n {
		s.give(host.FileID(i))
	}
	if s.give(1 << 40); s.used() != (amounts{}) || len(s.users) != 0 || len(s.known) != 0 {
		t.Errorf("of %v, %v is not given back, of %d users", used, s.used(), len(s.users))
	}
}

// A year in which 2,000 libraries come and go, each with rules of its own and some that many have.
func TestAYearOfLibrariesLeavesRoomForRules(t *testing.T) {
	kernel := array{}
	s := newShares(kernel.put)
	random := rand.New(rand.NewPCG(1, 2))
	type loaded struct {
		list    []unwindcache.Rule
		numbers []uint16
	}
	now := map[host.FileID]loaded{}
	const libraries, atOnce, days = 2000, 12, 365
	for day := range days {
		for range libraries / days * 2 {
			file := host.FileID(random.IntN(libraries))
			if _, ok := now[file]; ok {
				continue
			}
			list := append(rulesFrom(int(file)*300, 300), rulesFrom(1<<30+int(file)%40*10, 200)...)
			pid := uint32(random.IntN(100))
			numbers, err := s.take(file, pid, pid%3, amounts{ofRows: 1 << 10, ofPages: 10}, list)
			if err != nil {
				t.Fatalf("day %d, with %d libraries loaded: %v", day, len(now), err)
			}
			now[file] = loaded{list, numbers}
			s.forget(pid)
			for old := range maps.Keys(now) {
				if len(now) > atOnce {
					s.give(old)
					delete(now, old)
				}
			}
			for file, x := range now {
				if !kernel.has(x.numbers, x.list) {
					t.Fatalf("day %d: the rules of file %d are those of another", day, file)
				}
			}
		}
	}
	if int(s.next) > profilerRules+(atOnce+1)*500 {
		t.Errorf("%d numbers are in use for %d libraries", s.next, atOnce)
	}
	for file := range now {
		s.give(file)
	}
	if s.used() != (amounts{}) {
		t.Errorf("%v is left", s.used())
	}
}

func TestAProcessGetsItsTablesWhenOthersGo(t *testing.T) {
	s := newShares(array{}.put)
	for i := range 3 {
		if _, err := s.take(host.FileID(i), uint32(i), uint32(i), amounts{}, rulesFrom(i*1000000, 8000)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.take(9, 9, 9, amounts{}, rulesFrom(1<<30, 600)); err == nil {
		t.Fatal("there is room for more than the reserve gives to one process")
	}
	later := time.Now().Add(tryAgain + time.Second)
	if list := s.retry(later); len(list) != 0 {
		t.Errorf("%d is to try again, and nothing has changed", list)
	}
	s.give(1)
	if list := s.retry(time.Now()); len(list) != 0 {
		t.Errorf("%d is to try again at once", list)
	}
	if list := s.retry(later); len(list) != 1 || list[0] != 9 || len(s.refused(9)) != 0 {
		t.Errorf("%d is to try again, and %q", list, s.refused(9))
	}
	if _, err := s.take(9, 9, 9, amounts{}, rulesFrom(1<<30, 600)); err != nil {
		t.Error(err)
	}
}

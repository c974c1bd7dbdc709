// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/vramprof/vramprof/bpf"
	"github.com/vramprof/vramprof/tracer/unwindcache"
)

// A table of the cache is the same in the kernel as one that is built. It is used only for a file
// with the same content, whatever the key says.
func TestTablesOfTheCacheAreThoseOfTheFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("BPF maps need root")
	}
	program := exec.Command("sleep", "1000")
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Process.Kill(); program.Wait() })
	pid := uint32(program.Process.Pid)
	built := tablesOf(t, nil, pid)

	path := filepath.Join(t.TempDir(), "cache")
	cache, err := unwindcache.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	same := func(when string) {
		t.Helper()
		if got := tablesOf(t, cache, pid); !maps.Equal(got, built) {
			t.Errorf("%s: the kernel has %d pages, want %d with the same rows", when, len(got), len(built))
		}
	}
	same("an empty cache")
	list := entriesOf(t, path)
	if len(list) == 0 {
		t.Fatal("no table of at least 4,096 rows is kept")
	}
	same("a full cache")
	for _, key := range list { // the next session shows that it has read them
		change(t, cache, key, func(table *unwindcache.Table) { table.Rows[len(table.Rows)/2].AddressLow ^= 1 })
	}
	if got := tablesOf(t, cache, pid); maps.Equal(got, built) {
		t.Error("the cache is not read")
	}
	for _, key := range list {
		change(t, cache, key, func(table *unwindcache.Table) { table.Source.Hash[0] ^= 1 })
	}
	same("tables of files with another content")
	same("tables that were replaced")
}

func TestTablesOfAnotherProfilerAreNotUsed(t *testing.T) {
	text, err := os.ReadFile("../../go.mod")
	if err != nil || !strings.Contains(string(text), "go.opentelemetry.io/ebpf-profiler "+profilerVersion+"\n") {
		t.Errorf("profilerVersion is %s, which is not that of go.mod (%v)", profilerVersion, err)
	}
}

// change replaces an entry of the cache.
func change(t *testing.T, cache *unwindcache.Dir, key unwindcache.Key, how func(*unwindcache.Table)) {
	t.Helper()
	table, err := cache.Load(key)
	if err != nil {
		t.Fatal(err)
	}
	how(table)
	if err := cache.Store(key, table); err != nil {
		t.Fatal(err)
	}
}

func entriesOf(t *testing.T, path string) (keys []unwindcache.Key) {
	t.Helper()
	list, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		key, err := hex.DecodeString(strings.TrimSuffix(x.Name(), ".table"))
		if err != nil || len(key) != len(unwindcache.Key{}) {
			t.Fatalf("%s is in the cache", x.Name())
		}
		keys = append(keys, unwindcache.Key(key))
	}
	return keys
}

// page is a page of a file that has a table.
type page struct{ file, address uint64 }

// newUnwinder returns an Unwinder with maps of its own.
func newUnwinder(t *testing.T, cache *unwindcache.Dir) *Unwinder {
	t.Helper()
	kernel, err := bpf.KernelTypes(btf.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bpf.LiftMemlock(kernel); err != nil {
		t.Fatal(err)
	}
	u, err := New(kernel, cache, func(f NewFile) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.Close)
	return u
}

// tablesOf loads the tables of a process and returns them.
func tablesOf(t *testing.T, cache *unwindcache.Dir, pid uint32) map[page]string {
	t.Helper()
	u := newUnwinder(t, cache)
	u.Load(pid, 0)
	u.tables.kept.writing.Wait()
	return tablesIn(t, u)
}

// tablesIn returns the rows of each page in the kernel, with the rules in place of their numbers.
func tablesIn(t *testing.T, u *Unwinder) map[page]string {
	t.Helper()
	pages, rules := map[page]string{}, map[uint16]string{}
	var key support.StackDeltaPageKey
	var info support.StackDeltaPageInfo
	for i := u.maps["stack_delta_page_to_info"].Iterate(); i.Next(&key, &info); {
		var id ebpf.MapID
		if err := u.maps[fmt.Sprintf("exe_id_to_%d_stack_deltas", info.MapID)].Lookup(key.FileID, &id); err != nil {
			t.Fatal(err)
		}
		rows, err := ebpf.NewMapFromID(id)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for n := range uint32(info.NumDeltas) {
			var row support.StackDelta
			if err := rows.Lookup(info.FirstDelta+n, &row); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&text, "%x %s\n", row.AddrLow, ruleOf(t, u, rules, row.UnwindInfo))
		}
		rows.Close()
		pages[page{key.FileID, key.Page}] = text.String()
	}
	if len(pages) == 0 {
		t.Fatalf("no tables: %q", u.Problems())
	}
	return pages
}

func ruleOf(t *testing.T, u *Unwinder, known map[uint16]string, number uint16) string {
	if number&support.DeltaCommandFlag != 0 {
		return fmt.Sprintf("command %x", number)
	}
	if known[number] == "" {
		var rule support.UnwindInfo
		if err := u.maps["unwind_info_array"].Lookup(uint32(number), &rule); err != nil {
			t.Fatal(err)
		}
		known[number] = fmt.Sprint(rule)
	}
	return known[number]
}

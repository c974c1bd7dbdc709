// SPDX-License-Identifier: Apache-2.0

package unwindcache

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func open(t testing.TB) (*Dir, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cache")
	d, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, path
}

func sample(rows int) *Table {
	t := &Table{
		Source: Source{Reads: []Read{{0, 64}, {4096, 17}}, Hash: [32]byte{1, 2}}, First: 0x40_0000,
		Rules: []Rule{{BaseReg: 1, Param: 8}, {Flags: 1, BaseReg: 2, AuxBaseReg: 3, MergeOpcode: 0x81, Param: -8, AuxParam: 1 << 20}},
	}
	for i := range rows {
		t.Rows = append(t.Rows, Row{uint16(i), []uint16{0, 1, Command | 3}[i%3]})
	}
	for ; rows > 1000; rows -= 1000 {
		t.Pages = append(t.Pages, 1000)
	}
	t.Pages = append(t.Pages, uint16(rows))
	return t
}

func TestAnEntryIsReadAsItWasWritten(t *testing.T) {
	d, path := open(t)
	key := KeyOf("a file", 7)
	if _, err := d.Load(key); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of an empty folder: %v", err)
	}
	for _, rows := range []int{1, 12345} {
		want := sample(rows)
		if err := d.Store(key, want); err != nil {
			t.Fatal(err)
		}
		if got, err := d.Load(key); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
	st, err := os.Stat(filepath.Join(path, key.file()))
	if err != nil || st.Mode() != 0o600 {
		t.Errorf("the entry: %v, %v", st.Mode(), err)
	}
	if _, err := d.Load(KeyOf("a file", 8)); err == nil {
		t.Error("another file has the table")
	}
}

// Whatever is in a file of the folder, Load does not use it unless it is whole.
func TestADamagedEntryIsNone(t *testing.T) {
	d, path := open(t)
	key := KeyOf("a file")
	if err := d.Store(key, sample(100)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(path, key.file())
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Load(key); err == nil {
			t.Errorf("%s is read", what)
		}
	}
	for n := range whole {
		try(fmt.Sprintf("the file cut after %d bytes", n), whole[:n])
		damaged := slices.Clone(whole)
		damaged[n] ^= 0x10
		try(fmt.Sprintf("the file with byte %d changed", n), damaged)
	}
	try("the file with a byte more", append(slices.Clone(whole), 0))
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name+".real", whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(name+".real", name); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(key); err == nil {
		t.Error("a link is followed")
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Load(key); err == nil {
		t.Error("a FIFO is read")
	}
}

// Load refuses what Store refuses: FuzzDecode compares them.
func TestTablesThatDoNotFitTogetherAreRefused(t *testing.T) {
	for what, change := range map[string]func(*Table){
		"a row with an unknown rule":  func(x *Table) { x.Rows[0].Rule = 2 },
		"more rows than on the pages": func(x *Table) { x.Pages[0]-- },
		"no rows":                     func(x *Table) { x.Rows, x.Pages = nil, nil },
		"a rule twice":                func(x *Table) { x.Rules[1] = x.Rules[0] },
		"pages beyond all addresses":  func(x *Table) { x.First = 1<<64 - 1<<16 },
		"half a page":                 func(x *Table) { x.First++ },
		"a read of too much":          func(x *Table) { x.Source.Reads[0].Length = maxLength },
		"a read beyond all files":     func(x *Table) { x.Source.Reads[0].Offset = 1 << 63 },
	} {
		table := sample(1500)
		change(table)
		if _, err := table.encode(); err == nil {
			t.Errorf("%s is written", what)
		}
	}
}

func TestAFolderOfOthersIsRefused(t *testing.T) {
	d, path := open(t)
	d.Close()
	for what, prepare := range map[string]func(path string) error{
		"a folder that a group may read": func(path string) error { return os.Chmod(path, 0o750) },
		"a folder that all may write":    func(path string) error { return os.Chmod(path, 0o702) },
		"a link": func(path string) error {
			if err := os.Rename(path, path+"2"); err != nil {
				return err
			}
			return os.Symlink(path+"2", path)
		},
		"a file":         func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
		"another user's": func(path string) error { return os.Chown(path, 12345, -1) },
	} {
		t.Run(what, func(t *testing.T) {
			if what == "another user's" && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			path := filepath.Join(t.TempDir(), "cache")
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := prepare(path); err != nil {
				t.Fatal(err)
			}
			if d, err := Open(path); err == nil {
				d.Close()
				t.Error("it is used")
			}
		})
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("Open created it with %v, %v", st.Mode(), err)
	}
}

func TestTheOldestEntriesGo(t *testing.T) {
	d, path := open(t)
	one, err := sample(1000).encode()
	if err != nil {
		t.Fatal(err)
	}
	d.max = int64(3 * len(one))
	keys := []Key{KeyOf(0), KeyOf(1), KeyOf(2), KeyOf(3)}
	for i, key := range keys[:3] {
		if err := d.Store(key, sample(1000)); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := os.Chtimes(filepath.Join(path, key.file()), old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.Load(keys[0]); err != nil { // it is the newest now
		t.Fatal(err)
	}
	foreign, killed := filepath.Join(path, "notes"), filepath.Join(path, newPrefix+"1")
	for _, name := range []string{foreign, killed} {
		if err := os.WriteFile(name, one, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, time.Time{}, time.Now().Add(-2*abandonedIn)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Store(keys[3], sample(1000)); err != nil {
		t.Fatal(err)
	}
	for i, stays := range []bool{true, false, true, true} {
		if _, err := d.Load(keys[i]); (err == nil) != stays {
			t.Errorf("entry %d: %v, want it to stay: %v", i, err, stays)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error("a file of others went")
	}
	if _, err := os.Stat(killed); err == nil {
		t.Error("the file of a killed process stays")
	}
}

// Sessions that run at the same time replace each other's entries, and each reads a whole one.
func TestSessionsShareAFolder(t *testing.T) {
	d, path := open(t)
	other, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	key := KeyOf("a file")
	if err := d.Store(key, sample(100)); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for i, each := range []*Dir{d, other, d, other} {
		wait.Go(func() {
			for n := range 50 {
				if i < 2 {
					if err := each.Store(key, sample(100+n)); err != nil {
						t.Error(err)
					}
				} else if _, err := each.Load(key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if list, err := os.ReadDir(path); err != nil || len(list) != 1 {
		t.Errorf("%d files are left, %v", len(list), err)
	}
}

// A full disk costs the entry, and leaves nothing behind.
func TestAFullDiskCostsTheEntry(t *testing.T) {
	d, path := open(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	small := limit
	small.Cur = 1000 // a write beyond it fails like one on a full disk; Go ignores SIGXFSZ
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &small); err != nil {
		t.Fatal(err)
	}
	err := d.Store(KeyOf("a file"), sample(5000))
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if list, _ := os.ReadDir(path); err == nil || len(list) != 0 {
		t.Errorf("%v, and %d files are left", err, len(list))
	}
}

func TestATableIsOfTheFileThatWasRead(t *testing.T) {
	file := bytes.Repeat([]byte("0123456789"), 300_000)
	var log Log
	for _, r := range []Read{{100, 64}, {10, 2_500_000}, {100, 64}} {
		part := make([]byte, r.Length)
		n, err := bytes.NewReader(file).ReadAt(part, int64(r.Offset))
		log.Add(int64(r.Offset), part[:n], err)
	}
	source, ok := log.Source()
	if !ok || !source.Matches(bytes.NewReader(file)) {
		t.Fatal("the file does not match itself")
	}
	for at, matters := range map[int]bool{9: false, 10: true, 100: true, 2_500_009: true, 2_500_010: false} {
		file[at] ^= 1
		if source.Matches(bytes.NewReader(file)) == matters {
			t.Errorf("byte %d: want it to matter: %v", at, matters)
		}
		file[at] ^= 1
	}
	if source.Matches(bytes.NewReader(file[:2_000_000])) {
		t.Error("a shorter file matches")
	}
	moved := Source{slices.Clone(source.Reads), source.Hash}
	moved.Reads[0].Offset += 10 // the same bytes
	if moved.Matches(bytes.NewReader(file)) {
		t.Error("reads of other places match")
	}
	log.Add(0, nil, os.ErrInvalid)
	if _, ok := log.Source(); ok {
		t.Error("a read that failed is as good as another one")
	}
	if _, ok := new(Log).Source(); ok {
		t.Error("a table without any read has a source")
	}
}

// FuzzDecode decodes damaged entries with a right checksum. What is accepted is written as it was.
func FuzzDecode(f *testing.F) {
	for _, rows := range []int{1, 50} {
		data, err := sample(rows).encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:len(data)-crc32.Size])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = order.AppendUint32(slices.Clone(data), crc32.Checksum(data, checksums))
		table, err := decode(data)
		if err != nil {
			return
		}
		again, err := table.encode()
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("%v: %d bytes become %d", err, len(data), len(again))
		}
	})
}

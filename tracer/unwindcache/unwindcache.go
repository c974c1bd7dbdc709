// SPDX-License-Identifier: Apache-2.0

// Package unwindcache keeps unwind tables of files on disk between sessions.
//
// An entry also has a hash of all that its table was built from: the caller uses it only for a file
// that has the same bytes in the same places. So a forged file gets no other file's table, and
// gives none to another file, whatever its name, build ID, device and inode are.
package unwindcache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// Limits of the folder.
const (
	maxBytes    = 512 << 20 // of all entries; those of PyTorch with CUDA take some 30 MiB
	maxEntries  = 4096
	abandonedIn = time.Hour // a file that is not renamed by then is of a vramprof that was killed
)

// Default is the folder of a package's vramprof.
const Default = "/var/cache/vramprof"

// Key names an entry. It should identify the real file, so that different files do not replace each
// other's entries.
type Key [sha256.Size]byte

// KeyOf returns the key for values that identify a file, and the program that builds its table.
func KeyOf(parts ...any) Key {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%v\x00", part)
	}
	return Key(h.Sum(nil))
}

func (k Key) file() string { return hex.EncodeToString(k[:]) + ending }

const ending, newPrefix = ".table", "new-"

// Dir is an open folder. Its methods may run at the same time, also in several processes.
type Dir struct {
	root *os.Root
	max  int64
}

// Open opens a folder, and creates it with mode 0700 if its parent exists. The folder must belong
// to this user, and no other one may have rights to it: else the error is untrusted.ErrUnsafe. A
// link is refused.
func Open(path string) (*Dir, error) {
	root, err := untrusted.OwnFolder(path, untrusted.NoRights)
	if err != nil {
		return nil, fmt.Errorf("open the cache %s: %w", path, err)
	}
	return &Dir{root, maxBytes}, nil
}

// Close closes the folder.
func (d *Dir) Close() error { return d.root.Close() }

// Load returns an entry, or an error if there is none that can be read.
func (d *Dir) Load(key Key) (*Table, error) {
	name := key.file()
	f, err := d.root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, errDamaged
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	t, err := decode(data)
	if err == nil {
		now := time.Now()
		_ = d.root.Chtimes(name, now, now) // the oldest go first
	}
	return t, err
}

// Store writes an entry, and removes the oldest ones if the folder has become too large. On a full
// disk the entry is missing.
func (d *Dir) Store(key Key, t *Table) error {
	data, err := t.encode()
	if err != nil {
		return err
	}
	if err := d.write(key.file(), data); err != nil {
		return fmt.Errorf("write an unwind table into the cache: %w", err)
	}
	return d.evict(time.Now())
}

// write replaces a file at once. Without a sync, a crash of the machine may damage the file, which
// its checksum shows.
func (d *Dir) write(name string, data []byte) error {
	temporary := fmt.Sprintf("%s%016x", newPrefix, rand.Uint64())
	f, err := d.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = d.root.Rename(temporary, name)
	}
	if err != nil {
		_ = d.root.Remove(temporary)
	}
	return err
}

// evict removes the oldest entries beyond the limits, and what killed processes left. It counts no
// other files.
func (d *Dir) evict(now time.Time) error {
	folder, err := d.root.Open(".")
	if err != nil {
		return err
	}
	defer folder.Close()
	list, err := folder.ReadDir(-1)
	if err != nil {
		return err
	}
	var entries []os.FileInfo
	var sum int64
	for _, x := range list {
		info, err := x.Info()
		switch {
		case err != nil: // another process has removed it
		case strings.HasSuffix(info.Name(), ending):
			entries = append(entries, info)
			sum += info.Size()
		case strings.HasPrefix(info.Name(), newPrefix) && now.Sub(info.ModTime()) > abandonedIn:
			_ = d.root.Remove(info.Name())
		}
	}
	slices.SortFunc(entries, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for n := len(entries); n > 0 && (sum > d.max || n > maxEntries); n-- {
		oldest := entries[len(entries)-n]
		_ = d.root.Remove(oldest.Name())
		sum -= oldest.Size()
	}
	return nil
}

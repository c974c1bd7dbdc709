// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path"
	"strings"

	"github.com/vramprof/vramprof/internal/untrusted"
)

// candidate is a path at which a separate debug file may exist.
type candidate struct{ root, path string }

// candidates lists where the debug file of the binary at filePath may be, in gdb's order: by build
// id, beside the binary, below the debug roots. If root is set, the process's file system comes
// first.
func (o Options) candidates(b *binaryFile, filePath, root string) []candidate {
	roots := []string{root, "/"}
	if root == "" {
		roots = roots[1:]
	}
	var list []candidate
	if id := b.buildID(); id != "" {
		for _, r := range roots {
			for _, debugRoot := range o.DebugRoots {
				list = append(list, candidate{r, path.Join(debugRoot, ".build-id", id[:2], id[2:]+".debug")})
			}
		}
	}
	link, _, ok := b.debugLink()
	if !ok {
		return list
	}
	filePath = strings.TrimSuffix(filePath, deletedSuffix)
	for i, r := range roots {
		dir := path.Dir(path.Clean("/" + filePath))
		if r == root {
			dir = path.Dir(path.Clean("/" + untrusted.InRoot(root, filePath)))
		}
		if i == 0 { // the path is inside the process's file system
			list = append(list, candidate{r, path.Join(dir, link)}, candidate{r, path.Join(dir, ".debug", link)})
		}
		for _, debugRoot := range o.DebugRoots {
			list = append(list, candidate{r, path.Join(debugRoot, dir, link)})
		}
	}
	return list
}

// openDebug opens the debug file of b. It returns nil if there is none.
func (o Options) openDebug(b *binaryFile, filePath, root string) *binaryFile {
	for _, c := range o.candidates(b, filePath, root) {
		f, err := untrusted.OpenIn(c.root, c.path)
		if err != nil {
			continue
		}
		debug, err := parseELF(f, o.MaxFileSize)
		if err == nil {
			err = o.belongs(b, debug)
		}
		if err == nil {
			return debug
		}
		f.Close()
	}
	return nil
}

// openAlt opens the file that debug shares strings and entries with (made by dwz). The section that
// names it contains "path\0" and a build id.
func (o Options) openAlt(debug *binaryFile, root string) *binaryFile {
	const section = ".gnu_debugaltlink"
	buf := debug.head(section, 4096)
	name, id, ok := bytes.Cut(buf, []byte{0})
	if !ok || len(name) == 0 || len(id) < 2 {
		return nil
	}
	hexID := fmt.Sprintf("%x", id)
	at := string(name)
	if !path.IsAbs(at) {
		at = path.Join(path.Dir(debug.file.Name()), at)
	}
	var list []candidate
	if root != "" {
		list = append(list, candidate{root, at})
	}
	// The file chooses this path. Among the host's files, open only debug files, unless the process
	// shares the host's file system.
	for _, r := range o.DebugRoots {
		if root == "" || strings.HasPrefix(path.Clean(at), path.Clean(r)+"/") {
			list = append(list, candidate{"/", at})
			break
		}
	}
	for _, r := range o.DebugRoots {
		list = append(list, candidate{"/", path.Join(r, ".build-id", hexID[:2], hexID[2:]+".debug")})
	}
	for _, c := range list {
		f, err := untrusted.OpenIn(c.root, c.path)
		if err != nil {
			continue
		}
		if alt, err := parseELF(f, o.MaxFileSize); err == nil && alt.buildID() == hexID {
			return alt
		}
		f.Close()
	}
	return nil
}

// Bytes of debug files read to check their CRC: of one, and of all. Only files without a build id
// need it, and a process can map any number of them.
const (
	maxChecksummed    = 1 << 30
	maxAllChecksummed = 8 << 30
)

// belongs checks that debug was split off b: both have the same build id, or debug has the checksum
// stored in b if one of them has no build id.
func (o Options) belongs(b, debug *binaryFile) error {
	if same(b.file, debug.file) {
		return errors.New("the debug file is the file itself")
	}
	if want, got := b.buildID(), debug.buildID(); want != "" && got != "" {
		if want != got {
			return fmt.Errorf("debug file has build id %s, not %s", got, want)
		}
		return nil
	}
	_, want, ok := b.debugLink()
	if !ok || debug.size > maxChecksummed || o.checksums.Add(-debug.size) < 0 {
		return errors.New("the debug file cannot be checked")
	}
	crc := crc32.NewIEEE()
	if _, err := io.Copy(crc, io.NewSectionReader(debug.file, 0, debug.size)); err != nil {
		return err
	}
	if got := crc.Sum32(); got != want {
		return fmt.Errorf("debug file has checksum %08x, not %08x", got, want)
	}
	return nil
}

func same(a, b *os.File) bool {
	x, errX := a.Stat()
	y, errY := b.Stat()
	return errX == nil && errY == nil && os.SameFile(x, y)
}

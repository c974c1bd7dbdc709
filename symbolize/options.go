// SPDX-License-Identifier: Apache-2.0

package symbolize

import (
	"cmp"
	"sync/atomic"
	"time"
)

// Options bounds what a Symbolizer reads and keeps. A zero value means the default.
type Options struct {
	DebugRoots  []string      // folders of separate debug files; default /usr/lib/debug
	MaxFiles    int           // open at a time, excluding debug files; default 1024
	MaxFileSize int64         // bytes; larger files get no names; default 16 GiB
	MaxSymbols  int           // per file; default 4 Mi (48 MiB of memory)
	MaxTime     time.Duration // spent on the DWARF of one file; default 5 s
	MaxInflated int64         // bytes of decompressed debug information per file; default 128 MiB
	MaxMemory   int64         // bytes of tables of all files; default 256 MiB

	checksums *atomic.Int64 // bytes of debug files whose checksums may still be computed
}

func (o Options) withDefaults() Options {
	if o.DebugRoots == nil {
		o.DebugRoots = []string{"/usr/lib/debug"}
	}
	o.MaxFiles = cmp.Or(o.MaxFiles, 1<<10)
	o.MaxFileSize = cmp.Or(o.MaxFileSize, 16<<30)
	o.MaxSymbols = cmp.Or(o.MaxSymbols, 4<<20)
	o.MaxTime = cmp.Or(o.MaxTime, 5*time.Second)
	o.MaxInflated = cmp.Or(o.MaxInflated, 128<<20)
	o.MaxMemory = cmp.Or(o.MaxMemory, 256<<20)
	o.checksums = new(atomic.Int64)
	o.checksums.Store(maxAllChecksummed)
	return o
}

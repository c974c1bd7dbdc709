// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"testing"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/lpm"
	"go.opentelemetry.io/ebpf-profiler/process"
)

func TestFilesOfOneProcessAreKnownInOthers(t *testing.T) {
	id := libpf.NewFileID(7, 9)
	file := uint64(host.FileIDFromLibpf(id))
	const at, offset, start, length = 0x7f0000001000, 0x2000, 0x3000, 0x4000
	first, err := lpm.CalculatePrefixList(at, at+length)
	if err != nil {
		t.Fatal(err)
	}
	d := &draft{
		spans:    map[lpm.Prefix]span{first[0]: {file: file, bias: at - start}},
		mappings: []process.RawMapping{{Vaddr: at, Length: length, FileOffset: offset}, {Vaddr: 0x1000, Length: 0x1000}},
	}
	var c codes
	c.noteFile(id, "/lib/x.so", "abc")
	c.note(d, nil) // the kernel has not identified the file
	if f := c.file(host.FileID(file), start); f != nil {
		t.Errorf("a file that nobody has identified is %+v", f)
	}
	for range 2 {
		c.note(d, map[uint64]CodeFile{at: {Inode: 5, Address: 77}})
	}
	f := c.file(host.FileID(file), start+length-1)
	if f == nil || *f != (File{ID: id.StringNoQuotes(), Path: "/lib/x.so", BuildID: "abc", Start: start, Limit: start + length, Offset: offset}) {
		t.Errorf("the file is %+v", f)
	}
	if n := len(c.files[host.FileID(file)].segments); n != 1 {
		t.Errorf("it has %d segments", n)
	}
	if c.file(host.FileID(file), start+length) != nil || c.file(1, start) != nil {
		t.Error("an address outside is in the file")
	}
	c.drop(host.FileID(file))
	if c.file(host.FileID(file), start) != nil {
		t.Error("a file is known after its tables were removed")
	}
	c.note(d, map[uint64]CodeFile{at: {Inode: 5, Address: 77}}) // its tables are loaded again; the profiler does not report it again
	if c.file(host.FileID(file), start) == nil {
		t.Error("a file is unknown after its tables were loaded again")
	}
}

// SPDX-License-Identifier: Apache-2.0

package holders

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/holders/peek"
)

var update = flag.Bool("update", false, "write golden files")

func walkImage(t testing.TB, m peek.Memory, o Options) *Result {
	t.Helper()
	r, err := Walk(context.Background(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// render writes a result in lines.
func render(r *Result) string {
	var b strings.Builder
	held, all := r.Held()
	fmt.Fprintf(&b, "Python %s: %d storages, %d of %d bytes held, %d objects, %d tracked, %d loose, %q\n", r.Python, len(r.Storages), held, all, r.Objects, r.Tracked, r.Loose, r.Problems)
	for _, s := range r.Storages {
		fmt.Fprintf(&b, "%#x %d %d:%d %s", s.Address, s.Bytes, s.DeviceType, s.Device, s.Holder)
		if s.Container.Class != "" {
			fmt.Fprintf(&b, " (%s of %d)", s.Container.Class, s.Container.Entries)
		}
		for _, h := range s.Also {
			fmt.Fprintf(&b, ", also %s", h.Pattern())
		}
		if class := s.Holder.ByClass(); class != "" {
			fmt.Fprintf(&b, ", %s", class)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name + ".golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs:\n%s", file, got)
	}
}

func TestRecordAndReadAgain(t *testing.T) {
	c := peek.NewCopy(syntheticJob(), DefaultMemory)
	defer c.Close()
	want := render(walkImage(t, c, Options{}))
	var b bytes.Buffer
	if err := c.Record(&b); err != nil {
		t.Fatal(err)
	}
	m, err := peek.ReadImage(&b)
	if err != nil {
		t.Fatal(err)
	}
	if got := render(walkImage(t, m, Options{})); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	none := syntheticJob()
	none.Named = nil
	free := syntheticJob()
	damage(free, free.Named[peek.RuntimeSymbol]+16, 1)
	other := syntheticJob()
	damage(other, other.Named[peek.VersionSymbol], 0x030f00f0)
	two := syntheticJob()
	damage(two, two.Named[peek.VersionSymbol], 0x020700f0)
	empty := newSynthetic().finish()
	for name, c := range map[string]struct {
		peek.Memory
		want error
		text string
	}{
		"no Python":     {none, peek.ErrNoPython, "find holders: no Python interpreter in the process"},
		"free-threaded": {free, ErrPython, "find holders: cannot read this Python 3.13.5: it is a free-threaded build"},
		"3.15":          {other, ErrPython, "find holders: cannot read this Python 3.15.0: this version is not known"},
		"2.7":           {two, ErrPython, "find holders: cannot read this Python: version 2.7.0"},
		"no tensors":    {empty, ErrNoTensors, "find holders: no PyTorch tensor in its Python (7 objects of Python 3.13.5)"},
	} {
		if _, err := Walk(context.Background(), c.Memory, Options{}); !errors.Is(err, c.want) || err.Error() != c.text {
			t.Errorf("%s: %v, want %s", name, err, c.text)
		}
	}
}

func damage(m *peek.Image, address, value uint64) {
	if p := m.Pages[address>>peek.PageShift]; p != nil {
		binary.LittleEndian.PutUint64(p[address%peek.PageSize&^7:], value)
	}
}

func TestLimitsEndTheWalk(t *testing.T) {
	m := largeJob(20000)
	r := walkImage(t, m, Options{MaxObjects: 1000})
	if len(r.Problems) == 0 || r.Objects > 1000 {
		t.Errorf("%d objects, %q", r.Objects, r.Problems)
	}
	few := walkImage(t, m, Options{MaxMemory: 1 << 20}) // 256 pages: they are forgotten and read again
	all := walkImage(t, m, Options{})
	if len(few.Storages) != len(all.Storages) || few.Copied > 1<<20 || all.Copied < 2<<20 {
		t.Errorf("%d storages by %d bytes, %d by %d", len(few.Storages), few.Copied, len(all.Storages), all.Copied)
	}
}

// FuzzDamagedImage changes words of a process's memory: each 12 bytes are a place and a value,
// which can be the address of another place.
func FuzzDamagedImage(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x10\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Add(bytes.Repeat([]byte("\x00\x01\x00\x80\x00\x02\x00\x00\x00\x00\x00\x00"), 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, _ := nativeJob()
		if len(data)%2 == 0 {
			m = syntheticJob()
		}
		c := peek.NewCopy(m, DefaultMemory)
		walkCopy(c)
		var places []uint64 // that a walk reads
		c.EachPage(func(number uint64, p *peek.Page) {
			for o := uint64(0); o < peek.PageSize; o += 8 {
				if binary.LittleEndian.Uint64(p[o:]) != 0 {
					places = append(places, number<<peek.PageShift+o)
				}
			}
		})
		c.Close()
		for ; len(data) >= 12; data = data[12:] {
			at, value := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint64(data[4:])
			if at>>31 == 1 {
				value = places[value%uint64(len(places))]
			}
			damage(m, places[uint64(at&^(1<<31))%uint64(len(places))], value)
		}
		c = peek.NewCopy(m, 16<<20)
		defer c.Close()
		begin := time.Now()
		walkCopy(c)
		if d := time.Since(begin); d > 10*time.Second {
			t.Errorf("the walk took %v", d)
		}
	})
}

// fuzzedObjects bounds the walks of walkCopy.
const fuzzedObjects = 10000

// walkCopy walks memory that may be hostile. It panics if the result cannot be shown, or exceeds
// the walk's limits or the sum of its parts.
func walkCopy(c *peek.Copy) {
	_, ranges := nativeJob()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r, err := Walk(ctx, c, Options{MaxObjects: fuzzedObjects, Host: true, Addresses: ranges})
	if err != nil {
		return
	}
	if r.Objects > fuzzedObjects {
		panic("a walk that went beyond its limit of objects")
	}
	held, all := r.Held()
	var sum uint64
	for _, s := range r.Storages {
		if sum+s.Bytes < sum {
			panic("the sum of the storages overflows")
		}
		sum += s.Bytes
	}
	if held > all || all != sum {
		panic("sums that exceed what there is")
	}
	for _, s := range r.Storages {
		if s.Holder == nil || len(s.Holder.String()) > 64<<10 || strings.ContainsAny(s.Holder.String(), "\x1b\n") {
			panic("a holder that cannot be shown")
		}
		for _, h := range s.Also {
			_ = h.Pattern()
		}
	}
}

// FuzzReadImage reads invented files: those that the other tests write, changed, without their
// compression.
func FuzzReadImage(f *testing.F) {
	native, _ := nativeJob()
	for _, job := range []*peek.Image{growingJob(0), growingJob(2), largeJob(100), newSynthetic().finish(), native} {
		f.Add(uncompressed(f, job))
	}
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := peek.ParseImage(bytes.NewReader(data)); err == nil {
			c := peek.NewCopy(m, 1<<20)
			walkCopy(c)
			c.Close()
		}
	})
}

// uncompressed returns what Record writes of the pages that a walk reads, and proves that it can be
// read.
func uncompressed(f *testing.F, job *peek.Image) []byte {
	c := peek.NewCopy(job, DefaultMemory)
	defer c.Close()
	walkCopy(c)
	var b bytes.Buffer
	if err := c.Record(&b); err != nil {
		f.Fatal(err)
	}
	z, err := gzip.NewReader(&b)
	if err != nil {
		f.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := peek.ParseImage(bytes.NewReader(text)); err != nil {
		f.Fatal(err)
	}
	return text
}

// cpuTime returns what the test has used of processors so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkWalk(b *testing.B) {
	m := largeJob(250_000)
	b.ReportAllocs()
	before, n := cpuTime(), 0
	for b.Loop() {
		n++
		r := walkImage(b, m, Options{})
		b.ReportMetric(float64(r.Copied)/(1<<20), "MiB-copied")
		b.ReportMetric(float64(r.Tracked), "objects")
	}
	b.ReportMetric(float64((cpuTime()-before).Milliseconds())/float64(n), "cpu-ms/op") // steadier than the time on a busy machine
}

// BenchmarkWalkTorch walks the process that VRAMPROF_PID names.
func BenchmarkWalkTorch(b *testing.B) {
	pid, err := strconv.Atoi(os.Getenv("VRAMPROF_PID"))
	if err != nil {
		b.Skip("set VRAMPROF_PID")
	}
	before, n := cpuTime(), 0
	for b.Loop() {
		n++
		p, err := peek.Open(pid)
		if err != nil {
			b.Fatal(err)
		}
		r := walkImage(b, p, Options{Host: true})
		p.Close()
		b.ReportMetric(float64(r.Copied)/(1<<20), "MiB-copied")
		b.ReportMetric(float64(r.Tracked), "objects")
	}
	b.ReportMetric(float64((cpuTime()-before).Milliseconds())/float64(n), "cpu-ms/op")
}

// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// rebuild turns a fuzzer's data into a file whose frames have valid checksums: otherwise hardly any
// data would pass them. Each frame is a byte for its kind, two for its length and the message.
func rebuild(data []byte) []byte {
	file := &memory{}
	d, err := newDisk(file, &wire.Head{Time: 1e9, Host: []byte("h")})
	if err != nil {
		return nil
	}
	for len(data) > 3 {
		n := min(int(data[1])<<8|int(data[2]), len(data)-3)
		message := data[3 : 3+n]
		f := frame{kind: frameKind(data[0] % 7), sequence: d.sequence, size: uint32(n), events: eventsOf(data[0], message), first: uint64(data[0]) << 24, last: uint64(data[0]) << 25}
		payload := d.zstd.EncodeAll(message, nil)
		b := make([]byte, frameHeader, frameHeader+len(payload))
		f.length, f.sum = uint32(len(payload)), checksum(payload)
		if data[0]&0x80 != 0 {
			f.size = uint32(data[0]) << 15 // a wrong size
		}
		f.put(b)
		_ = d.append(append(b, payload...))
		d.sequence++
		data = data[3+n:]
	}
	return file.b
}

// eventsOf returns the number of events of a message, so that its header matches.
func eventsOf(kind byte, message []byte) uint32 {
	var m wire.Inputs
	if frameKind(kind%7) == checkpointFrame {
		return 0 // it is whole
	}
	if frameKind(kind%7) != inputsFrame || proto.Unmarshal(message, &m) != nil {
		return uint32(kind)
	}
	return m.Events
}

// messagesOf splits a capture into the input of rebuild.
func messagesOf(tb testing.TB, b []byte) (messages []byte) {
	r, err := NewReaderWith(bytes.NewReader(b), int64(len(b)), ReadOptions{Unlimited: true})
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	for i := range r.frames {
		x := &r.frames[i]
		payload, err := r.zstd.DecodeAll(b[x.offset:x.offset+int64(x.length)], make([]byte, 0, x.size))
		if err != nil && x.length > 0 {
			tb.Fatal(err)
		}
		payload = payload[:min(len(payload), 1<<16-1)]
		messages = append(messages, byte(x.kind), byte(len(payload)>>8), byte(len(payload)))
		messages = append(messages, payload...)
	}
	return messages
}

// exhaust uses a capture in every way.
func exhaust(t *testing.T, b []byte) {
	r, err := NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return
	}
	s, err := r.Snapshot(math.MaxUint64)
	if err != nil {
		t.Fatalf("reading from memory failed: %v", err)
	}
	if s.End < s.Begin {
		t.Fatalf("begins at %d, ends at %d", s.Begin, s.End)
	}
	for i := range s.Sites {
		for _, f := range r.Stack(s.Sites[i].Stack) {
			if f.Function == "" {
				t.Fatalf("a frame without a name: %+v", f)
			}
		}
	}
	p, l := r.Player(), r.NewLedger()
	for i := range uint64(4) {
		at := r.Begin() + (r.End()-r.Begin())/4*i
		if err := p.PlayTo(at, l); err != nil {
			t.Fatal(err)
		}
		r.SnapshotOf(l, at)
	}
	r.Stack(1)
	r.Wall(r.End())
	r.Warnings()
}

// FuzzRead reads modified captures, and files whose frames have valid checksums.
func FuzzRead(f *testing.F) {
	for seed := range uint64(3) {
		var file memory
		if _, err := record(f, seed, 300, &file); err != nil {
			f.Fatal(err)
		}
		f.Add(file.b, false)
		f.Add(messagesOf(f, file.b), true)
		var other memory
		checkpointed(f, seed, 300, &other)
		f.Add(other.b, false)
		f.Add(messagesOf(f, other.b), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, frames bool) {
		if frames {
			data = rebuild(data)
		}
		exhaust(t, data)
	})
}

// TestHostileFilesTakeBoundedMemory: compression bombs, false counts, tables at huge offsets.
func TestHostileFilesTakeBoundedMemory(t *testing.T) {
	const most = 600 << 20 // allocated in total, most of it garbage at once
	many := func(n int) []*wire.Input {
		list := make([]*wire.Input, n)
		for i := range list {
			list[i] = &wire.Input{}
		}
		return list
	}
	for name, m := range map[string]struct {
		kind    frameKind
		message proto.Message
	}{
		"two million empty inputs": {inputsFrame, &wire.Inputs{Input: many(2 << 20)}},
		"four million empty texts": {stacksFrame, &wire.Stacks{Text: make([][]byte, 4<<20)}},
		"a million empty calls":    {inputsFrame, &wire.Inputs{Events: math.MaxUint32, Call: make([]byte, 1<<20), Time: make([]byte, 1<<20)}},
		"a table at a huge offset": {stacksFrame, &wire.Stacks{FirstText: math.MaxUint32, FirstLine: math.MaxUint32, Text: [][]byte{{'a'}}}},
		"a deep stack":             {stacksFrame, &wire.Stacks{Id: []uint64{1}, Depth: []uint32{math.MaxUint32}, Line: []uint32{1}}},
		"blocks without end":       {inputsFrame, &wire.Inputs{Input: []*wire.Input{blocksInput(1, 0, make([]ledger.Block, 1<<20), false)}}},
		"countless classes":        {inputsFrame, &wire.Inputs{Input: []*wire.Input{{What: &wire.Input_Tensors{Tensors: &wire.Tensors{Totals: []*wire.TensorTotals{{Classes: math.MaxUint32}}}}}}}},
	} {
		file := &memory{}
		d, err := newDisk(file, &wire.Head{})
		if err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if err := d.write(frame{kind: m.kind}, m.message); err != nil {
				t.Fatal(err)
			}
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := file.read(t)
		if _, err := r.Snapshot(math.MaxUint64); err != nil {
			t.Fatal(err)
		}
		r.Stack(1)
		runtime.ReadMemStats(&after)
		exhaust(t, file.b)
		if took := after.TotalAlloc - before.TotalAlloc; took > most {
			t.Errorf("%s: %d bytes of file took %d MB", name, len(file.b), took>>20)
		}
	}
}

// TestFrameThatExpandsBeyondItsSizeIsDamaged: zstd can expand a few bytes to gigabytes.
func TestFrameThatExpandsBeyondItsSizeIsDamaged(t *testing.T) {
	file := &memory{}
	d, err := newDisk(file, &wire.Head{})
	if err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	payload := encoder.EncodeAll(make([]byte, 256<<20), nil)
	b := make([]byte, frameHeader)
	f := frame{kind: inputsFrame, length: uint32(len(payload)), size: maxPayload, sum: checksum(payload)}
	f.put(b)
	if err := d.append(append(b, payload...)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	exhaust(t, file.b)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 200<<20 {
		t.Errorf("reading took %d MB", took>>20)
	}
	if r := file.read(t); r.Play(math.MaxUint64, &log{}) != nil || len(r.Warnings()) != 2 {
		t.Errorf("warnings %q", r.Warnings())
	}
}

// TestGeneratedCodeIsCurrent runs the generator again, if protoc is installed.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	out := t.TempDir()
	if err := generateWire(out); err != nil {
		t.Skip(err)
	}
	want, err := os.ReadFile("internal/wire/capture.pb.go")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(out, "capture.pb.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("capture.pb.go is stale: run go generate ./tracer/capture/internal/wire")
	}
}

func generateWire(out string) error {
	if _, err := exec.LookPath("protoc"); err != nil {
		return errors.New("protoc is not installed (Debian: protobuf-compiler)")
	}
	cmd := exec.Command("sh", "internal/wire/gen.sh")
	cmd.Env = append(os.Environ(), "OUT="+out)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("generate: %w\n%s", err, text)
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package pickle

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os/exec"
	"reflect"
	"strings"
	"testing"
)

func read(text string) (any, error) {
	return Read(strings.NewReader(text), Options{Size: int64(len(text)), MaxMemory: 1 << 20})
}

// sample has all that a Writer writes.
func sample(w *Writer) {
	w.Dict()
	w.UintItem("n", math.MaxInt64)
	w.StringItem("text", "naïve \xff很")
	w.String("numbers")
	l := w.List()
	for _, n := range []uint64{0, 255, 256, 65535, 65536, 1<<31 - 1, 1 << 31, 1 << 53} {
		l.Item()
		w.Uint(n)
	}
	l.End()
	w.String("same")
	l = w.List()
	l.Item()
	frame := w.DictRef()
	w.String("line")
	w.Bool(true)
	w.EndDict()
	l.Item()
	w.Ref(frame)
	l.End()
	w.String("pair")
	w.Pair(1, 2)
	w.EndDict()
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	sample(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := read(b.String())
	if err != nil {
		t.Fatal(err)
	}
	frame := Dict{"line": true}
	want := Dict{
		"n": int64(math.MaxInt64), "text": "naïve 很", "same": &List{[]any{frame, frame}}, "pair": &List{[]any{int64(1), int64(2)}},
		"numbers": &List{[]any{int64(0), int64(255), int64(256), int64(65535), int64(65536), int64(1<<31 - 1), int64(1 << 31), int64(1 << 53)}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
}

func TestPicklesOfPythonAreRead(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("skipped: no python3")
	}
	const program = `import pickle, sys
a = [1.5, "x" * 300, b"bytes", -1, -2**40, 2**62]
sys.stdout.buffer.write(pickle.dumps({"a": a, "b": a, "t": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), "none": None, "set": {7}, 3: 4, "yes": True}, int(sys.argv[1])))`
	a := &List{[]any{1.5, strings.Repeat("x", 300), []byte("bytes"), int64(-1), int64(-1 << 40), int64(1 << 62)}}
	tuple := func(n int64) *List {
		l := &List{}
		for i := range n {
			l.Items = append(l.Items, i+1)
		}
		return l
	}
	want := Dict{"a": a, "b": a, "t": &List{[]any{tuple(0), tuple(1), tuple(2), tuple(3), tuple(4)}}, "none": nil, "set": &List{[]any{int64(7)}}, "yes": true}
	for _, protocol := range []string{"4", "5"} {
		out, err := exec.Command(python, "-c", program, protocol).Output()
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(string(out))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("protocol %s: read %v, want %v (%v)", protocol, got, want, err)
		}
	}
	const old = `import pickle, sys; sys.stdout.buffer.write(pickle.dumps([1, {"k": (2, 3)}], int(sys.argv[1])))`
	for _, protocol := range []string{"2", "3"} {
		out, err := exec.Command(python, "-c", old, protocol).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(string(out)); err != nil || !reflect.DeepEqual(got, &List{[]any{int64(1), Dict{"k": &List{[]any{int64(2), int64(3)}}}}}) {
			t.Errorf("protocol %s: read %v (%v)", protocol, got, err)
		}
	}
}

func TestCodeAndDamageAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"a function":              "\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.",
		"a class of protocol 4":   "\x80\x04\x8c\x02os\x8c\x06system\x93.",
		"an extension":            "\x80\x02\x82\x01.",
		"an object of another":    "\x80\x02K\x01Q.",
		"protocol 1":              "\x80\x01].",
		"protocol 6":              "\x80\x06].",
		"no end":                  "\x80\x04]",
		"nothing":                 "",
		"two values":              "\x80\x04]].",
		"no value":                "\x80\x04.",
		"a pop of nothing":        "\x80\x040.",
		"a pop below a mark":      "\x80\x04](a.",
		"no mark":                 "\x80\x04]e.",
		"no memory":               "\x80\x04h\x00.",
		"a gap in memory":         "\x80\x04]r\xff\xff\xff\xff.",
		"a number of a megabyte":  "\x80\x04\x8b\x00\x00\x10\x00",
		"a text beyond the end":   "\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.",
		"a key without a value":   "\x80\x04}(K\x01u.",
		"an item of a number":     "\x80\x04K\x01K\x01a.",
		"a key of a list":         "\x80\x04]K\x01K\x01s.",
		"a text of another size":  "\x80\x04X\xff\x00\x00\x00abc.",
		"a million dictionaries":  "\x80\x04" + strings.Repeat("}", 1<<20) + ".",
		"a million of references": "\x80\x04]\x94(" + strings.Repeat("h\x00", 1<<20) + "e.",
	} {
		if v, err := read(text); err == nil {
			t.Errorf("%s: read %v", name, v)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
	if _, err := read("\x80\x04" + strings.Repeat("]", 1<<20)); !errors.Is(err, ErrMemory) {
		t.Errorf("a million lists: %v, want %v", err, ErrMemory)
	}
	if _, err := Read(strings.NewReader("\x80\x04X\xff\xff\xff\x7f"), Options{Size: 1 << 40}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that is shorter than its size: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	var b bytes.Buffer
	w := NewWriter(&b)
	sample(w)
	w.Close()
	f.Add(b.Bytes())
	f.Add([]byte("\x80\x02]q\x00(K\x01K\x02\x85\x86}q\x01U\x01ak\x02h\x01e."))
	f.Add([]byte("\x80\x05\x95\x08\x00\x00\x00\x00\x00\x00\x00(]\x94h\x00a01."))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Read(bytes.NewReader(text), Options{Size: int64(len(text)), MaxMemory: 1 << 20})
		if v != nil && err != nil {
			t.Errorf("both %v and %v", v, err)
		}
	})
}

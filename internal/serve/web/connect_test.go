// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/report/json"
	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/report/text"
	"github.com/vramprof/vramprof/report/tui"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// connect serves the socket of --connect and returns a client of it.
func connect(t *testing.T, s *Server) *Client {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	x := s.HTTP(s.Connect(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	go func() { _ = x.Serve(OwnerOnly(socket)) }()
	t.Cleanup(func() { x.Close() })
	return NewClient(path, "1.2.3")
}

// TestClientsPrintWhatTheSessionWould: reports of the books that --connect gets are those of the
// session, to the byte.
func TestClientsPrintWhatTheSessionWould(t *testing.T) {
	flooded, floodedStacks := reporttest.Flooded()
	for name, session := range map[string]named{
		"torch":   torchSession(),
		"stuck":   {&fakeSession{snapshot: reporttest.Stuck()}, reporttest.StuckStacks()},
		"held":    {&fakeSession{snapshot: reporttest.Held()}, reporttest.HeldStacks()},
		"ended":   {&fakeSession{snapshot: reporttest.Ended()}, reporttest.Stacks()},
		"objects": {&fakeSession{snapshot: reporttest.ObjectsSnapshot()}, reporttest.Stacks()},
		"oom":     {&fakeSession{snapshot: reporttest.OOMSnapshot()}, reporttest.TorchStacks()},
		"asleep":  {&fakeSession{snapshot: reporttest.AsleepSnapshot()}, reporttest.TorchStacks()},
		"kinds":   {&fakeSession{snapshot: reporttest.KindsSnapshot()}, reporttest.Stacks()},
		"ranks":   {&fakeSession{snapshot: reporttest.RanksSnapshot(20)}, reporttest.TorchStacks()},
		"session": {&fakeSession{snapshot: reporttest.Snapshot()}, reporttest.Stacks()},
		"flooded": {&fakeSession{snapshot: flooded}, floodedStacks},
		"empty":   {&fakeSession{snapshot: &ledger.Snapshot{}}, reporttest.Stacks()},
	} {
		client := connect(t, newServer(session))
		for _, whole := range []bool{false, true} {
			s, err := client.Books(t.Context(), whole)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for kind, write := range map[string]func(io.Writer, *ledger.Snapshot, callstack.Stacks) error{
				"top": func(w io.Writer, s *ledger.Snapshot, st callstack.Stacks) error {
					return tui.Once(w, tui.Moment{Snapshot: s, Judged: tui.Judge(s, st), Stacks: st, Ended: true}, tui.Options{}, 120)
				},
				"summary": func(w io.Writer, s *ledger.Snapshot, st callstack.Stacks) error {
					return text.WriteSummary(w, s, st, report.Options{}, text.Screen{})
				},
				"leaks": func(w io.Writer, s *ledger.Snapshot, st callstack.Stacks) error {
					return json.WriteLeaks(w, s, st, report.Options{})
				},
				"cache": func(w io.Writer, s *ledger.Snapshot, st callstack.Stacks) error {
					return text.WriteCache(w, s, st, report.Options{}, text.Screen{})
				},
			} {
				var got, want bytes.Buffer
				if err := errors.Join(write(&got, s, client), write(&want, session.snapshot, session)); err != nil {
					t.Fatalf("%s %s: %v", name, kind, err)
				}
				if !bytes.Equal(got.Bytes(), want.Bytes()) {
					t.Errorf("%s of %s:\n%s\nwant\n%s", kind, name, got.String(), want.String())
				}
			}
		}
	}
}

func TestClientsAskOnceForAStack(t *testing.T) {
	counted := &countedStacks{stacks: reporttest.TorchStacks(), asked: map[uint64]int{}}
	client := connect(t, newServer(named{torchSession().fakeSession, counted}))
	for range 3 {
		s, err := client.Books(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Sites {
			client.Stack(s.Sites[i].Stack)
		}
	}
	for id, n := range counted.asked {
		if n > 1 && counted.stacks[id] != nil {
			t.Errorf("stack %d was asked for %d times", id, n)
		}
	}
	if client.Stack(1<<40) != nil || len(counted.asked) == 0 {
		t.Error("an unknown stack has frames, or none was asked for")
	}
}

type countedStacks struct {
	stacks reporttest.StackMap
	asked  map[uint64]int
}

func (c *countedStacks) Stack(id uint64) []callstack.Frame {
	c.asked[id]++
	return c.stacks[id]
}

func TestInlinedFramesShareTheirMapping(t *testing.T) {
	st := reporttest.Stacks()
	var ids []uint64
	for id := range st {
		ids = append(ids, id)
	}
	found := 0
	if err := packStacks(st, ids).unpack(func(id uint64, list []callstack.Frame) {
		if !reflect.DeepEqual(list, st[id]) {
			t.Errorf("stack %d: %+v, want %+v", id, list, st[id])
		}
		for i := 1; i < len(list); i++ {
			if list[i-1].Inlined && list[i].Mapping != list[i-1].Mapping {
				t.Errorf("stack %d: frame %d is inlined into another file", id, i-1)
			}
		}
		found++
	}); err != nil || found != len(st) {
		t.Errorf("%d of %d stacks, %v", found, len(st), err)
	}
}

func TestClientsSeeOutOfMemoryErrorsOnce(t *testing.T) {
	s := newServer(torchSession())
	client := connect(t, s)
	want := func(what string, pids ...uint32) {
		t.Helper()
		if _, err := client.Books(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		var got []uint32
		for _, o := range client.OOMs() {
			got = append(got, o.PID)
		}
		if !reflect.DeepEqual(got, pids) {
			t.Errorf("%s: %v, want %v", what, got, pids)
		}
	}
	s.AddOOM(report.OOM{PID: 1})
	want("before the client")
	s.AddOOM(report.OOM{PID: 2})
	s.AddOOM(report.OOM{PID: 3})
	want("two since", 2, 3)
	want("none since")
	for range 3 * maxKeptOOMs {
		s.AddOOM(report.OOM{PID: 4})
	}
	if _, err := client.Books(t.Context(), false); err != nil || len(client.OOMs()) != maxKeptOOMs {
		t.Errorf("more than is kept: %v", err)
	}
}

func TestOtherBuildsAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	x := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(versionHeader, "9.9.9") }))
	x.Listener = socket
	x.Start()
	defer x.Close()
	if _, err := NewClient(path, "1.2.3").Books(t.Context(), false); err == nil || !strings.Contains(err.Error(), "version 9.9.9, this is 1.2.3") {
		t.Errorf("another build: %v", err)
	}
	if _, err := NewClient(path+"x", "1.2.3").Books(t.Context(), false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no server: %v", err)
	}
}

// TestLayoutsDiffer: a field that is added changes the number that both sides compare.
func TestLayoutsDiffer(t *testing.T) {
	type a struct{ X []struct{ Y int } }
	type b struct{ X []struct{ Y uint } }
	type c struct {
		X []struct {
			Y int
			Z int
		}
	}
	seen := map[string]bool{layout(reflect.TypeFor[a]()): true, layout(reflect.TypeFor[b]()): true, layout(reflect.TypeFor[c]()): true}
	if len(seen) != 3 {
		t.Errorf("%d of 3 layouts differ", len(seen))
	}
}

func TestOnlyTheOwnerConnects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	socket, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	stranger := true
	l := ownerOnly{socket, func(conn net.Conn) (uint32, error) {
		uid, err := userOf(conn)
		if err != nil || uid != uint32(os.Geteuid()) {
			t.Errorf("the peer is user %d, %v", uid, err)
		}
		if stranger {
			stranger = false
			return uint32(os.Geteuid()) + 1, nil
		}
		return uid, nil
	}}
	for range 2 {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	conn, err := l.Accept()
	if err != nil || stranger {
		t.Fatalf("accept: %v, stranger %v", err, stranger)
	}
	conn.Close()
}

func TestConnectIsNotServedOverTCP(t *testing.T) {
	s := newServer(torchSession())
	for _, path := range []string{booksPath, stacksPath} {
		if w := ask(t, s, "GET", path, nil); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

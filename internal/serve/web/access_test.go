// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vramprof/vramprof/internal/serve/web/owner"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

const alice, bob, carol = 1000, 1001, 1002

// usersSnapshot has a process of alice, one of bob, and one whose user is unknown.
func usersSnapshot() *ledger.Snapshot {
	l := ledger.New(ledger.Options{})
	for pid, p := range map[uint32]ledger.Process{
		7: {Comm: "alices", Exe: "/home/alice/train", User: alice + 1}, 8: {Comm: "bobs", Exe: "/home/bob/train", User: bob + 1}, 9: {Comm: "nobodys", User: ledger.NoUser},
	} {
		p.PID, p.Begin = pid, 1
		l.Tell(p)
		l.Apply(&ledger.Event{Op: ledger.Alloc, Kind: ledger.Device, PID: pid, Time: 10, Address: 0x1000, Size: uint64(pid) << 20, Stack: uint64(pid), API: "cudaMalloc"})
		l.Tell(ledger.Warning{PID: pid, Text: fmt.Sprintf("/home/of-%d/lib.so is damaged", pid)})
	}
	return l.Snapshot(1e9, time.Unix(1000, 0))
}

// usersSession names the function of each process's stack after its number.
type usersSession struct{ *fakeSession }

func (usersSession) Stack(id uint64) []callstack.Frame {
	return []callstack.Frame{{Function: fmt.Sprintf("secret_of_%d", id)}}
}

// usersPast is an archive of the same processes.
type usersPast struct{ usersSession }

func (a usersPast) At(context.Context, time.Time) (*ledger.Snapshot, callstack.Stacks, io.Closer, error) {
	return a.snapshot, a.usersSession, io.NopCloser(nil), nil
}

func (usersPast) Overview(string, string) (*report.Archive, error) {
	return &report.Archive{Folder: "/home/bob"}, nil
}

func usersServer(config Config) *Server {
	config.Session = usersSession{&fakeSession{snapshot: usersSnapshot()}}
	config.Archive = usersPast{usersSession{&fakeSession{snapshot: usersSnapshot()}}}
	config.Ready, config.Users = func() bool { return true }, []uint32{carol}
	return New(config)
}

// askAs sends a request as somebody does.
func askAs(s *Server, p peer, path string) *httptest.ResponseRecorder {
	return serve(s, asked(httptest.NewRequest("GET", "http://localhost"+path, nil), "127.0.0.1", p))
}

// Paths that show processes: those of one user as well, or those of all users only.
var (
	sharedPaths = []string{
		"/", "/api/v1/report", "/api/v1/report?view=tree", "/api/v1/report?view=table", "/api/v1/leaks", "/api/v1/processes", "/api/v1/report?at=900",
		"/debug/pprof/gpu", "/debug/pprof/gpu?debug=1", "/debug/pprof/gpu?at=900", "/gpu/debug/pprof/heap", "/gpu/debug/pprof/allocs",
	}
	wholePaths = []string{"/data", "/data?at=900", "/api/v1/archive"}
)

// readable returns the text of an answer, unpacked.
func readable(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	if w.Header().Get("Content-Type") != "application/octet-stream" {
		return w.Body.String()
	}
	p, err := profile.Parse(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return p.String()
}

// TestAUserOfThisMachineSeesOnlyItsOwnProcesses: alice asks for everything, beside bob, who gets
// what is his, and root, who gets all.
func TestAUserOfThisMachineSeesOnlyItsOwnProcesses(t *testing.T) {
	s := usersServer(Config{})
	for _, path := range sharedPaths {
		for user, name := range map[uint32]string{alice: "alices", bob: "bobs"} {
			w := askAs(s, localPeer(user), path)
			text := readable(t, w)
			if w.Code != 200 || !strings.Contains(text, name) && !strings.Contains(text, "/home/"+strings.TrimSuffix(name, "s")) {
				t.Errorf("%s as %s: %d %s", path, name, w.Code, text)
			}
			for _, other := range []string{"alice", "bob", "secret_of_7", "secret_of_8", "secret_of_9", "of-7", "of-8", "nobodys"} {
				own := strings.HasPrefix(name, other) || other == fmt.Sprintf("secret_of_%d", user-alice+7)
				if !own && strings.Contains(text, other) {
					t.Errorf("%s as %s has %s", path, name, other)
				}
			}
		}
		w := askAs(s, localPeer(9999), path)
		if w.Code != 403 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), "--web.user") {
			t.Errorf("%s as one who traces nothing: %d %s", path, w.Code, w.Body)
		}
	}
	if text := readable(t, askAs(s, localPeer(alice), "/debug/pprof/gpu?seconds=1")); strings.Contains(text, "secret_of_8") {
		t.Errorf("a difference as alice has bob's: %s", text)
	}
	for _, path := range append(wholePaths, "/events", "/api/v1/report?pid=8", "/debug/pprof/gpu?pid=8", "/?at=900&pid=8") {
		if w := askAs(s, localPeer(alice), path); w.Code != 403 && !strings.Contains(path, "/?at") || strings.Contains(w.Body.String(), "bob") {
			t.Errorf("%s as alice: %d %s", path, w.Code, w.Body)
		} else if w.Code == 403 && !strings.Contains(w.Body.String(), "--web.user") {
			t.Errorf("%s: no remedy: %s", path, w.Body)
		}
	}
}

func TestRootTheDaemonsUserAndNamedUsersSeeAll(t *testing.T) {
	s := usersServer(Config{})
	for name, p := range map[string]peer{"root": localPeer(0), "the daemon": localPeer(uint32(os.Geteuid())), "--web.user": localPeer(carol), "the network": testPeer(1)} {
		for _, path := range append(sharedPaths, wholePaths...) {
			if w := askAs(s, p, path); w.Code != 200 || strings.HasPrefix(path, "/api/v1/report") && !strings.Contains(w.Body.String(), "secret_of_8") {
				t.Errorf("%s as %s: %d %s", path, name, w.Code, w.Body)
			}
		}
	}
}

func TestMetricsAndHealthAreForAllUsers(t *testing.T) {
	s := usersServer(Config{})
	for _, p := range []peer{localPeer(alice), unknownPeer, testPeer(1)} {
		for _, path := range []string{"/metrics", "/-/healthy", "/-/ready"} {
			if w := askAs(s, p, path); w.Code != 200 || strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), "/home") {
				t.Errorf("%s as %v: %d %s", path, p, w.Code, w.Body)
			}
		}
	}
}

func TestAnUnknownUserOfThisMachineSeesNothing(t *testing.T) {
	s := usersServer(Config{})
	for _, path := range append(append(sharedPaths, wholePaths...), "/events") {
		if w := askAs(s, unknownPeer, path); w.Code != 403 || !strings.Contains(w.Body.String(), "--web.user") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestAPasswordOnlyCountsWhereItIsChecked: a client can send any.
func TestAPasswordOnlyCountsWhereItIsChecked(t *testing.T) {
	checked := false
	s := usersServer(Config{Passwords: func() bool { return checked }})
	for _, want := range []int{403, 200} {
		r := httptest.NewRequest("GET", "http://localhost/data", nil)
		r.SetBasicAuth("admin", "guess")
		if w := serve(s, asked(r, "127.0.0.1", localPeer(alice))); w.Code != want {
			t.Errorf("passwords are checked: %v: %d, want %d", checked, w.Code, want)
		}
		checked = true
	}
}

// TestConnectionsOfThisMachineAreTheirUsers, whatever address they are made to, and through HTTP.
func TestConnectionsOfThisMachineAreTheirUsers(t *testing.T) {
	s := usersServer(Config{})
	type answer struct {
		uid     uint32
		missing error
	}
	var now atomic.Value // the server asks in goroutines of its own
	s.ownerOf = func(netip.AddrPort, netip.AddrPort) (uint32, error) {
		a := now.Load().(answer)
		return a.uid, a.missing
	}
	address := listen(t, s)
	for _, c := range []struct {
		uid     uint32
		missing error
		want    int
	}{{0, nil, 200}, {alice, nil, 403}, {carol, nil, 200}, {0, owner.ErrNone, 403}, {0, io.EOF, 403}} {
		now.Store(answer{c.uid, c.missing})
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		r, err := client.Get("http://" + address + "/data")
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != c.want {
			t.Errorf("user %d, %v: %d, want %d", c.uid, c.missing, r.StatusCode, c.want)
		}
	}
	tcp := func(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }
	for _, c := range []struct {
		local, remote string
		owner         error
		want          peer
	}{
		{"192.0.2.7:9836", "192.0.2.7:40000", nil, localPeer(alice)},
		{"192.0.2.7:9836", "192.0.2.7:40000", owner.ErrNone, unknownPeer},
		{"127.0.0.1:9836", "192.0.2.7:40000", owner.ErrNone, unknownPeer},
		{"192.0.2.7:9836", "192.0.2.8:40000", nil, localPeer(alice)}, // another address of this machine
		{"192.0.2.7:9836", "192.0.2.8:40000", owner.ErrNone, peer{address: netip.MustParsePrefix("192.0.2.8/32")}},
		{"[2001:db8::1]:9836", "[2001:db8::2]:40000", owner.ErrNone, peer{address: netip.MustParsePrefix("2001:db8::/64")}},
		{"[::]:9836", "[::ffff:192.0.2.8]:40000", owner.ErrNone, peer{address: netip.MustParsePrefix("192.0.2.8/32")}},
	} {
		now.Store(answer{alice, c.owner})
		if got := s.peerAt(tcp(c.local), tcp(c.remote)); got != c.want {
			t.Errorf("from %s to %s: %v, want %v", c.remote, c.local, got, c.want)
		}
	}
}

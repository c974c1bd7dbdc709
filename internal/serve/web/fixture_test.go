// SPDX-License-Identifier: Apache-2.0

package web

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/vramprof/vramprof/report/reporttest"
	"github.com/vramprof/vramprof/symbolize/callstack"
)

// named is a session whose stacks have names.
type named struct {
	*fakeSession
	stacks callstack.Stacks
}

func (n named) Stack(id uint64) []callstack.Frame { return n.stacks.Stack(id) }

// torchSession has the books of processes with PyTorch.
func torchSession() named {
	return named{&fakeSession{snapshot: reporttest.TorchSnapshot()}, reporttest.TorchStacks()}
}

func newServer(session Session) *Server {
	return New(Config{Session: session, Ready: func() bool { return true }})
}

// listen serves on a socket as vramprof serve does, and returns its address.
func listen(t *testing.T, s *Server) string {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	x := s.HTTP(s.Handler(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	go func() { _ = x.Serve(socket) }()
	t.Cleanup(func() { x.Close() })
	return socket.Addr().String()
}

// ask sends one request to the handler, as a client of this machine does.
func ask(t *testing.T, s *Server, method, path string, header map[string]string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, nil)
	r.Host = "localhost:9836"
	for key, value := range header {
		if key == "Host" {
			r.Host = value
		}
		r.Header.Set(key, value)
	}
	return serve(s, asked(r, "127.0.0.1", localPeer(0)))
}

func serve(s *Server, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

// testPeer returns one of many clients of other machines.
func testPeer(n int) peer {
	return peer{address: netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}), 32)}
}

// hold takes a place for a client.
func (g *gate) hold(t *testing.T, p peer) {
	t.Helper()
	if err := g.enter(t.Context(), p, 0); err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	return r.StatusCode
}

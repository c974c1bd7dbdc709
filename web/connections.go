// SPDX-License-Identifier: Apache-2.0

package web

import (
	"container/list"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Limits of connections. Each takes about 20 KB, with TLS 60 KB.
const (
	maxConnections = 256
	maxStreams     = 32       // requests at a time of one HTTP/2 connection
	maxHeader      = 16 << 10 // bytes

	headerTime  = 10 * time.Second // to send the header of a request
	requestTime = 30 * time.Second // to send all of it
	answerTime  = time.Minute      // to take the answer, and to compose it
	idleTime    = 2 * time.Minute
)

// HTTP returns the server for one listener of the handler. The servers of all listeners share
// maxConnections: beyond them, the connection that has waited longest for a request is closed, so
// that idle clients keep out nobody.
func (s *Server) HTTP(handler http.Handler, log *slog.Logger) *http.Server {
	x := &http.Server{
		Handler: handler, ConnState: s.connections.changed, MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug), // clients cause these errors
	}
	x.RegisterOnShutdown(func() { s.end.Do(func() { close(s.ending) }) })
	return x
}

// lasts lets a request take longer than others.
func lasts(w http.ResponseWriter, d time.Duration) {
	c, until := http.NewResponseController(w), time.Now().Add(d+answerTime)
	_ = c.SetReadDeadline(until) // for the request's context: a server reads ahead
	_ = c.SetWriteDeadline(until)
}

// connections bounds the open connections.
type connections struct {
	mu      sync.Mutex
	open    map[net.Conn]*list.Element // in waiting, nil while a request is answered
	waiting *list.List                 // of net.Conn without a request, the longest first
}

func newConnections() *connections {
	return &connections{open: map[net.Conn]*list.Element{}, waiting: list.New()}
}

// changed is the ConnState of servers.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.open[conn]; at != nil {
		c.waiting.Remove(at)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		c.open[conn] = c.waiting.PushBack(conn)
		if len(c.open) > maxConnections {
			c.closeOne()
		}
	case http.StateActive:
		c.open[conn] = nil
	default:
		delete(c.open, conn)
	}
}

// closeOne closes the connection that has waited longest. It waits for no client, as the close of a
// TLS connection would.
func (c *connections) closeOne() {
	first := c.waiting.Front()
	conn := c.waiting.Remove(first).(net.Conn)
	delete(c.open, conn)
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	conn.Close()
}

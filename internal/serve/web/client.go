// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"cmp"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/vramprof/vramprof/internal/untrusted"
	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// stackWait is how long a stack is waited for.
const stackWait = 5 * time.Second

// Client asks a running vramprof serve over its socket. It is safe for concurrent use.
type Client struct {
	http    http.Client
	version string

	mu     sync.Mutex
	stacks map[uint64][]callstack.Frame // nil: asked in vain since the last books
	oom    string                       // number of the next out-of-memory error
	ooms   []report.OOM
}

// NewClient returns a Client of the server that listens on the socket at path. The version is that
// of this program, for errors.
func NewClient(path, version string) *Client {
	c := &Client{version: version, stacks: map[uint64][]callstack.Frame{}}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	return c
}

// Books returns a copy of the server's books, as of at most a second ago: of whole ones also
// Snapshot.Stuck and Snapshot.Peaks.
func (c *Client) Books(ctx context.Context, whole bool) (*ledger.Snapshot, error) {
	c.mu.Lock()
	query := "?oom=" + c.oom
	c.mu.Unlock()
	if whole {
		query += "&" + connectWhole + "=1"
	}
	var books remoteBooks
	if err := c.ask(ctx, http.MethodGet, booksPath+query, nil, &books); err != nil {
		return nil, err
	}
	s := books.Snapshot
	if err := check(s); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.oom = strconv.FormatUint(books.NextOOM, 10)
	c.ooms = append(c.ooms, books.OOMs...)
	c.ooms = c.ooms[max(len(c.ooms)-maxKeptOOMs, 0):]
	c.mu.Unlock()
	return s, c.learn(ctx, func(f func(id uint64)) { eachStack(s, f) })
}

// TensorBlocks returns the live tensors of a process that have an event of their own, as of now,
// and whether the server traces it. Their stacks take the place of those of the latest Books.
func (c *Client) TensorBlocks(ctx context.Context, pid uint32) (list []ledger.TensorBlock, traced bool, err error) {
	var x remoteTensors
	if err := c.ask(ctx, http.MethodGet, fmt.Sprint(tensorsPath, "?pid=", pid), nil, &x); err != nil {
		return nil, false, err
	}
	return x.Blocks, x.Traced, c.learn(ctx, func(f func(id uint64)) {
		for i := range x.Blocks {
			f(x.Blocks[i].Stack)
		}
	})
}

// OOMs returns the out-of-memory errors since the last call, and since the first Books.
func (c *Client) OOMs() []report.OOM {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.ooms
	c.ooms = nil
	return list
}

// learn asks for those of the stacks that are not known, and forgets the others.
func (c *Client) learn(ctx context.Context, each func(f func(id uint64))) error {
	var missing []uint64
	kept := map[uint64][]callstack.Frame{}
	c.mu.Lock()
	each(func(id uint64) {
		if _, ok := kept[id]; ok || id == 0 {
			return
		}
		list := c.stacks[id]
		if kept[id] = list; list == nil {
			missing = append(missing, id)
		}
	})
	c.stacks = kept
	c.mu.Unlock()
	for len(missing) > 0 {
		n := min(len(missing), maxAsked)
		if err := c.fetch(ctx, missing[:n]); err != nil {
			return err
		}
		missing = missing[n:]
	}
	return nil
}

func (c *Client) fetch(ctx context.Context, ids []uint64) error {
	var body bytes.Buffer
	if err := gob.NewEncoder(&body).Encode(ids); err != nil {
		return err
	}
	var stacks remoteStacks
	if err := c.ask(ctx, http.MethodPost, stacksPath, &body, &stacks); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		c.stacks[id] = nil
	}
	return stacks.unpack(func(id uint64, list []callstack.Frame) { c.stacks[id] = list })
}

// Stack returns the frames of a stack, leaf first.
func (c *Client) Stack(id uint64) []callstack.Frame {
	c.mu.Lock()
	list, ok := c.stacks[id]
	c.mu.Unlock()
	if ok || id == 0 {
		return list
	}
	ctx, cancel := context.WithTimeout(context.Background(), stackWait)
	defer cancel()
	_ = c.fetch(ctx, []uint64{id}) // it has no names otherwise
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stacks[id]
}

// otherBuild is the error about a server whose books look different.
func (c *Client) otherBuild(server string) error {
	return fmt.Errorf("vramprof serve is version %s, this is %s (use the same, or restart the service)", cmp.Or(untrusted.Clean(server), "unknown"), c.version)
}

func (c *Client) ask(ctx context.Context, method, path string, body io.Reader, answer any) error {
	r, err := http.NewRequestWithContext(ctx, method, "http://vramprof"+path, body)
	if err != nil {
		return err
	}
	x, err := c.http.Do(r)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil { // without "Get http://vramprof/…"
			err = inner
		}
		return err
	}
	defer x.Body.Close()
	if x.Header.Get(typesHeader) != types {
		return c.otherBuild(x.Header.Get(versionHeader))
	}
	if x.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(x.Body, maxValue))
		return fmt.Errorf("vramprof serve: %s", untrusted.Clean(string(bytes.TrimSpace(text))))
	}
	if err := gob.NewDecoder(io.LimitReader(x.Body, maxBooks)).Decode(answer); err != nil {
		return fmt.Errorf("read the books of vramprof serve: %w", err)
	}
	// To the end, for a caller that may not connect again.
	_, err = io.Copy(io.Discard, io.LimitReader(x.Body, maxValue))
	return err
}

// check returns an error if an index of a snapshot is out of range.
func check(s *ledger.Snapshot) (err error) {
	if s == nil {
		return errors.New("vramprof serve sent no books")
	}
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("vramprof serve sent damaged books")
		}
	}()
	s.Only(func(*ledger.Process) bool { return true })
	return nil
}

// eachStack calls f for each stack of a snapshot, some more than once.
func eachStack(s *ledger.Snapshot, f func(id uint64)) {
	for i := range s.Sites {
		f(s.Sites[i].Stack)
		for _, o := range s.Sites[i].Owners {
			f(o.Stack)
		}
	}
	for i := range s.Failures {
		f(s.Failures[i].Stack)
	}
	for i := range s.Objects {
		f(s.Objects[i].Stack)
	}
	for i := range s.Peaks {
		if o := s.Peaks[i].OOM; o != nil {
			f(o.Stack)
		}
		if s.Peaks[i].Books != nil {
			eachStack(s.Peaks[i].Books, f)
		}
	}
	for i := range s.Stuck {
		for k := range s.Stuck[i].Sets {
			for _, by := range s.Stuck[i].Sets[k].By {
				f(by.Stack)
			}
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/vramprof/vramprof/report"
	"github.com/vramprof/vramprof/symbolize/callstack"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// SocketName is the name of the socket of --connect in its folder.
const SocketName = "vramprof.sock"

// Limits of the socket of --connect.
const (
	maxBooks     = 1 << 30 // bytes of an answer
	maxAsked     = 1 << 16 // stacks of one request
	maxClients   = 16      // requests at a time
	booksPath    = "/internal/books"
	stacksPath   = "/internal/stacks"
	tensorsPath  = "/internal/tensors"
	connectWhole = "whole"

	typesHeader   = "Vramprof-Types"
	versionHeader = "Vramprof-Version"
)

// remoteBooks is the answer to a request for the books.
type remoteBooks struct {
	Snapshot *ledger.Snapshot
	OOMs     []report.OOM // since the client asked last
	NextOOM  uint64       // number of the next one
}

// remoteStacks has the frames of stacks, each distinct frame and mapping once.
type remoteStacks struct {
	Mappings []callstack.Mapping
	Frames   []remoteFrame
	Stacks   map[uint64][]uint32 // indexes into Frames
}

// remoteTensors has the live tensors of one process.
type remoteTensors struct {
	Traced bool
	Blocks []ledger.TensorBlock
}

type remoteFrame struct {
	callstack.Frame     // without its mapping
	At              int // index into Mappings plus 1; 0: none
}

// types identifies the layout of what is sent: both sides must be of the same build, or of one
// whose books look the same.
var types = layout(reflect.TypeFor[remoteBooks]()) + layout(reflect.TypeFor[remoteStacks]()) + layout(reflect.TypeFor[remoteTensors]())

// Connect returns the handler for the socket of --connect, which only root may connect to. It
// serves the books as they are.
func (s *Server) Connect() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+booksPath, s.serveBooks)
	mux.HandleFunc("POST "+stacksPath, s.serveStacks)
	mux.HandleFunc("GET "+tensorsPath, s.serveTensors)
	clients, all := newGate(4*maxClients), localPeer(0) // of which one peer has a quarter
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := clients.enter(r.Context(), all, composeWait); err != nil {
			writeError(w, err)
			return
		}
		defer clients.leave(all)
		w.Header().Set(typesHeader, types)
		w.Header().Set(versionHeader, s.config.Version)
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) serveBooks(w http.ResponseWriter, r *http.Request) {
	m := (*Moment)(nil)
	if r.FormValue(connectWhole) != "" {
		m = s.whole(time.Now().Add(-momentAge))
	} else {
		m = s.now()
	}
	out := remoteBooks{Snapshot: m.Snapshot}
	after, err := strconv.ParseUint(r.FormValue("oom"), 10, 64)
	out.OOMs, out.NextOOM = s.ooms.since(after, err == nil)
	writeGob(w, &out)
}

// serveTensors answers with the live tensors of a process.
func (s *Server) serveTensors(w http.ResponseWriter, r *http.Request) {
	pid, err := strconv.ParseUint(r.FormValue("pid"), 10, 32)
	if err != nil {
		writeError(w, badRequest("malformed pid"))
		return
	}
	var out remoteTensors
	if s.config.TensorBlocks != nil {
		out.Blocks, out.Traced = s.config.TensorBlocks(uint32(pid))
	}
	writeGob(w, &out)
}

func writeGob(w http.ResponseWriter, value any) {
	var out bytes.Buffer
	if err := gob.NewEncoder(&out).Encode(value); err != nil {
		writeError(w, err)
		return
	}
	writeBody(w, "application/octet-stream", out.Bytes())
}

// serveStacks answers with the stacks whose numbers are the request's body.
func (s *Server) serveStacks(w http.ResponseWriter, r *http.Request) {
	var ids []uint64
	if err := gob.NewDecoder(http.MaxBytesReader(w, r.Body, 16*maxAsked)).Decode(&ids); err != nil && !errors.Is(err, io.EOF) || len(ids) > maxAsked {
		writeError(w, badRequest("malformed list of stacks"))
		return
	}
	writeGob(w, packStacks(s.config.Session, ids))
}

func packStacks(st callstack.Stacks, ids []uint64) *remoteStacks {
	out := &remoteStacks{Stacks: map[uint64][]uint32{}}
	mappings, known := map[callstack.Mapping]int{}, map[callstack.Frame]uint32{}
	for _, id := range ids {
		var list []uint32
		for _, f := range st.Stack(id) {
			at, ok := known[f]
			if !ok {
				at = uint32(len(out.Frames))
				known[f] = at
				x := remoteFrame{Frame: f}
				if m := f.Mapping; m != nil {
					if x.At = mappings[*m]; x.At == 0 {
						out.Mappings = append(out.Mappings, *m)
						x.At = len(out.Mappings)
						mappings[*m] = x.At
					}
				}
				x.Frame.Mapping = nil
				out.Frames = append(out.Frames, x)
			}
			list = append(list, at)
		}
		if list != nil {
			out.Stacks[id] = list
		}
	}
	return out
}

// unpack calls add for each stack.
func (p *remoteStacks) unpack(add func(id uint64, list []callstack.Frame)) error {
	for i := range p.Frames {
		f := &p.Frames[i]
		if f.At < 0 || f.At > len(p.Mappings) {
			return fmt.Errorf("frame %d has no mapping", i)
		}
		if f.At > 0 {
			f.Frame.Mapping = &p.Mappings[f.At-1]
		}
	}
	for id, indexes := range p.Stacks {
		list := make([]callstack.Frame, 0, len(indexes))
		for _, i := range indexes {
			if int(i) >= len(p.Frames) {
				return fmt.Errorf("stack %d has no frame %d", id, i)
			}
			list = append(list, p.Frames[i].Frame)
		}
		add(id, list)
	}
	return nil
}

// layout names all fields of a type and of those that it contains.
func layout(t reflect.Type) string {
	h := fnv.New64a()
	seen := map[reflect.Type]bool{}
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		fmt.Fprintf(h, "%s %s;", t.Kind(), t)
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Map:
			add(t.Key())
			add(t.Elem())
		case reflect.Slice, reflect.Pointer:
			add(t.Elem())
		case reflect.Array:
			fmt.Fprintf(h, "%d;", t.Len())
			add(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				if f := t.Field(i); f.IsExported() {
					fmt.Fprintf(h, "%s ", f.Name)
					add(f.Type)
				}
			}
		}
	}
	add(t)
	return strconv.FormatUint(h.Sum64(), 36)
}

// AddOOM has the screens of clients show an out-of-memory error.
func (s *Server) AddOOM(o report.OOM) { s.ooms.add(o) }

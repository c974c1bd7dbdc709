// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vramprof/vramprof/tracer/capture"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// keep does everything that can wait for the disk, until End.
func (w *Writer) keep() {
	defer close(w.done)
	tick := time.NewTicker(w.o.step)
	defer tick.Stop()
	for {
		select {
		case <-w.wake:
		case <-tick.C:
		case <-w.stop:
			return
		}
		w.endOld()
		w.giveUp()
		w.prepare()
		w.expire()
		w.syncNow()
		w.count()
	}
}

// endOld ends the parts that are not current any more.
func (w *Writer) endOld() {
	w.mu.Lock()
	list := w.old
	w.old = nil
	w.mu.Unlock()
	for _, p := range list {
		if p.failure() == nil {
			w.close(p, &ledger.Snapshot{End: p.end, Wall: p.wall(p.end)})
		} else {
			w.close(p, nil)
		}
	}
}

// close ends a part, and removes it if nothing can be read from it.
func (w *Writer) close(p *part, end *ledger.Snapshot) {
	err := p.failure()
	if err != nil {
		end = nil
	}
	_ = p.writer.End(end)
	if err == nil {
		err = errors.Join(p.failure(), p.handle.Sync())
	}
	_ = p.handle.Close()
	s := p.writer.Stored()
	w.mu.Lock()
	w.stats.LostEvents += p.lost()
	w.mu.Unlock()
	if p.serial > 0 && !s.Opened {
		_ = w.dir.Remove(p.file())
		return
	}
	p.size, p.last = s.Bytes, w.o.Wall()
	x := p.summary.index()
	x.of(p, w, s, err == nil && end != nil)
	p.index = w.writeIndex(p.side(), x)
	w.files = append(w.files, p.stored)
}

// giveUp replaces parts whose disk has failed: history is lost from there on.
func (w *Writer) giveUp() {
	w.mu.Lock()
	p, next := w.current, w.next
	if p != nil && p.failure() != nil {
		p.end, w.since = w.o.Clock(), max(p.writer.Stored().Time, p.begin)
		p.summary, w.summary, w.current = w.summary, w.summary.next(), nil
	} else {
		p = nil
	}
	if next != nil && next.failure() != nil {
		w.next = nil
	} else {
		next = nil
	}
	w.mu.Unlock()
	for _, failed := range []*part{next, p} {
		if failed == nil {
			continue
		}
		err := failed.failure()
		w.close(failed, nil)
		w.fails(err)
	}
}

// fails notes that nothing can be written, and makes room if that helps.
func (w *Writer) fails(err error) {
	err = cause(err)
	w.mu.Lock()
	w.stats.Failures++
	lost := w.current == nil
	if lost {
		w.stats.Err = err
	}
	w.mu.Unlock()
	if lost && !w.silent {
		w.silent = true
		w.o.Note(fmt.Sprintf("write to %s: %v; tracing goes on, and the archive lacks what happens until this is repaired", w.path, err))
	}
	w.retry = time.Now().Add(w.o.again)
	if isFull(err) && w.makeRoom(uint64(w.o.FileSize)) {
		w.retry = time.Time{}
	}
}

// isDisk reports whether an error is the disk's, and not of how vramprof was started.
func isDisk(err error) bool {
	return isFull(err) || errors.Is(err, unix.EIO) || errors.Is(err, unix.EROFS)
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// makeRoom removes the oldest captures, but not the newest one, until the disk has so many free
// bytes. It reports whether there is more room than before. Where removing makes no room, it stops:
// somebody else fills the disk.
func (w *Writer) makeRoom(bytes uint64) (more bool) {
	before := w.free()
	for len(w.files) > 1 && before < bytes {
		w.remove(0)
		now := w.free()
		if now <= before {
			break
		}
		before, more = now, true
	}
	return more
}

// free returns the free bytes of the disk.
func (w *Writer) free() uint64 {
	var s unix.Statfs_t
	if w.lock == nil {
		return 0
	}
	if err := unix.Fstatfs(int(w.lock.Fd()), &s); err != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize)
}

// remove removes a complete capture. Somebody else may have removed it.
func (w *Writer) remove(i int) {
	f := w.files[i]
	w.files = append(w.files[:i], w.files[i+1:]...)
	if err := w.dir.Remove(f.file()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.mu.Lock()
		w.stats.Failures++
		w.mu.Unlock()
	}
	_ = w.dir.Remove(f.side())
}

// prepare begins the next part if there is none that can be written, or if it is full.
func (w *Writer) prepare() {
	w.mu.Lock()
	current, next := w.current, w.next
	due := current == nil || current.full(&w.o, w.o.Clock(), w.o.Wall())
	w.mu.Unlock()
	if !due || next != nil || w.o.Opening == nil || time.Now().Before(w.retry) {
		return
	}
	p, err := w.begin()
	if err != nil {
		w.fails(err)
		return
	}
	w.mu.Lock()
	w.next = p
	w.mu.Unlock()
}

// begin creates a capture.
func (w *Writer) begin() (*part, error) {
	if w.dir == nil {
		if err := w.open(); err != nil {
			return nil, err
		}
	}
	w.shrink(w.o.FileSize)
	now := w.o.Wall()
	p := &part{serial: w.serial, synced: now}
	var err error
	for range 100 {
		p.stored = next(w.last, now)
		w.last = p.stored
		p.handle, err = w.dir.OpenFile(p.file(), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	p.created, p.at = w.o.Wall(), w.o.Clock()
	p.begin = p.at
	p.writer, err = capture.NewWriter(p.handle, capture.Options{
		Host: w.o.Host, Tool: w.o.Tool, Clock: w.o.Clock, Wall: p.created, Time: p.at, Interval: w.o.interval,
		Boot: w.boot, Session: w.session, Part: w.serial,
		OnError: func(err error) {
			p.fail(cmp.Or(errors.Unwrap(err), err)) // without where the capture ends
			signal(w.wake)
		},
	})
	if err != nil {
		_ = p.handle.Close()
		_ = w.dir.Remove(p.file())
		return nil, err
	}
	w.mu.Lock()
	if w.stacks != nil {
		p.writer.SetStacks(w.stacks)
	}
	w.mu.Unlock()
	w.serial++
	w.retry = time.Time{}
	return p, nil
}

// shrink removes the oldest captures until there is room for more bytes besides the current ones,
// and for what these may grow by until shrink is called again.
func (w *Writer) shrink(more int64) {
	sum := more + w.o.FileSize/2
	w.mu.Lock()
	for _, p := range []*part{w.current, w.next} {
		if p != nil {
			sum += p.writer.Stored().Bytes
		}
	}
	w.mu.Unlock()
	for i := range w.files {
		sum += w.files[i].size + w.files[i].index
	}
	for len(w.files) > 0 && sum > w.o.Size {
		sum -= w.files[0].size + w.files[0].index
		w.remove(0)
	}
}

// expire removes captures that are too old, and those beyond the archive's size.
func (w *Writer) expire() {
	w.shrink(0)
	w.makeRoom(uint64(w.o.FileSize / 4)) // before the disk is full
	now := w.o.Wall()
	if now.Sub(w.aged).Abs() < time.Minute {
		return
	}
	w.aged = now
	for len(w.files) > 0 && now.Sub(w.files[0].last) > w.o.Age {
		w.remove(0)
	}
	w.writeMissingIndex()
}

// syncNow has the disk keep what the current part has so far.
func (w *Writer) syncNow() {
	w.mu.Lock()
	p := w.current
	w.mu.Unlock()
	now := w.o.Wall()
	if p == nil || now.Sub(p.synced).Abs() < w.o.sync {
		return
	}
	p.synced = now
	if err := unix.Fdatasync(int(p.handle.Fd())); err != nil && !errors.Is(err, unix.EINVAL) {
		p.fail(err)
	}
}

// count brings Stats up to date, and has Note told that writing goes on.
func (w *Writer) count() {
	var sum int64
	for i := range w.files {
		sum += w.files[i].size + w.files[i].index
	}
	w.mu.Lock()
	w.stats.Bytes, w.stats.Files, w.stats.Oldest = sum, len(w.files), time.Time{}
	if len(w.files) > 0 {
		w.stats.Oldest, _ = time.Parse(nameTime, w.files[0].time)
	}
	again := w.silent && w.current != nil
	s := w.stats
	w.mu.Unlock()
	if again {
		w.silent = false
		w.o.Note(fmt.Sprintf("writing to %s again; the archive lacks %s and %d events", w.path, s.LostTime.Round(time.Millisecond), s.LostEvents))
	}
}

// finish ends all parts, once the keeper is done.
func (w *Writer) finish(s *ledger.Snapshot) {
	w.endOld()
	w.mu.Lock()
	p, next := w.current, w.next
	w.current, w.next = nil, nil
	if p != nil {
		p.summary = w.summary
	}
	w.mu.Unlock()
	if next != nil {
		_ = next.writer.End(nil)
		_ = next.handle.Close()
		_ = w.dir.Remove(next.file())
	}
	if p != nil {
		p.end = w.o.Clock()
		if s != nil {
			p.end = s.End
		}
		w.close(p, s)
		if err := p.failure(); err != nil {
			w.mu.Lock()
			w.stats.Err = cause(err)
			w.mu.Unlock()
		}
	}
	if w.dir != nil {
		_ = w.lock.Close()
		_ = w.dir.Close()
	}
}

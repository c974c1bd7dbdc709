// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"github.com/vramprof/vramprof/tracer/capture/internal/wire"
	"github.com/vramprof/vramprof/tracer/ledger"
)

// begins records the time of an input to be added to the batch. The caller holds w.mu.
func (w *Writer) begins(time uint64) {
	if w.batch.empty() || time < w.batch.first {
		w.batch.first = time
	}
}

// Apply adds an event.
func (w *Writer) Apply(e *ledger.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.err != nil {
		return
	}
	if w.checkpoints.look {
		w.checkpoint()
	}
	w.now = max(w.now, e.Time)
	w.begins(e.Time)
	w.coder.add(&w.batch.inputs, e)
	if int(w.batch.inputs.Events) >= w.most {
		w.pass()
	}
}

// add adds another input, which came now.
func (w *Writer) add(in *wire.Input) { w.addAt(w.clock(), in) }

// addAt adds a reading made at some time: the ledger has all events up to then, and may have later
// ones.
func (w *Writer) addAt(time uint64, in *wire.Input) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.err != nil {
		return
	}
	in.Time = time
	w.now = max(w.now, time)
	w.begins(time)
	in.Position = w.batch.inputs.Events
	w.batch.inputs.Input = append(w.batch.inputs.Input, in)
	w.batch.size += size(in)
	if w.batch.size >= batchBytes {
		w.pass()
	}
}

// Tell adds an input. It copies what it keeps.
func (w *Writer) Tell(in ledger.Input) {
	if _, told := in.(ledger.Segments); !told { // the books have them already
		w.lookForCheckpoint()
	}
	switch in := in.(type) {
	case ledger.Begin:
		w.mu.Lock()
		w.begin = in.Time
		w.mu.Unlock()
		w.add(inputOf(in))
	case ledger.UsageOpened:
		w.addAt(in.Time, inputOf(in))
	case ledger.UsageReading:
		w.addAt(in.Time, inputOf(in))
	case ledger.SystemReading:
		w.addAt(in.Time, inputOf(in))
	case ledger.TensorReading:
		w.addAt(in.Time, inputOf(in))
	case ledger.BlockList:
		w.addBlocks(in)
	case ledger.AllocatorReading:
		for _, part := range allocatorInputs(&in) {
			w.addAt(in.Time, part)
		}
	case ledger.Walk:
		for _, part := range walkInputs(&in) {
			w.addAt(in.Time, part)
		}
	default:
		w.add(inputOf(in))
	}
}

// addBlocks splits a list into parts that fit a frame.
func (w *Writer) addBlocks(in ledger.BlockList) {
	list := in.Blocks
	for part := uint32(0); ; part++ {
		n := min(len(list), blocksPart)
		w.add(blocksInput(in.PID, part, list[:n], n == len(list)))
		if list = list[n:]; len(list) == 0 {
			return
		}
	}
}

// SetCheckpoints sets the source of checkpoints. The Writer calls it in Apply and Tell, before it
// takes what it is told. Without it, the capture has none.
func (w *Writer) SetCheckpoints(source Checkpoints) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkpoints.source = source
}

// checkpoint queues a checkpoint if one is due. Once something was dropped there are no more: they
// would show other books than those that follow from the inputs. The caller holds w.mu, and the
// books have all inputs so far.
func (w *Writer) checkpoint() {
	w.checkpoints.look = false
	if !w.checkpoints.due(w.stored.Bytes) || w.closed || w.err != nil || w.opens || w.lost > 0 || len(w.rest) > 0 || len(w.queue) > cap(w.queue)/2 {
		return
	}
	list, ok := w.checkpoints.take(w.stored.Bytes)
	if !ok {
		return
	}
	if !w.batch.empty() {
		w.pass()
	}
	at := max(w.now, w.clock()) // no frame before it is later
	w.send(&batch{checkpoint: list, first: at, last: at})
}

// lookForCheckpoint queues a checkpoint if one is due, before an input.
func (w *Writer) lookForCheckpoint() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.checkpoints.look {
		w.checkpoint()
	}
}

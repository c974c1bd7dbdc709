/* SPDX-License-Identifier: GPL-2.0-only */
/* A cache of walks. A program allocates from the same places again and again. A walk depends
 * only on the registers at its start, the words of memory that it reads, and the unwind tables.
 * So each walk records the words that it reads. A later walk from the same registers compares
 * these words, at a twentieth of the cost of a walk, and reuses the stack if all are equal. The
 * result is exact: the walk would read the same words and take the same steps.
 *
 * Different walks from the same registers form a tree: where a word differs, its position and
 * value are hashed into the key of the next walk to compare. */
#ifndef VRAMPROF_WALK_RECALL_H
#define VRAMPROF_WALK_RECALL_H

#include "processes.h"
#include "registers.h"
#include "threads.h"
#include "unwinder_functions.h"
#include "verifier.h"
#include "walk_recording.h"

#define MAX_BRANCHES 40 /* remembered walks that are compared one after another */
#define MAX_WALKS 8192  /* of 3 KiB each */

MAP(walks, BPF_MAP_TYPE_LRU_HASH, u64, struct walk, MAX_WALKS);

/* Per-CPU memory of the comparison. Most of its time goes into reads of user memory, and a read of
 * 16 KiB takes less than three of a word. So it reads at once the part of the stack that earlier
 * comparisons from the same registers needed, and the Python frames that are not on the stack. A
 * per-CPU map holds at most 32 KiB. */
#define STACK_WINDOW (22 << 10)
#define FRAMES_WINDOW (8 << 10)
struct scratch {
	u64 value;   /* value of the current check */
	u64 next;    /* index of the next check */
	u64 walking; /* current walks on this CPU, see count_walks */
	u64 stack_read; /* bytes in stack */
	struct range frames_read; /* the memory in frames */
	/* What was needed so far. */
	u64 stack_needed;
	struct range frames_needed;
	u8 frame[PYTHON_FRAME_SIZE]; /* a frame that is in neither */
	u8 frames[FRAMES_WINDOW];
	u8 stack[STACK_WINDOW + 2 * PYTHON_FRAME_SIZE]; /* more, for the offsets of fields that older verifiers assume */
};

MAP(scratches, BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct scratch, 1);

// Returns the key of walks by the same thread from the same registers with the same tables.
static EBPF_INLINE u64 walk_key(struct pt_regs *ctx, struct process *process, u64 id)
{
	u64 key = mix(mix(process->seed, process->generation), id);
#if defined(__x86_64__)
	return mix(mix(key, ctx->ip), ctx->sp);
#else
	return mix(mix(mix(mix(key, ctx->pc), ctx->sp), ctx->regs[29]), ctx->regs[30]);
#endif
}

// Reads what earlier comparisons that began with a walk needed. If it cannot be read at once, they
// find it anew. Errors are negative; a branch would make the verifier visit all that follows twice.
static EBPF_INLINE bool fill_windows(struct scratch *scratch, struct walk *walk, u64 sp)
{
	// Read once: other processors change the walk.
	u64 size = *(volatile u64 *)&walk->stack_size, frames_size = *(volatile u64 *)&walk->frames.size, at = walk->frames.at;
	asm volatile("" : "+r"(size), "+r"(frames_size)); // one register for the limit and the size
	if (size > STACK_WINDOW || frames_size > FRAMES_WINDOW)
		return false;
	s64 error = bpf_probe_read_user(scratch->stack, size, (void *)sp);
	scratch->stack_needed = scratch->stack_read = size & ~(error >> 63);
	error = bpf_probe_read_user(scratch->frames, frames_size, (void *)at);
	scratch->frames_needed.size = scratch->frames_read.size = frames_size & ~(error >> 63);
	scratch->frames_needed.at = scratch->frames_read.at = at;
	return true;
}

// Notes what a comparison needed in the walk that it began with.
static EBPF_INLINE void keep_needed(struct scratch *scratch, u64 key)
{
	if (scratch->stack_needed == scratch->stack_read && scratch->frames_needed.at == scratch->frames_read.at &&
	    scratch->frames_needed.size == scratch->frames_read.size)
		return;
	struct walk *walk = bpf_map_lookup_elem(&walks, &key);
	if (!walk)
		return;
	walk->stack_size = scratch->stack_needed;
	walk->frames = scratch->frames_needed;
}

// Adds a word or a frame on the stack to what was needed.
static EBPF_INLINE void need_stack(struct scratch *scratch, u64 end)
{
	if (end <= STACK_WINDOW && end > scratch->stack_needed)
		scratch->stack_needed = end;
}

// Adds a Python frame elsewhere. A single frame is replaced: it may be a generator's.
static EBPF_INLINE void need_frame(struct range *frames, u64 address)
{
	u64 low = address < frames->at ? address : frames->at, end = frames->at + frames->size;
	if (end < address + PYTHON_FRAME_SIZE)
		end = address + PYTHON_FRAME_SIZE;
	if (end - low > FRAMES_WINDOW) {
		if (frames->size > PYTHON_FRAME_SIZE)
			return;
		low = address;
		end = address + PYTHON_FRAME_SIZE;
	}
	frames->at = low;
	frames->size = end - low;
}

// Returns the memory of a Python frame; NULL: it is not readable.
static EBPF_INLINE u8 *read_python_frame(struct scratch *scratch, u64 sp, u64 address)
{
	u64 offset = address - sp;
	if (offset <= STACK_WINDOW - PYTHON_FRAME_SIZE) {
		if (offset + PYTHON_FRAME_SIZE <= scratch->stack_read)
			return &scratch->stack[offset];
		need_stack(scratch, offset + PYTHON_FRAME_SIZE);
	} else {
		offset = address - scratch->frames_read.at;
		if (offset <= FRAMES_WINDOW - PYTHON_FRAME_SIZE && offset + PYTHON_FRAME_SIZE <= scratch->frames_read.size)
			return &scratch->frames[offset];
		need_frame(&scratch->frames_needed, address);
	}
	return bpf_probe_read_user(scratch->frame, PYTHON_FRAME_SIZE, (void *)address) ? NULL : scratch->frame;
}

// Reads the current value of a check: a word, an int, or the hash of a Python frame's fields.
// Returns 0 on success.
static EBPF_INLINE long read_check(struct scratch *scratch, const PyProcInfo *python, struct pt_regs *ctx,
				   struct check *check, u64 *value)
{
	u64 address = check->address & ((1ull << CHECK_KIND_SHIFT) - 1);
	u64 kind = check->address >> CHECK_KIND_SHIFT;
	if (kind == CHECK_INT) {
		u32 line; // the kernel reads into its stack faster than into a map
		if (bpf_probe_read_user(&line, sizeof(line), (void *)address))
			return -1;
		*value = line;
		return 0;
	}
	if (kind == CHECK_FRAME_POINTER) {
		*value = frame_pointer(ctx);
		return 0;
	}
	if (kind == CHECK_PYTHON_FRAME) {
		u8 *frame = read_python_frame(scratch, ctx->sp, address);
		if (!python || !frame)
			return -1;
		*value = hash_python_frame(python, frame);
		return 0;
	}
	u64 offset = address - ctx->sp;
	if (offset <= STACK_WINDOW - 8) {
		if (offset + 8 <= scratch->stack_read) {
			*value = *(u64 *)&scratch->stack[offset];
			return 0;
		}
		need_stack(scratch, offset + 8);
	}
	return bpf_probe_read_user(value, 8, (void *)address);
}

// Reports whether a remembered walk still reads the same words, and reuses its stack. Otherwise
// thread->walk is the key under which to remember the walk that has to be done; 0: none. The loop
// keeps its state in a map, where the verifier does not track it: it would visit every iteration in
// every state.
static EBPF_INLINE bool recall_walk(struct pt_regs *ctx, struct thread *thread, struct process *process, u64 id)
{
	u32 zero = 0;
	thread->walk = 0;
	struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
	if (!process || !scratch)
		return false;
	scratch->next = 0;
	u32 layout = process->layout;
	const PyProcInfo *python = bpf_map_lookup_elem(&py_procs, &layout);
	u64 key = walk_key(ctx, process, id);
	u64 first = key;
	struct walk *walk = bpf_map_lookup_elem(&walks, &key);
	if (walk && !fill_windows(scratch, walk, ctx->sp))
		return false;
#pragma unroll 1
	repeat(MAX_CHECKS + MAX_BRANCHES) {
		if (!walk) {
			thread->walk = key;
			return false;
		}
		u64 n = scratch->next;
		asm volatile("" : "+r"(n)); // one register for the comparison and the index
		if (n >= walk->checks || n >= MAX_CHECKS) {
			thread->stack = walk->stack;
			thread->api = walk->api;
			keep_needed(scratch, first);
			return true;
		}
		struct check *check = &walk->check[n];
		scratch->next = n + 1;
		scratch->value = 0;
		if (read_check(scratch, python, ctx, check, &scratch->value))
			return false;
		if (scratch->value == check->value)
			continue;
		key = mix(mix(key, scratch->next), scratch->value);
		walk = bpf_map_lookup_elem(&walks, &key);
	}
	return false;
}

// Remembers the walk that was just recorded on this CPU.
static EBPF_INLINE void remember_walk(struct thread *thread)
{
	struct walk *walk = current_recording();
	if (!walk || !thread->walk || walk->checks > MAX_CHECKS)
		return;
	walk->stack = thread->stack;
	walk->api = thread->api;
	bpf_map_update_elem(&walks, &thread->walk, walk, BPF_ANY);
}

#endif

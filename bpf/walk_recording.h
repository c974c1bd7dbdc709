/* SPDX-License-Identifier: GPL-2.0-only */
/* Records what a walk reads, see walk_recall.h. */
#ifndef VRAMPROF_WALK_RECORDING_H
#define VRAMPROF_WALK_RECORDING_H

#include "hash.h"
#include "map_macros.h"
#include "marked_pages.h"

#define PYTHON_FRAME_SIZE sizeof(((PythonUnwindScratchSpace *)0)->frame)
#define MAX_CHECKS 192  /* words of a walk; longer walks are not remembered */
enum check_kind {
	CHECK_WORD,
	CHECK_INT,
	CHECK_PYTHON_FRAME,
	CHECK_FRAME_POINTER, /* the register's value when the walk started */
};
#define CHECK_KIND_SHIFT 56 /* above all user addresses */

struct check {
	u64 address; /* and the kind, from bit CHECK_KIND_SHIFT on */
	u64 value;   /* a word, an int, or a hash_python_frame */
};

#define RECENT_CODES 4 /* a power of two */

struct range {
	u64 at, size; /* address and bytes */
};

struct walk {
	u64 stack;
	u32 checks; /* number of checks; more than MAX_CHECKS: do not remember this walk */
	u16 codes;  /* number of code objects checked */
	u16 api;    /* of the thread, see cut_to_wrapper */
	/* What comparisons that begin with this walk read at once, as earlier ones needed it: bytes of
	 * the stack from the stack pointer on, and Python frames elsewhere. */
	u64 stack_size;
	struct range frames;
	u64 recent[RECENT_CODES]; /* latest code objects checked; used while recording */
	struct marked_page marked; /* used while recording */
	/* Source of its value; used while recording; address 0: already checked. */
	struct check frame_pointer;
	struct check check[MAX_CHECKS];
};

MAP(recording, BPF_MAP_TYPE_PERCPU_ARRAY, u32, struct walk, 1); /* the current walk on this CPU */

static EBPF_INLINE struct walk *current_recording(void)
{
	u32 zero = 0;
	return bpf_map_lookup_elem(&recording, &zero);
}

static EBPF_INLINE void begin_recording(u64 frame_pointer)
{
	struct walk *walk = current_recording();
	if (!walk)
		return;
	walk->frame_pointer.address = (u64)CHECK_FRAME_POINTER << CHECK_KIND_SHIFT;
	walk->frame_pointer.value = frame_pointer;
	walk->checks = 0;
	walk->codes = 0;
	walk->stack_size = 0;
	walk->frames = (struct range){0};
	walk->marked = (struct marked_page){0};
	__builtin_memset(walk->recent, 0, sizeof(walk->recent));
}

// Marks the current walk as not to be remembered.
static EBPF_INLINE void spoil_recording(void)
{
	struct walk *walk = current_recording();
	if (walk)
		walk->checks = MAX_CHECKS + 1;
}

static EBPF_INLINE void append_check(struct walk *walk, u64 address, u64 value)
{
	u32 n = walk->checks;
	if (n >= MAX_CHECKS) {
		walk->checks = MAX_CHECKS + 1;
		return;
	}
	walk->check[n].address = address;
	walk->check[n].value = value;
	walk->checks = n + 1;
}

static EBPF_INLINE void note_check(enum check_kind kind, const void *address, u64 value)
{
	struct walk *walk = current_recording();
	if (walk)
		append_check(walk, (u64)address | (u64)kind << CHECK_KIND_SHIFT, value);
}

/* Code without frame pointers keeps other data in that register. Most values that a walk
 * restores are never used and differ between calls. So a value is checked only when a frame is
 * found by it. */
static EBPF_INLINE void note_frame_pointer(void)
{
	struct walk *walk = current_recording();
	if (!walk || !walk->frame_pointer.address)
		return;
	append_check(walk, walk->frame_pointer.address, walk->frame_pointer.value);
	walk->frame_pointer.address = 0;
}

/* A code object may have been freed and replaced by another at the same address, so its first
 * line is checked; but not again for the next frames of the same few functions, as modules of
 * PyTorch nest. */
static EBPF_INLINE void note_code(const void *address, u32 line)
{
	struct walk *walk = current_recording();
	if (!walk)
		return;
	for (int i = 0; i < RECENT_CODES; i++)
		if (walk->recent[i] == (u64)address)
			return;
	walk->recent[walk->codes++ & (RECENT_CODES - 1)] = (u64)address;
	note_check(CHECK_INT, address, line);
}

static EBPF_INLINE long read_recorded(void *destination, u32 size, const void *source)
{
	struct walk *walk = page_table_levels ? current_recording() : NULL;
	return read_user(walk ? &walk->marked : NULL, destination, size, source);
}

/* Replaces bpf_probe_read_user in the unwinder's code. */
static EBPF_INLINE long watched_read(void *destination, int size, const void *source)
{
	long error = read_recorded(destination, size, source);
	if (error) {
		spoil_recording();
		return error;
	}
	switch (size) {
	case 4: note_check(CHECK_INT, source, *(u32 *)destination); break;
	case 8: note_check(CHECK_WORD, source, *(u64 *)destination); break;
	case 16: // found by the frame pointer, or contains it
		note_frame_pointer();
		note_check(CHECK_WORD, source, *(u64 *)destination);
		note_check(CHECK_WORD, source + 8, *(u64 *)(destination + 8));
		break;
	default: spoil_recording();
	}
	return 0;
}

/* Replaces bpf_probe_read_user where the unwinder restores the frame pointer. */
static EBPF_INLINE long watched_restore(u64 *frame_pointer, const void *source)
{
	long error = read_recorded(frame_pointer, sizeof(*frame_pointer), source);
	struct walk *walk = current_recording();
	if (error || !walk) {
		spoil_recording();
		return error;
	}
	walk->frame_pointer.address = (u64)source | (u64)CHECK_WORD << CHECK_KIND_SHIFT;
	walk->frame_pointer.value = *frame_pointer;
	return 0;
}

/* Checks the registers by which a frame is found. Registers above the link register are not part
 * of a walk's key, so such a walk is not remembered. */
static EBPF_INLINE void watch_registers(const UnwindInfo *info)
{
	if (!info)
		return;
	if (info->baseReg == UNWIND_REG_FP || info->auxBaseReg == UNWIND_REG_FP)
		note_frame_pointer();
	if (info->baseReg > UNWIND_REG_LR || info->auxBaseReg > UNWIND_REG_LR)
		spoil_recording();
}

/* Returns a hash of the fields of a Python frame on which a walk depends. */
static EBPF_INLINE u64 hash_python_frame(const PyProcInfo *python, const u8 *frame)
{
	const u32 size = PYTHON_FRAME_SIZE;
	u32 code = python->PyFrameObject_f_code, back = python->PyFrameObject_f_back;
	u32 lasti = python->PyFrameObject_f_lasti, entry = python->PyFrameObject_entry_member;
	if (code > size - 8 || back > size - 8 || lasti > size - 8 || entry > size - 1)
		return 0;
	u64 position = python->lasti_is_codeunit ? *(u64 *)(frame + lasti) : *(u32 *)(frame + lasti);
	return mix(mix(mix(frame[entry], *(u64 *)(frame + code)), *(u64 *)(frame + back)), position);
}

/* Replaces bpf_probe_read_user where the unwinder walks Python frames. */
static EBPF_INLINE long watched_python_read(const PyProcInfo *python, void *destination, int size, const void *source)
{
	PythonUnwindScratchSpace *space;
	if (size != sizeof(space->frame) && size != sizeof(space->code))
		return watched_read(destination, size, source);
	long error = read_recorded(destination, size, source);
	if (error) {
		spoil_recording();
	} else if (size == sizeof(space->frame)) {
		note_check(CHECK_PYTHON_FRAME, source, hash_python_frame(python, destination));
	} else {
		u32 line = python->PyCodeObject_co_firstlineno;
		if (line > sizeof(space->code) - sizeof(u32))
			spoil_recording();
		else
			note_code(source + line, *(u32 *)(destination + line));
	}
	return error;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* What a replay of PyTorch's allocator needs besides its reports, where user space asks for it: the
 * requested size, stream and pool of each block, and whether the memory of a freed block waits for
 * other streams. It is in the allocator's Block, whose address is in a register or on the stack when
 * the allocator reports. The report proves which one it is: a Block has the address and the size. */
#ifndef VRAMPROF_BLOCK_DETAILS_H
#define VRAMPROF_BLOCK_DETAILS_H

#include "allocators.h"
#include "block_events.h"
#include "registers.h"
#include "verifier.h"

/* Whether details are wanted. User space sets it; without them, the verifier removes this code. */
volatile const u32 wants_details = 0;

/* Where a build of PyTorch has the fields of a Block, and of its pool the owner, in bytes. */
struct block_layout {
	u8 ptr, size, requested, pool, stream;
	u8 allocated; /* bool */
	u8 uses;      /* u64: other streams that use the block */
	u8 events;    /* u32: events that its memory waits for */
	u8 owner;     /* in the pool: its private pool; 0: it is a default pool */
};

/* pid → layout; 0: of processes without one of their own. */
MAP(block_layouts, BPF_MAP_TYPE_HASH, u32, struct block_layout, 1024);

#define MAX_WAITING 64 /* a power of two */
enum detail_limit { DETAILED_ALLOCATORS = 128 }; /* those with the lowest numbers */
struct waiting_block {
	u64 object; /* its Block */
	u64 address, size;
};
/* What is known between the reports of one GPU allocator. It needs no lock, as near tables. */
struct allocator_details {
	u64 at[2]; /* the place where the last Block was, of frees and of allocations; see candidate */
	u64 waits; /* entries in waiting */
	u64 kept;
	u64 index; /* of loops */
	struct waiting_block waiting[MAX_WAITING];
};
MAP(detailed_allocators, BPF_MAP_TYPE_ARRAY, u32, struct allocator_details, DETAILED_ALLOCATORS);

/* Places where the address of a Block may be: registers, then words of the caller's frame. */
#define CANDIDATE_REGISTERS 8
#define CANDIDATES (CANDIDATE_REGISTERS + 40)

static EBPF_INLINE u64 candidate(struct pt_regs *ctx, u64 n)
{
	u64 value = 0;
#if defined(__x86_64__)
	switch (n) {
	case 0: return REGISTER(ax);
	case 1: return REGISTER(bx);
	case 2: return REGISTER(r12);
	case 3: return REGISTER(r13);
	case 4: return REGISTER(r14);
	case 5: return REGISTER(r15);
	case 6: return REGISTER(bp);
	case 7: return REGISTER(r10);
	}
#else
	switch (n) {
	case 0: return REGISTER(regs[19]);
	case 1: return REGISTER(regs[20]);
	case 2: return REGISTER(regs[21]);
	case 3: return REGISTER(regs[22]);
	case 4: return REGISTER(regs[23]);
	case 5: return REGISTER(regs[24]);
	case 6: return REGISTER(regs[25]);
	case 7: return REGISTER(regs[26]);
	}
#endif
	void *at = (void *)REGISTER(sp) + RETURN_ADDRESS_SIZE + 8 * (n - CANDIDATE_REGISTERS);
	return bpf_probe_read_user(&value, sizeof(value), at) ? 0 : value;
}

/* What a Block has. */
struct block_fields {
	u64 ptr, size, uses;
	u32 events;
	u8 allocated;
};

static EBPF_INLINE bool read_block(struct block_layout *l, u64 object, struct block_fields *f)
{
	void *at = (void *)object;
	return object && !(object & 7) && !bpf_probe_read_user(&f->ptr, 8, at + l->ptr) && !bpf_probe_read_user(&f->size, 8, at + l->size) &&
	       !bpf_probe_read_user(&f->allocated, 1, at + l->allocated) && !bpf_probe_read_user(&f->uses, 8, at + l->uses) &&
	       !bpf_probe_read_user(&f->events, 4, at + l->events);
}

// Reports whether a Block is the one of a report. One that was freed may have been merged with its
// neighbors: then it has more memory, and waits for nothing.
static EBPF_INLINE bool is_reported(struct block_report *r, struct block_fields *f)
{
	if (r->size > 0)
		return f->ptr == r->address && f->size == r->size && f->allocated == 1;
	u64 size = -r->size;
	if (f->allocated || (f->ptr | f->size) & 511)
		return false;
	if (f->uses || f->events)
		return f->ptr == r->address && f->size == size;
	return f->ptr <= r->address && r->address + size <= f->ptr + f->size && f->size < 1ull << 47;
}

// Returns the Block of a report and reads its fields; 0: not found.
static EBPF_INLINE u64 find_block(struct pt_regs *ctx, struct allocator_details *a, struct block_layout *l, struct block_report *r, struct block_fields *f)
{
	u64 *at = &a->at[r->size > 0];
	u64 object = candidate(ctx, *at);
	if (read_block(l, object, f) && is_reported(r, f))
		return object;
	each(n, CANDIDATES, &a->index) {
		object = candidate(ctx, n);
		if (read_block(l, object, f) && is_reported(r, f)) {
			*at = n;
			return object;
		}
	}
	return 0;
}

static EBPF_INLINE void send_block_details(enum event_kind kind, struct block_report *r, u64 address, u64 requested, u64 stream, u64 pool, u64 now, u64 id)
{
	struct event *event = reserve_event(sizeof(*event), id);
	if (!event)
		return;
	__builtin_memset(event, 0, sizeof(*event));
	begin_event(event, kind, id);
	event->time = now;
	event->address = address;
	event->size = requested;
	event->context = stream;
	event->extra = pool;
	event->result = r->device & 0xff;
	event->device = (s8)(r->device >> 8);
	bpf_ringbuf_submit(event, wakeup_flag(false));
}

// Sends the ends of blocks that waited for other streams.
static EBPF_INLINE void send_completed(struct allocator_details *a, struct block_layout *l, struct block_report *r, u64 now, u64 id)
{
	u64 waits = a->waits;
	if (!waits)
		return;
	a->kept = 0;
	each(i, MAX_WAITING, &a->index) {
		if (i >= waits)
			break;
		struct waiting_block *w = &a->waiting[i & (MAX_WAITING - 1)];
		struct block_fields f;
		if (read_block(l, w->object, &f) && f.ptr == w->address && f.size == w->size && !f.allocated && (f.uses || f.events)) {
			struct waiting_block *to = &a->waiting[a->kept++ & (MAX_WAITING - 1)];
			u64 object = w->object, address = w->address, size = w->size;
			to->object = object;
			to->address = address;
			to->size = size;
		} else {
			send_block_details(EVENT_BLOCK_COMPLETED, r, w->address, 0, 0, 0, now, id);
		}
	}
	a->waits = a->kept;
}

// Sends what a block asked for.
static EBPF_INLINE void send_requested(struct block_layout *l, u64 object, struct block_report *r, u64 now, u64 id)
{
	void *at = (void *)object;
	u64 requested, stream, pool, owner = 0;
	if (bpf_probe_read_user(&requested, 8, at + l->requested) || bpf_probe_read_user(&stream, 8, at + l->stream) ||
	    bpf_probe_read_user(&pool, 8, at + l->pool) || bpf_probe_read_user(&owner, 8, (void *)pool + l->owner))
		return;
	// The pool is a part of its owner.
	if (requested > r->size || (owner && pool - owner > 1024))
		return;
	send_block_details(EVENT_BLOCK_DETAILS, r, r->address, requested, stream, owner, now, id);
}

// Sends the details of a report, which come before its event. Returns flags for the event of a free.
static EBPF_INLINE u32 note_details(struct pt_regs *ctx, struct tensor_device *d, struct block_report *r, u64 now, u64 id)
{
	u32 pid = id >> 32, zero = 0, number = d->number;
	struct allocator_details *a = bpf_map_lookup_elem(&detailed_allocators, &number);
	struct block_layout *l = bpf_map_lookup_elem(&block_layouts, &pid);
	if (!l)
		l = bpf_map_lookup_elem(&block_layouts, &zero);
	if (!a || !l || !on_gpu(r->device))
		return FLAG_NO_DETAILS;
	send_completed(a, l, r, now, id);
	struct block_fields f = {};
	u64 object = find_block(ctx, a, l, r, &f);
	if (!object)
		return FLAG_NO_DETAILS;
	if (r->size > 0) {
		send_requested(l, object, r, now, id);
		return 0;
	}
	if (!f.uses && !f.events)
		return 0;
	if (a->waits >= MAX_WAITING)
		return FLAG_NO_DETAILS | FLAG_WAITS;
	struct waiting_block *w = &a->waiting[a->waits++ & (MAX_WAITING - 1)];
	w->object = object;
	w->address = r->address;
	w->size = -r->size;
	return FLAG_WAITS;
}

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/* Which blocks are sampled. */
#ifndef VRAMPROF_BLOCK_SAMPLING_H
#define VRAMPROF_BLOCK_SAMPLING_H

#include "allocators.h"

enum sampling {
	SAMPLE_ALWAYS = 0xffffffff, /* threshold of size classes whose blocks are all sampled */
	/* Length of the window of an allocator's sample budget. */
	SAMPLE_WINDOW_NS = 100 * 1000 * 1000,
	SAVED_WINDOWS = 10, /* windows whose unused budget is kept, for bursts */
};
#define MAX_HALVINGS 12 /* of a size class's sampling probability */

/* Sample budget: blocks of an allocator that are sampled per window before the probabilities of size
 * classes are halved. User space sets it. 0: no limit. */
volatile const u32 window_samples = 0;

/* The sampling probability of a size class times 2^32, without halvings; 0: never. User space sets it. */
MAP(sample_classes, BPF_MAP_TYPE_ARRAY, u32, u32, SIZE_CLASSES);

/* Classes share an allocator's budget fairly: where it does not suffice, only the probabilities of
 * classes are halved that used more than a level in a window. So thousands of activations in a step
 * do not hide the one tensor of another size that a step keeps. The level is found by trial: it falls
 * while the budget is exceeded, and rises while part of the budget is unused. */

// Begins the next window of an allocator's budget, if it is time. Unused budget is kept, up to a
// limit.
static EBPF_INLINE void open_window(struct tensor_device *d, u64 now)
{
	if ((s64)(now - d->window) < SAMPLE_WINDOW_NS)
		return;
	// In all but the first no block was reported.
	u64 windows = (now - d->window) / SAMPLE_WINDOW_NS;
	d->opened += windows;
	if (windows > SAVED_WINDOWS)
		windows = SAVED_WINDOWS;
	if (d->sampled < windows * window_samples * 2 / 3) {
		u64 level = windows == SAVED_WINDOWS ? window_samples : d->level + d->level / 4 + 1;
		d->level = level < window_samples ? level : window_samples;
	}
	if (d->credit)
		d->exceeded = 0;
	u32 credit = d->credit + windows * window_samples;
	d->credit = credit < SAVED_WINDOWS * window_samples ? credit : SAVED_WINDOWS * window_samples;
	d->sampled = 0;
	d->window = now;
}

// Begins a class's next window. If it used less than a third of the level, its probability is
// doubled: twice the samples still fit well.
static EBPF_INLINE void open_class(struct tensor_device *d, struct class_samples *c)
{
	u32 windows = d->opened - c->window;
	if (!windows)
		return;
	if (windows > MAX_HALVINGS)
		windows = MAX_HALVINGS;
	if (c->taken < windows * d->level / 3)
		c->halvings = c->halvings > windows ? c->halvings - windows : 0;
	c->taken = 0;
	c->window = d->opened;
}

// Takes one sample from the budget. What changes applies from the next block on, so that a block's
// probability never depends on the block itself.
static EBPF_INLINE void spend_sample(struct tensor_device *d, struct class_samples *c)
{
	d->sampled++;
	c->taken += c->taken < 0xffff;
	if (d->credit) {
		d->credit--;
		return;
	}
	if (++d->exceeded > window_samples / 2 && d->level > 1) {
		d->exceeded = 0;
		d->level /= 2;
	}
	if (c->taken > d->level && c->halvings < MAX_HALVINGS) {
		c->halvings++;
		c->taken = d->level / 2;
	}
}

// Decides whether a block is sampled, and stores the halvings of its probability in the report.
static EBPF_INLINE bool sample_block(struct tensor_device *d, u32 number, struct block_report *r, u64 now)
{
	u32 *threshold = bpf_map_lookup_elem(&sample_classes, &number);
	if (!threshold || !*threshold)
		return false;
	u32 likely = *threshold;
	struct class_samples *c = &d->samples[number & (SIZE_CLASSES - 1)];
	if (window_samples) {
		open_window(d, now);
		open_class(d, c);
		r->halvings = c->halvings;
		likely >>= r->halvings & 15;
	}
	if (likely != SAMPLE_ALWAYS && bpf_get_prandom_u32() >= likely)
		return false;
	if (window_samples)
		spend_sample(d, c);
	return true;
}

#endif

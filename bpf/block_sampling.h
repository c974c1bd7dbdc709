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
#define MAX_HALVINGS 12 /* of a block's sampling probability */
#define MAX_DOUBLINGS 24 /* of the sampling mean */

/* Sample budget: blocks of an allocator that are sampled per window before its mean is doubled.
 * User space sets it. 0: no limit. */
volatile const u32 window_samples = 0;

/* The sampling probability of a size class. Each doubling of the mean halves it, except while
 * the class's sizes are at least the mean: such blocks are always sampled. */
struct sample_class {
	u32 threshold; /* probability times 2^32 without doublings; 0: never */
	u32 spared;    /* number of doublings that do not halve it */
};
MAP(sample_classes, BPF_MAP_TYPE_ARRAY, u32, struct sample_class, SIZE_CLASSES);

// Begins the next window of an allocator's budget, if it is time. Unused budget is kept, up to a
// limit. If less than a third was used, the mean is halved: twice the samples still fit well.
static EBPF_INLINE void open_window(struct tensor_device *d, u64 now)
{
	if ((s64)(now - d->window) < SAMPLE_WINDOW_NS)
		return;
	// In all but the first no block was reported.
	u64 windows = (now - d->window) / SAMPLE_WINDOW_NS;
	if (windows > SAVED_WINDOWS)
		windows = SAVED_WINDOWS;
	if (d->sampled < windows * window_samples / 3)
		d->doublings = d->doublings > windows ? d->doublings - windows : 0;
	u32 credit = d->credit + windows * window_samples;
	d->credit = credit < SAVED_WINDOWS * window_samples ? credit : SAVED_WINDOWS * window_samples;
	d->sampled = 0;
	d->window = now;
}

// Takes one sample from the budget. If none is left, the mean is doubled from the next block on, so
// that a block's probability never depends on the block itself.
static EBPF_INLINE void spend_sample(struct tensor_device *d, u64 now)
{
	d->sampled++;
	if (d->credit)
		d->credit--;
	if (d->credit || d->doublings >= MAX_DOUBLINGS)
		return;
	d->doublings++;
	d->credit = window_samples;
	d->sampled = 0;
	d->window = now;
}

// Decides whether a block is sampled, and stores the halvings of its probability in the report.
static EBPF_INLINE bool sample_block(struct tensor_device *d, u32 number, struct block_report *r, u64 now)
{
	struct sample_class *class = bpf_map_lookup_elem(&sample_classes, &number);
	if (!class || !class->threshold)
		return false;
	u32 likely = class->threshold;
	if (window_samples) {
		open_window(d, now);
		if (d->doublings > class->spared) {
			u32 halvings = d->doublings - class->spared;
			r->halvings = halvings < MAX_HALVINGS ? halvings : MAX_HALVINGS;
			likely >>= r->halvings & 15;
		}
	}
	if (likely != SAMPLE_ALWAYS && bpf_get_prandom_u32() >= likely)
		return false;
	if (window_samples)
		spend_sample(d, now);
	return true;
}

#endif

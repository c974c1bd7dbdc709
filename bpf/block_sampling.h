/* SPDX-License-Identifier: GPL-2.0-only */
/* Which blocks are sampled. */
#ifndef VRAMPROF_BLOCK_SAMPLING_H
#define VRAMPROF_BLOCK_SAMPLING_H

#include "allocators.h"

enum sampling {
	SAMPLE_ALWAYS = 0xffffffff, /* threshold of size classes whose blocks are all sampled */
	SAMPLE_WINDOW_NS = 100 * 1000 * 1000, /* what an allocator's budget of samples is for */
	SAVED_WINDOWS = 10, /* whose samples may come at once, after a pause */
};
#define MAX_HALVINGS 12 /* of a block's probability */
#define MAX_DOUBLINGS 24 /* of the mean */

/* So many blocks of an allocator are sampled in SAMPLE_WINDOW_NS before it is sampled less; 0: there is no limit. */
volatile const u32 window_samples = 0;

/* How likely a block of a class is sampled. A mean that is doubled halves that, but not for those of at least the mean: they
 * are always taken. */
struct sample_class {
	u32 threshold; /* of 2^32, with no doublings */
	u32 spared;    /* so many doublings halve nothing */
};
MAP(sample_classes, BPF_MAP_TYPE_ARRAY, u32, struct sample_class, SIZE_CLASSES);

// Begins the next window of an allocator's budget, if it is time: what was not used is saved, up to a limit.
// Where less than a third was used, the mean is halved: twice of it is well below the budget.
static EBPF_INLINE void open_window(struct tensor_device *d, u64 now)
{
	if ((s64)(now - d->window) < SAMPLE_WINDOW_NS)
		return;
	u64 windows = (now - d->window) / SAMPLE_WINDOW_NS; // all but the first without a block
	if (windows > SAVED_WINDOWS)
		windows = SAVED_WINDOWS;
	if (d->sampled < windows * window_samples / 3)
		d->doublings = d->doublings > windows ? d->doublings - windows : 0;
	u32 credit = d->credit + windows * window_samples;
	d->credit = credit < SAVED_WINDOWS * window_samples ? credit : SAVED_WINDOWS * window_samples;
	d->sampled = 0;
	d->window = now;
}

// Takes one sample from the budget. When nothing is left the mean is doubled, from the next block on: so
// how likely a block was to be sampled never depends on itself.
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

// Decides whether a block is of the sample, and notes in the report how likely that was.
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
